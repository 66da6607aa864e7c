"""Recompute frames of the HfO2 data set with CP2K, or compute strained copies of them.

    python workflows/datasets/hfo2/generate.py --frames monoclinic-0600K/010 --jobs 2
    python workflows/datasets/hfo2/generate.py --frames cubic-2000K/019 --strain 0.01

Results lie in the output folder as they lie here: `inputs`, `outputs` and `matrices`, or
`strain/inputs` and `strain/outputs`. Needs numpy, h5py and CP2K (Debian: `apt-get install
--no-install-recommends cp2k`).
"""

from __future__ import annotations

import argparse
import gzip
import os
import re
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import real_space

HERE = Path(__file__).parent
STRAINS = {
    "hydrostatic": np.eye(3),
    "yz": np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]),
}
"""Symmetric strain directions, (3, 3) each; a strain is an amplitude times one of them."""
NEUTRAL = {"ON": "localhost", "BY": "<unknown>", "ID": "0", "IN": "."}
"""What replaces the host, user, process and folder in CP2K's header and footer."""


def read_gzip(path: Path) -> str:
    """Return the text of a gzip file."""
    return gzip.decompress(path.read_bytes()).decode()


def write_gzip(path: Path, text: str) -> None:
    """Write text as a gzip file whose bytes depend on the text alone (no time, no name)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed:
        packed.write(text.encode())


def strained(text: str, strain: np.ndarray) -> str:
    """Return a CP2K input under a homogeneous strain at fixed fractional coordinates.

    Every vector v of the cell and of the atoms becomes v (1 + strain). The sections that print
    matrices are removed.

    Args:
        text: An input of this data set.
        strain: Symmetric strain tensor. (3, 3)
    """

    def deform(line: re.Match[str]) -> str:
        vector = np.array(line[2].split(), dtype=float) @ (np.eye(3) + strain)
        return line[1] + " ".join(f"{x:.10f}" for x in vector)

    text = re.sub(r"    &PRINT\n      &KS_CSR_WRITE.*?    &END PRINT\n", "", text, flags=re.DOTALL)
    return re.sub(r"^( +(?:A|B|C|Hf|O) )(-?\d+\.\d+(?: -?\d+\.\d+){2})$", deform, text, flags=re.M)


def select(patterns: list[str], amplitude: float | None) -> dict[Path, str]:
    """Return the inputs to run, each under its name `RUN/NNN` or `strain/RUN-NNN/STRAIN`.

    Args:
        patterns: Shell patterns of shipped frames, such as `cubic-0600K/*`.
        amplitude: Size of the strain, or None for the frames themselves.

    Raises:
        ValueError: A pattern matches no frame.
    """
    jobs = {}
    for pattern in patterns:
        paths = sorted((HERE / "inputs").glob(f"{pattern}.inp.gz"))
        if not paths:
            runs = ", ".join(sorted(p.name for p in (HERE / "inputs").iterdir()))
            raise ValueError(f"no frame matches {pattern!r}; write RUN/NNN, RUN one of {runs}")
        for path in paths:
            run, frame, text = path.parent.name, path.name.removesuffix(".inp.gz"), read_gzip(path)
            if amplitude is None:
                jobs[Path(run, frame)] = text
                continue
            group = Path("strain", f"{run}-{frame}")
            jobs[group / "unstrained"] = strained(text, np.zeros((3, 3)))
            for name, direction in STRAINS.items():
                for value in (-amplitude, amplitude):
                    jobs[group / f"{name}{value:+.4f}"] = strained(text, value * direction)
    return jobs


def placed(output: Path, kind: str, job: Path, suffix: str) -> Path:
    """Return where a file of one job goes: `output/[strain/]kind/GROUP/NAME` and the suffix."""
    return output / job.parent.parent / kind / job.parent.name / f"{job.name}{suffix}"


def anonymous(log: str) -> str:
    """Return a CP2K output without the host, user, process and folder of its header and footer."""

    def neutral(line: re.Match[str]) -> str:
        return line[1] + NEUTRAL[line[2]].rjust(80 - len(line[1]))

    # CP2K breaks a long folder into lines that hold nothing else.
    pattern = r"^(.*PROGRAM (?:STARTED|RAN|STOPPED|PROCESS) (ON|BY|ID|IN)) +\S.*(?:\n {43}\S+)*$"
    return re.sub(pattern, neutral, log, flags=re.MULTILINE)


def compute(job: Path, text: str, output: Path, program: str) -> real_space.Blocks | None:
    """Run CP2K on one input with one thread, keep input and output, return printed matrices.

    Raises:
        RuntimeError: CP2K failed or the SCF cycle did not converge; the output is kept.
    """
    write_gzip(placed(output, "inputs", job, ".inp.gz"), text)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "job.inp").write_text(text)
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        command = [program, "-i", "job.inp", "-o", "out.log"]
        code = subprocess.run(command, cwd=folder, env=environment, check=False).returncode
        log = (folder / "out.log").read_text() if (folder / "out.log").exists() else ""
        kept = placed(output, "outputs", job, ".log.gz")
        write_gzip(kept, anonymous(log))
        if code or "SCF run converged" not in log:
            raise RuntimeError(f"{program} failed on {job} (exit status {code}); see {kept}")
        return real_space.pack(folder, text, log) if "&KS_CSR_WRITE" in text else None


def main() -> None:
    """Parse the command line and run the jobs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--frames", nargs="+", required=True, help="RUN/NNN, or patterns such as 'cubic-0600K/*'")
    add("--strain", type=float, metavar="AMPLITUDE", help="run strained copies instead")
    add("--inputs-only", action="store_true", help="write the inputs and stop")
    add("--jobs", type=int, default=1, help="CP2K processes at a time, one thread each")
    add("--output", type=Path, default=Path("hfo2-recomputed"), help="folder for the results")
    add("--cp2k", default="cp2k.psmp", help="CP2K executable")
    options = parser.parse_args()
    try:
        jobs = select(options.frames, options.strain)
    except ValueError as error:
        parser.error(str(error))
    if options.inputs_only:
        for job, text in jobs.items():
            write_gzip(placed(options.output, "inputs", job, ".inp.gz"), text)
        return
    if shutil.which(options.cp2k) is None:
        parser.error(f"{options.cp2k!r} is not on the PATH; install CP2K or name it with --cp2k")
    run = partial(compute, output=options.output, program=options.cp2k)
    with ThreadPoolExecutor(options.jobs) as pool:
        for job, blocks in zip(jobs, pool.map(run, jobs, jobs.values()), strict=True):
            if blocks is not None:
                path = options.output / "matrices" / f"{job.parent}.h5"
                real_space.write(path, job.name, blocks)


if __name__ == "__main__":
    main()

"""Recompute frames of the HfO2 data set with CP2K, or compute strained copies of them.

    python workflows/datasets/hfo2/generate.py --frames monoclinic-0600K/010 --jobs 2
    python workflows/datasets/hfo2/generate.py --frames cubic-2000K/019 --strain 0.01
    python workflows/datasets/hfo2/generate.py --frames tetragonal-2000K/000 --reach 14

Results lie in the output folder as they lie here: `inputs`, `outputs` and `matrices`, those of
strained copies in `strain`, those of a longer reach in `levels`. Needs numpy, h5py and CP2K
(Debian: `apt-get install --no-install-recommends cp2k`).
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
PRINT_LEVELS = """\
      &KPOINTS ON
      &END KPOINTS
      &MO
        EIGENVALUES .TRUE.
        NDIGITS 12
        ADD_LAST NUMERIC
        &EACH
          QS_SCF 0
        &END EACH
      &END MO
"""
"""What makes CP2K print the levels of the last step."""
ALL_EMPTY = 24
"""Empty levels of 72 orbitals, of which CP2K is to print all."""
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


def strain_input(text: str, strain: np.ndarray) -> str:
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


def add_levels(text: str) -> str:
    """Return a CP2K input that prints all levels at its k-points, too; nothing else changes."""
    text = re.sub(r"ADDED_MOS \d+", f"ADDED_MOS {ALL_EMPTY}", text)
    text = text.replace("      FULL_GRID", "      VERBOSE .TRUE.\n      FULL_GRID")
    return text.replace("      &KS_CSR_WRITE\n", f"{PRINT_LEVELS}      &KS_CSR_WRITE\n")


def select(patterns: list[str], amplitude: float | None, levels: bool) -> dict[Path, str]:
    """Return the inputs to run, by name: `RUN/NNN`, `strain/RUN-NNN/STRAIN`, or `levels/RUN/NNN`.

    Args:
        patterns: Shell patterns of shipped frames, such as `cubic-0600K/*`.
        amplitude: Size of the strain, or None for the frames themselves.
        levels: Whether the frames themselves print their levels.

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
            if levels:
                jobs[Path("levels", run, frame)] = add_levels(text)
                continue
            if amplitude is None:
                jobs[Path(run, frame)] = text
                continue
            group = Path("strain", f"{run}-{frame}")
            jobs[group / "unstrained"] = strain_input(text, np.zeros((3, 3)))
            for name, direction in STRAINS.items():
                for value in (-amplitude, amplitude):
                    jobs[group / f"{name}{value:+.4f}"] = strain_input(text, value * direction)
    return jobs


def place_output(output: Path, kind: str, job: Path, suffix: str) -> Path:
    """Return where a file of one job goes: `output/[TOP/]kind/GROUP/NAME` and the suffix."""
    return output / job.parent.parent / kind / job.parent.name / f"{job.name}{suffix}"


def anonymize(log: str) -> str:
    """Return a CP2K output without the host, user, process and folder of its header and footer."""

    def neutralize(line: re.Match[str]) -> str:
        return line[1] + NEUTRAL[line[2]].rjust(80 - len(line[1]))

    # CP2K breaks a long folder into lines that hold nothing else.
    pattern = r"^(.*PROGRAM (?:STARTED|RAN|STOPPED|PROCESS) (ON|BY|ID|IN)) +\S.*(?:\n {43}\S+)*$"
    return re.sub(pattern, neutralize, log, flags=re.MULTILINE)


def compute(
    job: Path, text: str, output: Path, program: str, cutoff: float
) -> dict[str, np.ndarray] | None:
    """Run CP2K on one input with one thread, keep input and output, return printed matrices.

    Args:
        job: Name.
        text: Input.
        output: Folder for the results.
        program: CP2K.
        cutoff: Longest distance of pairs whose blocks are kept, Å.

    Returns:
        Blocks, and levels if they are printed; None if no matrices are.

    Raises:
        RuntimeError: CP2K failed or the SCF cycle did not converge; the output is kept.
    """
    write_gzip(place_output(output, "inputs", job, ".inp.gz"), text)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "job.inp").write_text(text)
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        command = [program, "-i", "job.inp", "-o", "out.log"]
        code = subprocess.run(command, cwd=folder, env=environment, check=False).returncode
        log = (folder / "out.log").read_text() if (folder / "out.log").exists() else ""
        kept = place_output(output, "outputs", job, ".log.gz")
        write_gzip(kept, anonymize(log))
        if code or "SCF run converged" not in log:
            raise RuntimeError(f"{program} failed on {job} (exit status {code}); see {kept}")
        if "&KS_CSR_WRITE" not in text:
            return None
        levels = real_space.read_levels(log) if PRINT_LEVELS in text else {}
        return {**real_space.pack(folder, text, log, cutoff), **levels}


def main() -> None:
    """Parse the command line and run the jobs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--frames", nargs="+", required=True, help="RUN/NNN, or patterns such as 'cubic-0600K/*'")
    add("--strain", type=float, metavar="AMPLITUDE", help="run strained copies instead")
    add(
        "--reach",
        type=float,
        metavar="DISTANCE",
        help="keep pairs up to this distance, Å, and the levels that CP2K prints, in levels/",
    )
    add("--inputs-only", action="store_true", help="write the inputs and stop")
    add("--jobs", type=int, default=1, help="CP2K processes at a time, one thread each")
    add("--output", type=Path, default=Path("hfo2-recomputed"), help="folder for the results")
    add("--cp2k", default="cp2k.psmp", help="CP2K executable")
    options = parser.parse_args()
    if options.reach is not None and options.strain is not None:
        parser.error("--reach: strained copies print no matrices; leave out --reach or --strain")
    try:
        jobs = select(options.frames, options.strain, options.reach is not None)
    except ValueError as error:
        parser.error(str(error))
    if options.inputs_only:
        for job, text in jobs.items():
            write_gzip(place_output(options.output, "inputs", job, ".inp.gz"), text)
        return
    if shutil.which(options.cp2k) is None:
        parser.error(f"{options.cp2k!r} is not on the PATH; install CP2K or name it with --cp2k")
    cutoff = real_space.CUTOFF if options.reach is None else options.reach
    steps = real_space.STEPS if options.reach is None else real_space.FINE
    run = partial(compute, output=options.output, program=options.cp2k, cutoff=cutoff)
    with ThreadPoolExecutor(options.jobs) as pool:
        for job, arrays in zip(jobs, pool.map(run, jobs, jobs.values()), strict=True):
            if arrays is not None:
                folder = options.output / job.parent.parent / "matrices"
                real_space.write(folder / f"{job.parent.name}.h5", job.name, arrays, cutoff, steps)


if __name__ == "__main__":
    main()

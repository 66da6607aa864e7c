"""The data stage on 200,000 frames of extended XYZ: time, frames per second and peak memory.

    python tests/benchmarks/import_stream.py [--frames 200000] [--peer-frames 10000]

A subprocess imports the file, so that its peak memory is that of the import alone. The peer is
`ase.io.iread` over the first frames, before and after, scaled to all of them; it only reads, while
the stage also checks, converts, pairs frames, splits, fits reference energies, hashes and writes.
The last line printed is one JSON object.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ase
import ase.io
import numpy as np

from harness.command import make_parser, read_arguments
from harness.report import print_report, read_versions
from harness.springs import draw_species, format_frame

BLOCK, N_CRYSTALS, N_FRAMES = (2, 2, 5), 200, 50  # frames of a crystal in a row
N_ATOMS = 20
DATASET = """\
description: Crystals of springs
sources: [{path: stream.xyz, group: composition}]
split: {method: composition}
"""


def write_frames(path: Path, n_frames: int) -> None:
    """Write frames of crystals, some of each in a row."""
    rng = np.random.default_rng(0)
    crystals = [draw_species(BLOCK, rng) for _ in range(N_CRYSTALS)]
    with path.open("w") as file:
        for i in range(n_frames):
            number = i // N_FRAMES % N_CRYSTALS
            file.write(format_frame(crystals[number], BLOCK, number, rng))


def import_stream(folder: Path) -> None:
    """Run the data stage and print what it took; the subprocess."""
    from pipeline_core.project.project import Project
    from pipeline_core.stages.builtin import load_registry

    registry = load_registry()
    run = Project(folder / "workflows", folder / "results", registry).load_dataset("stream")
    begin = time.perf_counter()
    summary = registry.select_hook("data", None)(run=run)
    seconds = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"ours_s": seconds, "peak_gb": peak / 1e9, "summary": summary}))


def time_peer(path: Path, n_frames: int) -> float:
    """Time to read the first frames with ASE, their results included."""
    begin = time.perf_counter()
    for atoms in ase.io.iread(path, f":{n_frames}", format="extxyz"):
        assert atoms.get_forces().shape == (N_ATOMS, 3)
    return time.perf_counter() - begin


def measure_import(folder: Path, n_frames: int, n_peer: int) -> dict:
    """Write the frames, import them, and read a part of them with ASE before and after."""
    datasets = folder / "workflows" / "datasets"
    datasets.mkdir(parents=True)
    (datasets / "stream.yaml").write_text(DATASET)
    path = datasets / "stream.xyz"
    write_frames(path, n_frames)
    before = time_peer(path, n_peer)
    command = [sys.executable, __file__, "--import-in", str(folder)]
    shown = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    ours = json.loads(shown.splitlines()[-1])
    peer_s = min(before, time_peer(path, n_peer)) * n_frames / n_peer
    return {
        **ours,
        "frames_per_s": n_frames / ours["ours_s"],
        "peer": f"ase.io.iread of {n_peer} frames, scaled to {n_frames}; reading alone",
        "peer_s": peer_s,
        "ratio": peer_s / ours["ours_s"],
        "frames": n_frames,
        "atoms_per_frame": N_ATOMS,
        "input_gb": path.stat().st_size / 1e9,
    }


def main() -> None:
    """Import a file and print one JSON object as the last line."""
    parser = make_parser(__doc__)
    parser.add_argument("--frames", type=int, default=200_000)
    parser.add_argument("--peer-frames", type=int, default=10_000)
    parser.add_argument("--import-in", type=Path, help=argparse.SUPPRESS)
    args = read_arguments(parser, {"frames": 500, "peer_frames": 100})
    if args.import_in:
        import_stream(args.import_in)
        return
    with tempfile.TemporaryDirectory() as folder:
        n_peer = min(args.peer_frames, args.frames)
        figures = measure_import(Path(folder), args.frames, n_peer)
    versions = read_versions("ase", "h5py", "numpy")
    print_report("import_stream", figures, threads=1, versions=versions)


if __name__ == "__main__":
    main()

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

N_ATOMS, N_CRYSTALS = 20, 200
SPRING, BULK_MODULUS = 2.0, 0.6  # eV/Å², eV/Å³
DATASET = """\
description: Crystals of springs
sources: [{path: stream.xyz, group: composition}]
split: {method: composition}
"""
COMMENT = (
    'Lattice="%.8f 0.0 0.0 0.0 %.8f 0.0 0.0 0.0 %.8f" '
    "Properties=species:S:1:pos:R:3:forces:R:3 energy=%.10f "
    'stress="%.10f %.10f %.10f %.10f %.10f %.10f %.10f %.10f %.10f" pbc="T T T"\n'
)
ROW = "%-2s" + " %15.8f" * 6 + "\n"


def write_frames(path: Path, n_frames: int) -> None:
    """Write strained and rattled crystals in which every atom is tied to its site by a spring."""
    rng = np.random.default_rng(0)
    symbols = np.array(["H", "Li", "C", "O", "Al", "Si", "Cu", "Hf"])
    crystals = [
        (symbols[np.sort(rng.integers(0, 8, N_ATOMS))], rng.random((N_ATOMS, 3)))
        for _ in range(N_CRYSTALS)
    ]
    with path.open("w") as file:
        for i in range(n_frames):
            species, sites = crystals[i // 50 % N_CRYSTALS]
            strain, rattle = rng.normal(0, 0.005), rng.normal(0, 0.03, (N_ATOMS, 3))
            cell = np.diag([6.0, 6.0, 7.0]) * (1 + strain)
            volume = np.linalg.det(cell)
            energy = 0.5 * SPRING * np.sum(rattle**2) + 4.5 * BULK_MODULUS * 252 * strain**2
            pressure = 3 * BULK_MODULUS * strain * 252 / volume
            stress = SPRING * rattle.T @ rattle / volume + pressure * np.eye(3)
            energy -= 100.0 * N_ATOMS
            file.write(f"{N_ATOMS}\n")
            file.write(COMMENT % (*np.diag(cell), energy, *stress.ravel()))
            table = np.hstack([sites @ cell + rattle, -SPRING * rattle]).tolist()
            rows = [x for s, row in zip(species, table, strict=True) for x in (s, *row)]
            file.write((ROW * N_ATOMS) % tuple(rows))


def import_stream(folder: Path) -> None:
    """Run the data stage and print what it took; the subprocess."""
    from pipeline_core.builtin import load_registry
    from pipeline_core.project import Project

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

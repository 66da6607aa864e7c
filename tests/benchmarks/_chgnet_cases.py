"""CHGNet here and in the package chgnet, on the same batches of structures; for `chgnet_*.py`.

Both start from finished neighbour graphs, and both put them into a batch within the time measured.
The loss is that of the published training: Huber, delta 0.1, of energy an atom, forces, stress and
magnetic moments with weights 1, 1, 0.1, 0.1. Times alternate in one process. Peak memory is
measured in a process of its own for each side, as the growth of its resident memory over what model
and graphs take (Linux; on a GPU: of allocated memory).
"""

import argparse
import contextlib
import io
import json
import platform
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import ase
import ase.io
import numpy as np
import torch
from _data import find_mptrj
from torch import Tensor
from torch.nn.functional import huber_loss

from pipeline_chgnet.model import CHGNet
from pipeline_core.batch import collate, to_device
from pipeline_core.config.sections import GraphOptions
from pipeline_core.graphs import sample_graph

GPA = 160.21766208  # in eV/Å³, the unit of the peer's stress
WEIGHTS = (1.0, 1.0, 0.1, 0.1)


class Ours:
    """The plugin."""

    def __init__(self, structures: Sequence[ase.Atoms], device: torch.device) -> None:
        self.model, self.device = CHGNet.published(), device
        references = self.model.atom_energies
        self.model.to(device).atom_energies = references.to(device)
        options = GraphOptions(cutoff=6.0, angle_cutoff=3.0)
        self.samples = []
        for atoms in structures:
            sample = {
                "atomic_numbers": atoms.numbers,
                "positions": atoms.positions,
                "cell": np.array(atoms.cell),
                "pbc": np.array(atoms.pbc),
            }
            self.samples.append(sample | sample_graph(sample, options))

    def predict(self) -> tuple[Tensor, ...]:
        """Energy an atom, forces, stress in GPa, moments."""
        batch = to_device(collate(self.samples, torch.float32), self.device)
        outputs = self.model(batch)
        energy = outputs["energy"] / batch["atom_offsets"].diff()
        results = energy, outputs["forces"], GPA * outputs["stress"], outputs["magmoms"]
        return tuple(result.float() for result in results)

    def infer(self) -> None:
        """Predict without recording a graph for training."""
        with torch.no_grad():
            self.predict()


class Peer:
    """The package chgnet."""

    def __init__(self, structures: Sequence[ase.Atoms], device: torch.device) -> None:
        from chgnet.model import CHGNet
        from pymatgen.io.ase import AseAtomsAdaptor

        with contextlib.redirect_stdout(io.StringIO()):
            self.model = CHGNet.load(use_device=str(device), verbose=False)
        convert = self.model.graph_converter
        self.graphs = [
            convert(AseAtomsAdaptor.get_structure(atoms)).to(str(device)) for atoms in structures
        ]

    def predict(self) -> tuple[Tensor, ...]:
        """Energy an atom, forces, stress in GPa, moments."""
        found = self.model(self.graphs, task="efsm")
        stress = torch.stack(list(found["s"]))
        return found["e"], torch.cat(found["f"]), stress, torch.cat(found["m"])

    def infer(self) -> None:
        """Predict; the package records the graph for training whatever it is asked for."""
        self.predict()


SIDES = {"ours": Ours, "peer": Peer}


def training_step(side: Ours | Peer, labels: Sequence[Tensor]) -> Callable[[], None]:
    """A step: batch, forward with derivatives, loss, backward, Adam."""
    side.model.train()
    optimizer = torch.optim.Adam(side.model.parameters(), lr=1e-6)

    def step() -> None:
        losses = (
            weight * huber_loss(value, label, delta=0.1)
            for weight, value, label in zip(WEIGHTS, side.predict(), labels, strict=True)
        )
        optimizer.zero_grad()
        sum(losses).backward()
        optimizer.step()

    return step


def read(path: Path, n: int) -> list[ase.Atoms]:
    """The same n structures for every call, drawn at random."""
    frames = ase.io.read(path, ":")
    return [frames[i] for i in np.random.default_rng(0).permutation(len(frames))[:n]]


def labels_of(structures: Sequence[ase.Atoms], device: torch.device) -> list[Tensor]:
    """Labels of the file; it has no moments, which are taken as zero."""
    energy = [atoms.get_potential_energy() / len(atoms) for atoms in structures]
    forces = np.concatenate([atoms.get_forces() for atoms in structures])
    stress = GPA * np.stack([atoms.get_stress(voigt=False) for atoms in structures])
    arrays = np.array(energy), forces, stress, np.zeros(len(forces))
    return [torch.tensor(array, dtype=torch.float32, device=device) for array in arrays]


def call_of(kind: str, who: str, structures: Sequence[ase.Atoms], device: str) -> Callable:
    """What is measured: a training step or an inference of one side."""
    place = torch.device(device)
    side = SIDES[who](structures, place)
    return side.infer if kind == "infer" else training_step(side, labels_of(structures, place))


def seconds(call: Callable, device: str) -> float:
    """Wall time of one call, the device's queue emptied before and after."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    wait()
    begin = time.perf_counter()
    call()
    wait()
    return time.perf_counter() - begin


def peak_bytes(call: Callable, device: str) -> int:
    """Growth of memory over two calls; run in a process of its own."""
    if device == "cuda":
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        call(), call()
        return torch.cuda.max_memory_allocated() - before
    before = _resident("VmRSS")
    call(), call()
    return _resident("VmHWM") - before


def _resident(which: str) -> int:
    """Resident memory now (VmRSS) or at most (VmHWM; `ru_maxrss` would count the parent's)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(which))


def operators(call: Callable) -> int:
    """Operator calls that reach torch's dispatcher, and passes over messages."""
    passes = ("_GatedMessages", "_FirstDerivative", "_FirstDerivativeBackward")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        call()
    names = [event.name for event in profile.events()]
    return sum(
        name.startswith(("aten::", "pipeline_kernels::")) or name in passes for name in names
    )


def matrix_flops(samples: Sequence[dict]) -> float:
    """Operations of the matrix products of one forward pass over edges, angles and bonds."""
    n_edges = sum(len(sample["edge_index"]) for sample in samples)
    n_angles = sum(len(sample["angle_edges"]) for sample in samples)
    hidden, first = 2 * 2 * 64 * 64, 2 * 64 * 128
    atom_convolutions = 4 * n_edges * (hidden + first / 2)  # an edge is half a bond
    return atom_convolutions + n_angles * (3 * hidden + 5 * first)


def matrix_rate(device: str) -> float:
    """Operations per second of a large product of matrices in single precision."""
    a = torch.rand(2048, 2048, device=device)
    return 2 * 2048**3 / min(seconds(lambda: a @ a, device) for _ in range(5))


def hardware(device: str) -> str:
    """Name of the processor or GPU that did the work."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def measure(kind: str, n: int, args: argparse.Namespace) -> dict:
    """Times, memory and operator calls of both sides for a batch of n structures."""
    structures = read(args.data, n)
    calls = {who: call_of(kind, who, structures, args.device) for who in SIDES}
    for call in calls.values():
        call()  # compiles, and fills caches
    rounds = [[seconds(calls[who], args.device) for who in SIDES] for _ in range(args.repeats)]
    ours_s, peer_s = (statistics.median(column) for column in zip(*rounds, strict=True))
    ours_ops, peer_ops = (operators(calls[who]) for who in SIDES)
    memory = {}
    for who in SIDES:
        command = [sys.executable, sys.argv[0], "--memory-of", who, "--batch-sizes", str(n)]
        command += ["--data", str(args.data), "--device", args.device]
        command += ["--threads", str(args.threads)]
        shown = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        memory[who] = int(shown.splitlines()[-1])
    samples = Ours(structures, torch.device("cpu")).samples
    needed = (6 if kind == "step" else 2) * matrix_flops(
        samples
    )  # each derivative triples the work
    return {
        "batch_size": n,
        "atoms": sum(map(len, structures)),
        "ours_s": ours_s,
        "peer_s": peer_s,
        "ratio": peer_s / ours_s,
        "ours_gb": memory["ours"] / 1e9,
        "peer_gb": memory["peer"] / 1e9,
        "memory_ratio": memory["peer"] / memory["ours"],
        "ours_operators": ours_ops,
        "peer_operators": peer_ops,
        "operator_ratio": peer_ops / ours_ops,
        "roofline_share": needed / matrix_rate(args.device) / ours_s,
    }


def arguments(description: str | None) -> argparse.Namespace:
    """Read the command line of a benchmark."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", type=Path, help="extended XYZ of MPtrj, if not the usual one")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[8, 16, 32])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--memory-of", choices=[*SIDES], help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.data = args.data or find_mptrj()
    if not args.data.exists():
        parser.error(f"{args.data}: no such file; give the path of MPtrj structures with --data")
    torch.set_num_threads(args.threads)
    return args


def run(name: str, kind: str, description: str | None) -> None:
    """Measure all batch sizes and print one JSON object as the last line."""
    warnings.simplefilter("ignore")  # those of the peer
    args = arguments(description)
    if args.memory_of:
        structures = read(args.data, args.batch_sizes[0])
        print(peak_bytes(call_of(kind, args.memory_of, structures, args.device), args.device))
        return
    import chgnet
    import numba

    rows = [measure(kind, n, args) for n in args.batch_sizes]
    for row in rows:
        print({key: float(f"{value:.4g}") for key, value in row.items()})
    report = {key: [row[key] for row in rows] for key in rows[0]}
    report = {"name": name, "peer": f"chgnet {chgnet.__version__}"} | report
    versions = {"torch": torch.__version__, "numba": numba.__version__}
    report |= {"threads": args.threads, "hardware": hardware(args.device), "versions": versions}
    print(json.dumps(report))

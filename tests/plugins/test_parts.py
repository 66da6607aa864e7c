"""Potentials over ranks: energy, forces, stress, moments and gradients of parameters.

Oracle: the same model on the whole structure. Ranks are threads of this process, with messages
through queues; below they are processes, started by mpiexec and by torchrun.
"""

import sys
from itertools import cycle, product
from pathlib import Path

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import bulk, fcc111, molecule

from pipeline_atoms.config.graph import GraphOptions
from pipeline_atoms.domains.transports import choose_transport
from pipeline_chgnet.model.network import CHGNet
from pipeline_chgnet.options import CHGNetGraphOptions, CHGNetOptions
from pipeline_core.distributed.ranks import connect_ranks
from pipeline_mace.model.network import MACE, Facts
from pipeline_mace.options import MACEOptions
from plugins.parts import (
    join_parts,
    predict_by_parts,
    predict_part,
    predict_whole,
)
from processes import finish
from third_party import MessagePassing, Options
from tiers import exhaustive, run_first

CUTOFF, ANGLE_CUTOFF = 3.6, 2.9
ELEMENTS = ("H", "C", "O", "Ni", "Cu")


def make_amorphous():
    """Atoms at random in a skewed cell, none nearer than 1.6 Å to another."""
    rng, cell = np.random.default_rng(3), np.array([[7.0, 0, 0], [1.0, 6.5, 0], [-0.5, 1.0, 7.5]])
    atoms = Atoms(cell=cell, pbc=True)
    while len(atoms) < 24:
        atoms += Atoms(rng.choice(["Cu", "O"]), [rng.random(3) @ cell])
        others = np.arange(len(atoms) - 1)
        if len(others) and atoms.get_distances(-1, others, mic=True).min() < 1.6:
            del atoms[-1]
    return atoms


def rattle(atoms, size=0.1):
    atoms.rattle(size, seed=1)
    return atoms


STRUCTURES = {
    "crystal": lambda: rattle(bulk("Cu", cubic=True).repeat((3, 2, 2))),
    "slab": lambda: rattle(fcc111("Ni", (2, 3, 3), vacuum=8.0)),
    "amorphous": make_amorphous,
    "small": lambda: rattle(bulk("NiO", "rocksalt", a=4.2, cubic=True), 0.05),
    "molecule": lambda: molecule("CH3CH2OH"),
}


def make_mace(**options):
    sizes = {"channels": 4, "max_l": 1, "lmax": 2, "correlation": 2, "radial_functions": 4}
    sizes |= {"radial_features": [8]}
    return MACE(MACEOptions(**sizes | options), Facts(ELEMENTS, 8.0), GraphOptions(cutoff=CUTOFF))


def make_chgnet(**options):
    sizes = {f"{kind}_features": 6 for kind in ("atom", "bond", "angle", "hidden")}
    sizes |= {"readout_features": [6], "radial_functions": 5, "angular_functions": 5}
    graph = CHGNetGraphOptions(cutoff=CUTOFF, angle_cutoff=ANGLE_CUTOFF)
    return CHGNet(CHGNetOptions(**sizes | options), graph)


MODELS = {
    "MACE": make_mace,
    "MACE of three layers": lambda: make_mace(layers=3, kernels="reference"),
    "MACE as published": lambda: make_mace(
        normalization="density", distance_transform="agnesi", pair_repulsion=True, heads=["a", "b"]
    ),
    "CHGNet": make_chgnet,
    "CHGNet in parallel": lambda: make_chgnet(updates="parallel", kernels="reference"),
    "CHGNet with heads": lambda: make_chgnet(heads="pair"),
    "CHGNet with the paper's heads": lambda: make_chgnet(heads="paper", updates="parallel"),
    "a stranger's": lambda: MessagePassing(Options(), CUTOFF),
    "a stranger's with heads": lambda: MessagePassing(Options(direct=True), CUTOFF),
}


def make_model(name):
    torch.manual_seed(0)
    module = MODELS[name]().double()
    with torch.no_grad():
        module.atom_energies[:] = torch.arange(len(module.atom_energies)) / 7
    graph = CHGNetGraphOptions if "CHGNet" in name else GraphOptions
    return module, graph(cutoff=CUTOFF, **{"angle_cutoff": ANGLE_CUTOFF} if "CHG" in name else {})


def cut(atoms, n_ranks, how):
    """Return owners: slices along x, or whatever comes."""
    if how == "at random":
        owners = np.random.default_rng(n_ranks).integers(n_ranks, size=len(atoms))
        owners[:n_ranks] = np.arange(n_ranks)
        return owners
    order = np.argsort(np.argsort(atoms.positions[:, 0], kind="stable"), kind="stable")
    return order * n_ranks // len(atoms)


PAIRS = list(zip(MODELS, cycle(STRUCTURES), strict=False))
"""Each model with one of the structures."""
OURS = [name for name in MODELS if "stranger" not in name]


@pytest.mark.slow
@pytest.mark.parametrize("case", run_first(product(MODELS, STRUCTURES), *PAIRS))
def test_parts_make_up_the_whole(case):
    model, structure = case
    module, graph = make_model(model)
    atoms = STRUCTURES[structure]()
    whole = predict_whole(module, atoms, graph)
    assert float(whole.outputs["forces"].abs().max()) > 1e-3
    for n_ranks, how in [(1, "slices"), (2, "slices"), (3, "at random"), (4, "slices")]:
        parts = predict_by_parts(module, atoms, graph, cut(atoms, n_ranks, how))
        compare(parts, whole)


@pytest.mark.slow
@pytest.mark.parametrize("case", run_first(product(OURS, STRUCTURES), *PAIRS))
def test_parts_of_a_compiled_model_make_up_the_whole(case):
    model, structure = case
    module, graph = make_model(model)
    atoms = STRUCTURES[structure]()
    whole = predict_whole(module, atoms, graph).outputs
    compiled = module.requires_grad_(False).compile_inference()
    for n_ranks, how in [(1, "slices"), (2, "slices"), (3, "at random"), (4, "slices")]:
        parts = predict_by_parts(compiled, atoms, graph, cut(atoms, n_ranks, how)).outputs
        assert parts.keys() == whole.keys()
        for name, rows in whole.items():
            torch.testing.assert_close(parts[name], rows, rtol=0, atol=1e-7)


def work_as_rank(folder):
    """Predict parts of all structures by all models as one of several processes."""
    with connect_ranks("cpu", folder) as ranks:
        transport = choose_transport(ranks)
        for model, structure in product(MODELS, STRUCTURES):
            module, graph = make_model(model)
            atoms = STRUCTURES[structure]()
            owners = cut(atoms, ranks.size, "slices")
            part = predict_part(module, atoms, graph, owners, transport)
            if parts := ranks.gather_on_zero(part):
                compare(join_parts(parts, len(atoms)), predict_whole(module, atoms, graph))
        if ranks.is_rank_zero:
            print(f"{len(MODELS) * len(STRUCTURES)} cases on {ranks.size} ranks")


@exhaustive
@pytest.mark.mpi
@pytest.mark.parametrize(("launcher", "n_ranks"), [("mpiexec", 3), ("torchrun", 4)])
def test_parts_of_processes_make_up_the_whole(launcher, n_ranks, tmp_path):
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={n_ranks}"]
    arguments = [*(torchrun if launcher == "torchrun" else []), __file__, tmp_path]
    text = finish(arguments, n_ranks if launcher == "mpiexec" else None)
    assert f"{len(MODELS) * len(STRUCTURES)} cases on {n_ranks} ranks" in text


def compare(parts, whole):
    """Outputs and gradients are equal to 1e-10, of numbers above one relative to the largest."""
    for ours, theirs in ((parts.outputs, whole.outputs), (parts.gradients, whole.gradients)):
        assert ours.keys() == theirs.keys()
        for name, expected in theirs.items():
            largest = max(1.0, float(expected.abs().max()))
            assert float((ours[name] - expected).abs().max()) < 1e-10 * largest, name


if __name__ == "__main__":
    work_as_rank(Path(sys.argv[1]))

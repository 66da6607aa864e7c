"""Networks of MACE with the same random weights on both sides."""

from argparse import Namespace
from collections.abc import Sequence
from typing import Any

import ase
import torch
from ase.data import chemical_symbols

from harness.command import find_peer
from harness.graphs import build_samples
from harness.sides import Place, read_side_versions
from pipeline_core.batch import collate
from pipeline_mace.conversion.weights import list_rows
from pipeline_mace.model.network import MACE
from pipeline_mace.options import MACEOptions
from subjects.mace.ours import make_network
from subjects.mace.training import OURS

ABSENT = {84, 85, 86, 87, 88}  # Po to Ra; MPtrj has the other elements up to Pu
ELEMENTS = [chemical_symbols[z] for z in range(1, 95) if z not in ABSENT]
CUTOFF, LMAX = 4.5, 3
_PACKAGES = [
    "mace-torch", "e3nn", "cuequivariance", "cuequivariance-ops-torch-cu13", "torch", "numpy", "ase"
]  # fmt: skip


def draw_network(
    structures: Sequence[ase.Atoms], elements: Sequence[str], *, scaled: bool = False, **sizes: int
) -> tuple[dict[str, Any], dict[str, Any], MACE]:
    """Draw the weights of a network.

    Args:
        structures: Whose average number of neighbours it is given.
        elements: That it knows.
        scaled: Whether to scale it so that the root mean square of forces is 1 eV/Å.
        **sizes: Of the network.

    Returns:
        Weights as arrays for both sides; options of the network, with the number of edges; our
        network.
    """
    model = MACEOptions(lmax=LMAX, **sizes)
    samples = build_samples(structures, cutoff=CUTOFF)
    n_edges = sum(len(sample["edge_index"]) for sample in samples)
    options = {"elements": [*elements], "model": model.model_dump(), "edges": n_edges}
    options["cutoff"] = CUTOFF
    options["average_neighbours"] = n_edges / sum(map(len, structures))
    torch.manual_seed(0)
    module = make_network(options)
    if scaled:
        module.predicts = ("energy", "forces")
        with torch.no_grad():
            forces = module(collate(samples, torch.float32))["forces"]
        module.scale.fill_(float(forces.square().mean()) ** -0.5)
    weights = {row.name: row.join().numpy() for row in list_rows(module)}
    weights |= {OURS + name: x.numpy() for name, x in module.state_dict().items()}
    return weights, options, module


def list_places(args: Namespace) -> dict[str, Place]:
    """Return ours, and mace-torch if it is there."""
    places, python = {"ours": Place("subjects.mace.ours")}, find_peer("mace", args.peers_python)
    return places | ({"peer": Place("subjects.mace.peer", {}, python)} if python else {})


def read_mace_versions(places: dict[str, Place]) -> dict[str, Any]:
    """Return the versions of what each side imports."""
    return read_side_versions(places, _PACKAGES)

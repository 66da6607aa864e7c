"""Inference of mace-torch, for `_worker.py` in the peer's environment."""

from typing import Any

import torch
from _infer_subjects import MovingAtoms
from _mace_peer import load, make_network
from _mace_subjects import Arrays, read_structures
from ase.data import atomic_numbers
from e3nn.util import jit
from mace import data, modules
from mace.tools import AtomicNumberTable, torch_geometric
from torch import Tensor


class Network(MovingAtoms):
    """`ScaleShiftMACE` as `MACECalculator` calls it: weights are fixed, and stress is asked for.

    With the option `script` it is TorchScript, as mace-torch makes it for LAMMPS.
    """

    def __init__(self, arrays: Arrays, options: dict[str, Any]) -> None:
        dtype = getattr(torch, options["dtype"])
        super().__init__(arrays, dtype)
        module = load_network(arrays, options)
        self.module = jit.compile(module) if options["script"] else module
        numbers, cutoff = list_numbers(options), options["model"]["cutoff"]
        (atoms,) = read_structures(arrays)
        graph = data.AtomicData.from_config(
            data.config_from_atoms(atoms), z_table=AtomicNumberTable(numbers), cutoff=cutoff
        )
        self.batch = torch_geometric.batch.Batch.from_data_list([graph]).to_dict()

    def predict(self, positions: Tensor) -> dict[str, Tensor]:
        outputs = self.module({**self.batch, "positions": positions}, compute_stress=True)
        return {name: outputs[name] for name in ("energy", "forces", "stress")}


def list_numbers(options: dict[str, Any]) -> list[int]:
    """Return the atomic numbers that the network knows."""
    return [atomic_numbers[symbol] for symbol in options["elements"]]


def load_network(arrays: Arrays, options: dict[str, Any]) -> modules.ScaleShiftMACE:
    """Return the network, made in its own type, so that couplings have the full precision."""
    torch.set_default_dtype(getattr(torch, options["dtype"]))
    model = make_network(list_numbers(options), options["average_neighbours"], **options["model"])
    load(model, arrays)
    return model.requires_grad_(False).eval()

"""Networks of mace-torch with the options of published ones, small and with random weights.

    python foundations.py make FOLDER       # NAME.model of each
    python foundations.py predict FOLDER    # NAME.npz of each: what mace-torch predicts
    python foundations.py record            # foundations.npz.xz: states and predictions

Needs the environment of the peers (`make peers`).
"""

import os
import sys
from pathlib import Path
from typing import Any

os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"  # e3nn 0.4.4 loads a file of its own

import numpy as np
import torch
from mace import data, modules
from mace.tools import AtomicNumberTable, torch_geometric
from make_peer import (
    CUTOFF,
    DENSE,
    DENSE_RESIDUAL,
    ENERGIES,
    PLAIN,
    RESIDUAL,
    make_network,
    make_structures,
    save_record,
)

NEW: dict[str, Any] = {
    "interaction_cls": modules.interaction_classes[DENSE_RESIDUAL],
    "distance_transform": "Agnesi",
    "pair_repulsion": True,
    "num_bessel": 10,
}
"""What the second generation of networks for materials has."""
TWO_HEADS = {
    "heads": ["pt_head", "Default"],
    "atomic_energies": np.array([[-1.0, -2.0, -3.0], [-4.5, -5.5, -6.5]]),
    "atomic_inter_scale": [0.7, 0.9],
    "atomic_inter_shift": [0.1, -0.2],
}
NETWORKS: dict[str, tuple[tuple[int, int, str], dict[str, Any]]] = {
    "mp": ((1, 3, RESIDUAL), {"num_bessel": 10, "num_polynomial_cutoff": 5}),
    "off": ((2, 2, PLAIN), {"num_bessel": 8, "heads": ["Default"], "use_reduced_cg": True}),
    "density": ((0, 3, DENSE), NEW | {"use_reduced_cg": True}),
    "agnesi": ((1, 2, RESIDUAL), {"distance_transform": "Agnesi", "pair_repulsion": True}),
    "two_heads": ((1, 3, DENSE), NEW | TWO_HEADS | {"use_reduced_cg": True}),
}
"""Degree, correlation and first interaction, and what else differs from `make_network`."""


def build(name: str) -> torch.nn.Module:
    """Return one of `NETWORKS`."""
    arguments, changes = NETWORKS[name]
    return make_network(*arguments, **changes)


def predict(model: torch.nn.Module) -> dict[str, np.ndarray]:
    """Return energies, forces and stresses of all heads of a network."""
    dtype = model.r_max.dtype
    table, found = AtomicNumberTable(list(ENERGIES)), {}
    torch.set_default_dtype(dtype)
    for head in model.heads:
        configurations = []
        for atoms in make_structures():
            one = data.config_from_atoms(atoms, head_name=head)
            made = data.AtomicData.from_config(one, z_table=table, cutoff=CUTOFF, heads=model.heads)
            configurations.append(made)
        loader = torch_geometric.dataloader.DataLoader(configurations, batch_size=2, shuffle=False)
        outputs = model(next(iter(loader)).to_dict(), compute_stress=True, training=False)
        for key in ("energy", "forces", "stress"):
            found[f"{head}/{key}"] = outputs[key].detach().numpy()
    return found


def main(mode: str, folder: str = ".") -> None:
    """Do what the head of the file says."""
    torch.set_default_dtype(torch.float64)
    if mode == "make":
        for name in NETWORKS:
            torch.save(build(name).float(), Path(folder, f"{name}.model"))
    elif mode == "predict":
        for path in sorted(Path(folder).glob("*.model")):
            np.savez(path.with_suffix(".npz"), **predict(torch.load(path, weights_only=False)))
    else:
        record = {}
        for number, atoms in enumerate(make_structures()):
            record |= {f"{number}/numbers": atoms.numbers, f"{number}/positions": atoms.positions}
            record[f"{number}/cell"] = atoms.cell[:]
        for name in NETWORKS:
            model = build(name)
            state = {k: x.numpy() for k, x in model.state_dict().items() if "_w3j_" not in k}
            record |= {f"{name}/state/{k}": x for k, x in state.items() if x.size}
            record |= {f"{name}/{k}": x for k, x in predict(model).items()}
        save_record("foundations.npz.xz", record)


if __name__ == "__main__":
    main(*sys.argv[1:])

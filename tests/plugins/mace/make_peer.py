"""Writes peer.npz: small networks of mace-torch with random weights, and what they predict.

    pip install mace-torch==0.3.16 && python make_peer.py

Needs an environment of its own, since mace-torch pins an old e3nn. With e3nn 0.4.4 and torch 2.6 or
newer set TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1.
"""

from pathlib import Path

import numpy as np
import torch
from ase import Atoms
from ase.build import bulk
from e3nn import o3
from mace import data, modules
from mace.tools import AtomicNumberTable, torch_geometric

CHANNELS, CUTOFF = 4, 4.0
ENERGIES = {8: -1.0, 13: -2.0, 29: -3.0}  # eV, of the free atoms
CASES = [
    (max_l, correlation, "RealAgnosticResidualInteractionBlock")
    for max_l in (0, 1, 2)
    for correlation in (1, 2, 3)
] + [(1, 2, "RealAgnosticInteractionBlock")]


def structures() -> list[Atoms]:
    rng = np.random.default_rng(0)
    found = []
    for symbols, a in (["Cu", "Al", "Cu", "O"], 3.7), (["Al", "Al", "O", "Al"], 3.9):
        atoms = bulk("Cu", "fcc", a=a, cubic=True)
        atoms.symbols = symbols
        strain = np.eye(3) + rng.uniform(-0.05, 0.05, (3, 3))
        atoms.set_cell(atoms.cell[:] @ strain, scale_atoms=True)
        atoms.positions += rng.normal(0, 0.1, atoms.positions.shape)
        found.append(atoms)
    return found


def network(max_l: int, correlation: int, first: str) -> torch.nn.Module:
    torch.manual_seed(10 * max_l + correlation)
    hidden = "+".join(f"{CHANNELS}x{degree}{'eo'[degree % 2]}" for degree in range(max_l + 1))
    return modules.ScaleShiftMACE(
        r_max=CUTOFF,
        num_bessel=5,
        num_polynomial_cutoff=5,
        max_ell=3 if max_l else 2,
        interaction_cls=modules.interaction_classes["RealAgnosticResidualInteractionBlock"],
        interaction_cls_first=modules.interaction_classes[first],
        num_interactions=2,
        num_elements=len(ENERGIES),
        hidden_irreps=o3.Irreps(hidden),
        MLP_irreps=o3.Irreps("6x0e"),
        atomic_energies=np.array(list(ENERGIES.values())),
        avg_num_neighbors=17.0,
        atomic_numbers=list(ENERGIES),
        correlation=correlation,
        gate=torch.nn.functional.silu,
        radial_MLP=[8, 8],
        radial_type="bessel",
        atomic_inter_scale=0.7,
        atomic_inter_shift=0.1,
    )


def main() -> None:
    torch.set_default_dtype(torch.float64)
    table = AtomicNumberTable(list(ENERGIES))
    configurations = [
        data.AtomicData.from_config(data.config_from_atoms(a), z_table=table, cutoff=CUTOFF)
        for a in structures()
    ]
    loader = torch_geometric.dataloader.DataLoader(configurations, batch_size=2, shuffle=False)
    batch = next(iter(loader)).to_dict()
    record = {}
    for number, atoms in enumerate(structures()):
        record |= {f"{number}/numbers": atoms.numbers, f"{number}/positions": atoms.positions}
        record[f"{number}/cell"] = atoms.cell[:]
    left_out = ("_mask", "zeroed")  # no weights
    kept = ("linear", "skip_tp.weight", "conv_tp_weights", ".weights", "scale_shift")
    for case in CASES:
        model, name = network(*case), "-".join(map(str, case))
        for key, value in model.state_dict().items():
            if value.numel() and any(part in key for part in kept) and not key.endswith(left_out):
                record[f"{name}/state/{key}"] = value.numpy()
        found = model(batch, compute_stress=True, training=False)
        for key in ("energy", "forces", "stress"):
            record[f"{name}/{key}"] = found[key].detach().numpy()
    np.savez_compressed(Path(__file__).with_name("peer.npz"), **record)


if __name__ == "__main__":
    main()

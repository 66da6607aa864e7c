"""Writes peer.npz.xz: small networks of mace-torch with random weights, and what they predict.

    pip install mace-torch==0.3.16 cuequivariance==0.13.0 cuequivariance-torch==0.13.0
    python make_peer.py

Needs an environment of its own, since mace-torch pins an old e3nn. With e3nn 0.4.4 and torch 2.6 or
newer set TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1.
"""

import io
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ase import Atoms
from ase.build import bulk
from e3nn import o3
from mace import data, modules
from mace.tools import AtomicNumberTable, torch_geometric

CHANNELS, CUTOFF = 4, 4.0
ENERGIES = {8: -1.0, 13: -2.0, 29: -3.0}  # eV, of the free atoms
PLAIN, RESIDUAL = "RealAgnosticInteractionBlock", "RealAgnosticResidualInteractionBlock"
CASES = [(max_l, correlation, RESIDUAL) for max_l in (0, 1, 2) for correlation in (1, 2, 3)]
CASES += [(1, 2, PLAIN)]
REDUCED = [(2, 1, RESIDUAL), (2, 2, RESIDUAL), (1, 3, RESIDUAL)]

DENSE = "RealAgnosticDensityInteractionBlock"
DENSE_RESIDUAL = "RealAgnosticDensityResidualInteractionBlock"
OTHERS: dict[str, dict[str, Any]] = {
    "agnesi": {"distance_transform": "Agnesi"},
    "soft": {"distance_transform": "Soft"},
    "zbl": {"pair_repulsion": True},
    "density": {
        "interaction_cls_first": modules.interaction_classes[DENSE],
        "interaction_cls": modules.interaction_classes[DENSE_RESIDUAL],
    },
    "first_density": {"interaction_cls_first": modules.interaction_classes[DENSE]},
    "gaussian": {"radial_type": "gaussian"},
    "chebyshev": {"radial_type": "chebyshev"},
    "readout_bias": {"readout_cls": modules.readout_classes["NonLinearBiasReadoutBlock"]},
    "envelope": {"num_polynomial_cutoff": 6},
    "bessel": {},  # and other frequencies
}
"""Networks that ours is not, by what they do in place of what `network` does by default."""


def make_structures() -> list[Atoms]:
    rng = np.random.default_rng(0)
    made = []
    for symbols, a in (["Cu", "Al", "Cu", "O"], 3.7), (["Al", "Al", "O", "Al"], 3.9):
        atoms = bulk("Cu", "fcc", a=a, cubic=True)
        atoms.symbols = symbols
        strain = np.eye(3) + rng.uniform(-0.05, 0.05, (3, 3))
        atoms.set_cell(atoms.cell[:] @ strain, scale_atoms=True)
        atoms.positions += rng.normal(0, 0.1, atoms.positions.shape)
        made.append(atoms)
    return made


def make_network(max_l: int, correlation: int, first: str, **changes: Any) -> torch.nn.Module:
    torch.manual_seed(10 * max_l + correlation)
    hidden = "+".join(f"{CHANNELS}x{degree}{'eo'[degree % 2]}" for degree in range(max_l + 1))
    options = {
        "r_max": CUTOFF,
        "num_bessel": 5,
        "num_polynomial_cutoff": 5,
        "max_ell": 3 if max_l else 2,
        "interaction_cls": modules.interaction_classes[RESIDUAL],
        "interaction_cls_first": modules.interaction_classes[first],
        "num_interactions": 2,
        "num_elements": len(ENERGIES),
        "hidden_irreps": o3.Irreps(hidden),
        "MLP_irreps": o3.Irreps("6x0e"),
        "atomic_energies": np.array(list(ENERGIES.values())),
        "avg_num_neighbors": 17.0,
        "atomic_numbers": list(ENERGIES),
        "correlation": correlation,
        "gate": torch.nn.functional.silu,
        "radial_MLP": [8, 8],
        "radial_type": "bessel",
        "atomic_inter_scale": 0.7,
        "atomic_inter_shift": 0.1,
        "use_reduced_cg": False,
    }
    return modules.ScaleShiftMACE(**(options | changes))


def state_of(model: torch.nn.Module, name: str) -> dict[str, np.ndarray]:
    """Return the whole state, but of all networks but the first without what is no weight."""
    state = {f"{name}/state/{key}": value.numpy() for key, value in model.state_dict().items()}
    if name in ("", "-".join(map(str, CASES[0]))):
        return state
    left_out = ("output_mask", "_zeroed", "_w3j_")
    return {k: x for k, x in state.items() if x.size and not any(part in k for part in left_out)}


def build_other(name: str) -> torch.nn.Module:
    """Return one of `OTHERS`."""
    model = make_network(0, 1, RESIDUAL, **OTHERS[name])
    if name == "bessel":
        model.radial_embedding.bessel_fn.bessel_weights *= 1.02
    return model


def is_same(new: np.ndarray, old: np.ndarray | None) -> bool:
    return old is not None and np.array_equal(new, old)


def save_record(name: str, record: dict[str, np.ndarray]) -> None:
    """Write arrays beside this file; equal ones, of which there are many, take no room twice."""
    content = io.BytesIO()
    np.savez(content, **record)
    Path(__file__).with_name(name).write_bytes(lzma.compress(content.getvalue(), preset=9))


def main() -> None:
    torch.set_default_dtype(torch.float64)
    table = AtomicNumberTable(list(ENERGIES))
    configurations = [
        data.AtomicData.from_config(data.config_from_atoms(a), z_table=table, cutoff=CUTOFF)
        for a in make_structures()
    ]
    loader = torch_geometric.dataloader.DataLoader(configurations, batch_size=2, shuffle=False)
    batch = next(iter(loader)).to_dict()
    record = {}
    for number, atoms in enumerate(make_structures()):
        record |= {f"{number}/numbers": atoms.numbers, f"{number}/positions": atoms.positions}
        record[f"{number}/cell"] = atoms.cell[:]
    cases = [(case, "", {}) for case in CASES]
    cases += [(case, "-reduced", {"use_reduced_cg": True}) for case in REDUCED]
    for case, suffix, changes in cases:
        model, name = make_network(*case, **changes), "-".join(map(str, case)) + suffix
        record |= state_of(model, name)
        predicted = model(batch, compute_stress=True, training=False)
        for key in ("energy", "forces", "stress"):
            record[f"{name}/{key}"] = predicted[key].detach().numpy()
    base = state_of(make_network(*CASES[0]), "")
    for name in OTHERS:
        state = state_of(build_other(name), "")
        record |= {name + key: x for key, x in state.items() if not is_same(x, base.get(key))}
        record[f"{name}/without"] = np.array([k for k in base if k not in state], dtype=str)
    save_record("peer.npz.xz", record)


if __name__ == "__main__":
    main()

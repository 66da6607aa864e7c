"""Every installed plugin runs the conformance suite; a new one needs no line here.

The oracles are symmetry, finite differences, and runs that were not interrupted.
"""

from __future__ import annotations

from pipeline_core.registry import Registry
from pipeline_core.testing import PluginConformance, PotentialConformance, RunConformance

SMALL = {
    "chgnet": {
        "model": {
            "atom_features": 8, "bond_features": 8, "angle_features": 8, "hidden_features": 8,
            "readout_features": [8], "radial_functions": 7, "angular_functions": 7, "cutoff": 4.0,
        },
        "graph": {"cutoff": 4.0, "angle_cutoff": 3.0},
    },
}  # fmt: skip
"""Sections that keep the tests fast; a plugin without an entry runs with its defaults."""


def suite(name: str, predicts: tuple[str, ...]) -> dict[str, type]:
    """Return the test classes of a model."""
    bases: list[type] = [PluginConformance, RunConformance]
    if "energy" in predicts:
        bases.append(PotentialConformance)
    return {
        f"Test_{name}_{base.__name__}": type(
            f"Test_{name}_{base.__name__}", (base,), {"plugin": name, **SMALL.get(name, {})}
        )
        for base in bases
    }


for _info in Registry().models():
    globals().update(suite(_info.name, _info.predicts))

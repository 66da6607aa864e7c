"""Every installed plugin runs the conformance suite; a new one needs no line here.

The oracles are symmetry, finite differences, and runs that were not interrupted.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from pipeline_atoms.testing import PotentialConformance
from pipeline_core.model_info import ModelInfo
from pipeline_core.project.project import Project
from pipeline_core.project.run import Run
from pipeline_core.registry import Registry
from pipeline_core.stages.builtin import load_registry
from pipeline_core.testing import RunConformance
from pipeline_core.testing.check import list_suites
from tiers import exhaustive

MATRICES = Path(__file__).parents[2] / "workflows/datasets/hfo2/matrices"
SMALL = {
    "chgnet": {
        "model": {
            "atom_features": 8, "bond_features": 8, "angle_features": 8, "hidden_features": 8,
            "readout_features": [8], "radial_functions": 7, "angular_functions": 7,
        },
        "graph": {"cutoff": 4.0, "angle_cutoff": 3.0},
    },
    "egnn_esp": {
        "model": {
            "channels": 2, "layers": 1, "heads": 1, "attention_channels": 2, "value_channels": 2,
            "hidden_channels": 2, "feed_forward_channels": 2, "radial_functions": 4,
        },
        "graph": {"cutoff": 4.0}, "train": {"epochs": 2, "batch_size": 2},
        "dataset": {
            "description": "Hafnia", "plugin": "egnn_esp", "split": {"val": 0.3, "test": 0.3},
            "sources": [
                {
                    "reader": "packed", "path": str(MATRICES / "cubic-0600K.h5"),
                    "basis": {"Hf": [0, 0, 1, 2], "O": [0, 1]},
                }
            ],
        },
    },
    "gauge_flows": {
        "model": {"layers": {"bins": 2, "hidden": [4]}, "draws": {"train": 16, "val": 16}},
        "graph": {"masks": [{"mask": "direction"}]}, "train": {"epochs": 2, "batch_size": 8},
        "evaluate": {"samples": 256},
        "dataset": {
            "description": "SU(2) in two dimensions", "plugin": "gauge_flows",
            "lattice": {"extents": [4, 4], "n_colours": 2},
            "action": {"name": "wilson", "beta": 1.0},
            "generate": {"method": "heatbath", "n_configurations": 20},
            "split": {"val": 0.3, "test": 0.3},
        },
        "other": {"graph": {"repeats": 2}},
    },
    "mace": {
        "model": {
            "channels": 4, "lmax": 2, "radial_functions": 5, "radial_features": [8],
            "readout_features": 4,
        },
        "graph": {"cutoff": 4.0},
    },
    "htfbr": {
        "model": {"rank": 2}, "graph": {"degree": 2},
        "train": {"solver": {"max_terms": 40, "iterations": 2}},
        "infer": {"cuts": [["tau"]], "cut_points": 3, "stationary_points": False},
        "dataset": {
            "description": "The surface of HONO", "plugin": "htfbr",
            "source": {"reader": "hono", "points": 200}, "split": {"val": 0.2, "test": 0.2},
        },
        "other": {"graph": {"degree": 3}},
    },
}  # fmt: skip
"""Sections that keep the tests fast; a plugin without an entry runs with its defaults."""


DRAWN = "gauge_flows"
"""Whose figures the first tier draws; `test_painn` draws those of a potential."""


class Undrawn:
    """Figures take longer than all other tests of a run together."""

    @exhaustive
    def test_its_figures_can_be_drawn(self, project: Project, finished: Run) -> None:
        super().test_its_figures_can_be_drawn(project, finished)  # type: ignore[misc]


def list_test_classes(registry: Registry, info: ModelInfo) -> dict[str, type]:
    """Return the test classes of a model."""
    name, classes = info.name, {}
    for base in list_suites(registry, info):
        title = f"Test_{name}_{base.__name__}"
        undrawn = base is RunConformance and name != DRAWN
        bases = (Undrawn, base) if undrawn else (base,)
        classes[title] = type(title, bases, {"plugin": name, **SMALL.get(name, {})})
    pytest.mark.slow(classes[f"Test_{name}_RunConformance"])  # it trains
    return classes


_REGISTRY = load_registry()
for _info in _REGISTRY.list_models():
    globals().update(list_test_classes(_REGISTRY, _info))


@exhaustive
@pytest.mark.slow
class TestPublishedKind(PotentialConformance):
    """MACE with what published networks have beside the defaults."""

    plugin = "mace"
    model: ClassVar = {
        **SMALL["mace"]["model"],
        "normalization": "density",
        "distance_transform": "agnesi",
        "pair_repulsion": True,
        "heads": ["first", "second"],
    }
    graph: ClassVar = {"cutoff": 4.0}
    infer: ClassVar = {"head": "second"}


@exhaustive
@pytest.mark.slow
class TestWithoutDataset(RunConformance):
    """A flow whose action is its data: the experiment names no dataset."""

    plugin = "gauge_flows"
    model: ClassVar = {
        "layers": {"bins": 2, "hidden": [4]},
        "draws": {"train": 16, "val": 16},
        "action": {"beta": 1.0},
    }
    graph: ClassVar = {
        "lattice": {"extents": [4, 4], "n_colours": 2},
        "masks": [{"mask": "direction"}],
    }
    train: ClassVar = {"epochs": 2, "batch_size": 8}
    dataset = None
    other: ClassVar = {"graph": {"repeats": 2}}

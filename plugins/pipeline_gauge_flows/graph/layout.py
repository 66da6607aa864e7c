"""Stage `graph`: the lattice, and the active links of each layer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np
import torch

from pipeline_core.artifacts import store
from pipeline_core.project.run import Run
from pipeline_gauge_flows.data.datasets import EnsembleDataset
from pipeline_gauge_flows.data.lattice import Lattice
from pipeline_gauge_flows.graph.context import find_frozen_numbers, make_context
from pipeline_gauge_flows.graph.masks import Update, list_updates
from pipeline_gauge_flows.options import GaugeGraphOptions


@dataclass(frozen=True)
class FlowLayout:
    """Lattice and masks of the flow of a run.

    Attributes:
        lattice: Lattice of the training.
        updates: Active links of each layer.
    """

    lattice: Lattice
    updates: tuple[Update, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able values; `from_dict` is the inverse."""
        return {
            "extents": list(self.lattice.extents),
            "n_colours": self.lattice.n_colours,
            "updates": [asdict(update) for update in self.updates],
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Return the layout from the output of `to_dict`."""
        lattice = Lattice(tuple(content["extents"]), content["n_colours"])
        updates = (_read_update(update, lattice.dimension) for update in content["updates"])
        return cls(lattice, tuple(updates))

    def take_plaquettes(self, trained: FlowLayout) -> FlowLayout:
        """Return this layout with the plaquettes of another, if both have the same active links."""
        pairs = zip(self.updates, trained.updates, strict=False)
        is_same = len(self.updates) == len(trained.updates) and all(
            one == replace(other, plaquette=one.plaquette) for one, other in pairs
        )
        return replace(self, updates=trained.updates) if is_same else self


def _read_update(content: Mapping[str, Any], dimension: int) -> Update:
    """Return an update from JSON-able values.

    Earlier versions do not store the plaquette: it was the frozen plaquette whose index among the
    frozen ones is the number of the sweep, so that few sweeps left out planes.
    """
    update = Update(**content)
    if "plaquette" in content:
        return update
    numbers = find_frozen_numbers(update, dimension)
    return replace(update, plaquette=numbers[update.sweep % len(numbers)])


def write_layout(run: Run) -> dict[str, Any]:
    """Write `run.graph`: lattice, updates and masks.

    The file holds `active`, (n_layers, D, V) bool, `plaquettes`, (n_layers,), the number of
    plaquettes of an active link without a second one, and the attribute `structure`, JSON.

    Raises:
        ValueError: The lattice is missing, or a mask does not close around it.
    """
    options = run.get_section("graph", GaugeGraphOptions)
    lattice = _choose_lattice(run, options)
    blocks = [(block.mask, block.sweeps) for block in options.masks] * options.repeats
    structure = FlowLayout(lattice, tuple(list_updates(blocks, lattice.dimension)))
    try:
        active = torch.stack([update.find_active(lattice) for update in structure.updates])
    except ValueError as error:
        raise ValueError(f"{run.experiment}: graph.masks: {error}") from None
    single = [len(make_context(update, lattice).paths.numbers) for update in structure.updates]
    with store.create(run.graph, "graph", run.make_provenance("graph")) as file:
        file.attrs["structure"] = json.dumps(structure.to_dict())
        file.create_dataset("active", data=active.numpy())
        file.create_dataset("plaquettes", data=np.asarray(single))
    return {
        "lattice": f"SU({lattice.n_colours}) on {'x'.join(map(str, lattice.extents))}",
        "layers": len(structure.updates),
        "updates_of_a_link": int(active.sum()) / lattice.n_links,
    }


def read_layout(run: Run) -> FlowLayout:
    """Read lattice and updates.

    Raises:
        ValueError: `run.graph` is missing or damaged.
    """
    with store.open_artifact(run.graph, "graph") as file, store.explain_damage(run.graph):
        return FlowLayout.from_dict(json.loads(file.attrs["structure"]))


def read_ensemble_options(run: Run) -> EnsembleDataset | None:
    """Return the options of the dataset of a run; None without a dataset.

    Raises:
        ValueError: The dataset belongs to another plugin.
    """
    if run.dataset is None:
        return None
    if not isinstance(run.dataset.options, EnsembleDataset):
        raise ValueError(
            f"{run.dataset.path}: describes no lattice gauge theory; add the key `plugin: "
            "gauge_flows` and the keys that it requires, or name another dataset"
        )
    return run.dataset.options


def _choose_lattice(run: Run, options: GaugeGraphOptions) -> Lattice:
    lattice, ensemble = options.lattice, read_ensemble_options(run)
    if lattice is None and ensemble is not None:
        lattice = ensemble.lattice
    if lattice is None:
        raise ValueError(
            f"{run.experiment}: no lattice: set graph.lattice, or name a dataset that has one"
        )
    n_colours = lattice.n_colours
    if ensemble is not None and n_colours != ensemble.lattice.n_colours:
        if "n_colours" in lattice.model_fields_set:
            raise ValueError(
                f"{run.experiment}: graph.lattice.n_colours is {n_colours}, but the dataset has "
                f"SU({ensemble.lattice.n_colours}); remove it, or name another dataset"
            )
        n_colours = ensemble.lattice.n_colours
    return Lattice(tuple(lattice.extents), n_colours)

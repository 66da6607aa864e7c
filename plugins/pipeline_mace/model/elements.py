"""Lookup of the elements of structures among the elements of a network."""

from __future__ import annotations

from collections.abc import Sequence

from ase.data import chemical_symbols
from torch import Tensor

from pipeline_core.batch import Batch


def find_elements(batch: Batch, numbers: Tensor, elements: Sequence[str]) -> Tensor:
    """Return the place of each atom's element among the elements of a network, (n_atoms,).

    Args:
        batch: The structures.
        numbers: Place of each atomic number, -1 for elements that the network lacks.
        elements: Symbols of the network's elements.

    Raises:
        ValueError: The network lacks an element.
    """
    element = numbers[batch["atomic_numbers"]]
    if len(element) and int(element.min()) < 0:
        unknown = batch["atomic_numbers"][element < 0].unique().tolist()
        raise ValueError(
            f"the structures hold {', '.join(chemical_symbols[z] for z in unknown)}, but the "
            f"network was trained on {', '.join(elements)}; train it with data of all elements"
        )
    return element

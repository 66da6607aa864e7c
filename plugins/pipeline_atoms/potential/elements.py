"""Places of elements among the elements of a network."""

from collections.abc import Sequence

import torch
from ase.data import chemical_symbols
from torch import Tensor

from pipeline_atoms.potential.potential import MAX_Z


def number_elements(numbers: Sequence[int]) -> Tensor:
    """Return the place of each atomic number in a list, (MAX_Z + 1,), -1 for all others."""
    places = torch.full((MAX_Z + 1,), -1)
    places[list(numbers)] = torch.arange(len(numbers))
    return places


def find_elements(atomic_numbers: Tensor, places: Tensor) -> Tensor:
    """Return the place of each atom's element among the elements of a network, (n_atoms,).

    Args:
        atomic_numbers: (n_atoms,)
        places: From `number_elements`.

    Raises:
        ValueError: The network lacks an element.
    """
    element: Tensor = places[atomic_numbers]
    if len(element) and int(element.min()) < 0:
        unknown = atomic_numbers[element < 0].unique().tolist()
        known = places.argsort()[-int((places >= 0).sum()) :].tolist()
        raise ValueError(
            f"the structures hold {', '.join(chemical_symbols[z] for z in unknown)}, but the "
            f"network was trained on {', '.join(chemical_symbols[z] for z in known)}; train it "
            "with data of all elements"
        )
    return element

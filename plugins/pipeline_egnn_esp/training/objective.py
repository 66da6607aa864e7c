"""Loss of matrices: squared and absolute errors of uncoupled blocks.

Only elements with labels count, without padding. Sums and counts are kept separate, so that data
parallel ranks with unequal shares add up to the loss of the whole batch.
"""

from typing import Final, Literal

from torch import Tensor

from pipeline_core.batch import Batch
from pipeline_core.task import Outputs, Quantity
from pipeline_core.training.residuals import compute_residuals
from pipeline_egnn_esp.model.scaling import ScaledNetwork
from pipeline_egnn_esp.options import BlockLoss

Kind = Literal["mse", "mae", "relative"]
KINDS: Final[tuple[Kind, ...]] = ("mse", "mae", "relative")
_PLACES: Final = {"on_site": "node_blocks", "off_site": "edge_blocks"}


class BlockObjective:
    """Weighted sum of mean errors over elements of the blocks of atoms and of edges.

    Args:
        loss: Weights of the terms.
        quantities: `node_blocks` and `edge_blocks`.
        module: Network that computes the units of relative errors.
    """

    def __init__(
        self, loss: BlockLoss, quantities: tuple[Quantity, ...], module: ScaledNetwork
    ) -> None:
        by_name = {quantity.name: quantity for quantity in quantities}
        self._quantities = {place: by_name[name] for place, name in _PLACES.items()}
        self._module = module
        self.weights = {
            f"{place}_{kind}": weight
            for place in _PLACES
            for kind in KINDS
            if (weight := getattr(loss, place) * getattr(loss, kind))
        }

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """Return the number of labelled elements of each term in a batch."""
        n_labelled = {
            place: (~batch[quantity.name].isnan()).sum()
            for place, quantity in self._quantities.items()
        }
        return {name: n_labelled[_name_place(name)] for name in self.weights}

    def sums(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """Return the sum of each term over the labelled elements of a batch."""
        errors = {
            place: compute_residuals(quantity, outputs, batch)[0]
            for place, quantity in self._quantities.items()
        }
        sizes: dict[str, Tensor] = {}
        if any(name.endswith("relative") for name in self.weights):
            units = self._module.compute_units(batch, len(batch["node_blocks"]))
            sizes = dict(zip(_PLACES, units, strict=True))
        sums = {}
        for name in self.weights:
            place = _name_place(name)
            error = errors[place]
            if name.endswith("mse"):
                sums[name] = error.square().sum()
            elif name.endswith("mae"):
                sums[name] = error.abs().sum()
            else:
                sums[name] = (error / sizes[place].to(error.dtype)).abs().sum()
        return sums


def _name_place(name: str) -> str:
    return name.rsplit("_", 1)[0]

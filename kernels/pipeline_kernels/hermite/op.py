"""The public functions, and the choice between implementations. Autograd does not see them."""

from collections.abc import Sequence

from torch import Tensor

from pipeline_kernels.hermite import cpu, reference
from pipeline_kernels.native import prefer_c


def interpolate(x: Tensor, table: Tensor, widths: Sequence[int]) -> list[Tensor]:
    """Evaluate splines.

    Args:
        x: `(n,)` float64, from 0 to one less than the number of knots; beyond it the outermost
            polynomial is continued.
        table: `(3 n_knots, n_columns)`, float32 or float64.
        widths: of the groups of columns that results are to have.

    Returns:
        `(n, width)` for each group, in the type of the table.
    """
    assert sum(widths) == table.shape[1]
    return prefer_c(table, cpu.interpolate, reference.interpolate)(x, table, widths)


def differentiate_interpolation(gradients: Sequence[Tensor], x: Tensor, table: Tensor) -> Tensor:
    """Take derivatives by the results of `interpolate` back to x.

    Args:
        gradients: by each of the results.
        x: as there.
        table: as there.

    Returns:
        `(n,)` float64.
    """
    assert sum(g.shape[1] for g in gradients) == table.shape[1]
    return prefer_c(table, cpu.differentiate, reference.differentiate)(gradients, x, table)

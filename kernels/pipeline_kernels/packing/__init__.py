"""Sharing of samples of unequal cost: between ranks, between steps, between micro-batches.

| function            | question                                           | method            |
|---------------------|----------------------------------------------------|-------------------|
| `lpt`               | which rank takes which sample of a step?           | longest first [1] |
| `windows`           | where does a shuffled sequence break into steps?   | equal cost        |
| `split_by_capacity` | which samples go through memory together?          | first fit [2]     |
| `balance_report`    | how well are the ranks balanced?                   |                   |

All are deterministic, ties included, so that ranks which call them with the same costs agree
without communication. A cost is a number without unit, proportional to time or memory.

[1] R. L. Graham, SIAM J. Appl. Math. 17, 416 (1969), theorem 2.
[2] D. S. Johnson et al., SIAM J. Comput. 3, 299 (1974).
"""

from pipeline_kernels.packing.balance import Balance, balance_report
from pipeline_kernels.packing.bins import lpt, split_by_capacity, windows

__all__ = ["Balance", "balance_report", "lpt", "split_by_capacity", "windows"]

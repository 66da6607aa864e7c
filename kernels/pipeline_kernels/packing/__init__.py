"""Sharing of samples of unequal cost: between ranks, between steps, between micro-batches.

| function            | question                                         | method            |
|---------------------|--------------------------------------------------|-------------------|
| `assign_by_lpt`     | which rank takes which sample of a step?         | longest first [1] |
| `cut_windows`       | where does a shuffled sequence break into steps? | equal cost        |
| `split_by_capacity` | which samples go through memory together?        | first fit [2]     |
| `measure_balance`   | how well are the ranks balanced?                 |                   |

Strategies share a whole epoch, every rank taking part in every step; each returns a `Plan`:

| function         | steps            | ranks                                | as in          |
|------------------|------------------|--------------------------------------|----------------|
| `pack_balanced`  | windows          | longest first [1], within a capacity | here           |
| `pack_random`    | windows          | equal numbers                        | torch          |
| `pack_pairs`     | windows          | cheapest with dearest                | FastCHGNet [3] |
| `pack_next_fit`  | consecutive bins | bins filled one after the other      | PyG, fairchem  |
| `pack_mace_bins` | consecutive bins | dealt to bins, largest first         | MACE [4]       |

All are deterministic, ties included, so that ranks which call them with the same costs agree
without communication. A cost is a number without unit, proportional to time or memory.

[1] R. L. Graham, SIAM J. Appl. Math. 17, 416 (1969), theorem 2.
[2] D. S. Johnson et al., SIAM J. Comput. 3, 299 (1974).
[3] Y. Zhou et al., arXiv:2412.20796, section III.
[4] J. Firoz et al., arXiv:2504.10700, algorithm 1.
"""

from pipeline_kernels.packing.balance import Balance, measure_balance
from pipeline_kernels.packing.bins import assign_by_lpt, cut_windows, split_by_capacity
from pipeline_kernels.packing.plan import Plan
from pipeline_kernels.packing.strategies import (
    pack_balanced,
    pack_mace_bins,
    pack_next_fit,
    pack_pairs,
    pack_random,
)

__all__ = [
    "Balance",
    "Plan",
    "assign_by_lpt",
    "cut_windows",
    "measure_balance",
    "pack_balanced",
    "pack_mace_bins",
    "pack_next_fit",
    "pack_pairs",
    "pack_random",
    "split_by_capacity",
]

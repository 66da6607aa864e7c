"""Sharing of one large graph of atoms between ranks that exchange boundary atoms in every layer.

A part owns atoms and all edges whose receiver it owns. It receives each remote sender once per
exchange, in one message from each part that it has for a neighbour. An exchange takes as long as
its latency times the neighbours, plus the nodes received over the bandwidth; a layer takes as long
as the part with the most edges.

| method         | idea                                              | edges are balanced | parts |
|----------------|---------------------------------------------------|--------------------|-------|
| `low_nn`       | bisection that adds few neighbours [1]            | yes                | any   |
| `grid`         | every p_x x p_y x p_z, the fastest exchange taken | yes                | any   |
| `auto`         | `grid` and `low_nn`, Pareto set, refined          | to 1 %             | any   |
| `metis`        | few edges cut [2], as in [1]                      | to 5 %, of nodes   | any   |
| `metis_volume` | few nodes sent [2]                                | to 3 %             | any   |
| `slices`       | slices of equal width across one axis [3]         | no                 | any   |

| function            | what it does                                                             |
|---------------------|--------------------------------------------------------------------------|
| `partition`         | returns the part of each atom                                            |
| `Rows.measure`      | counts neighbours, nodes received, imbalance: figure 5 of [1], exactly   |
| `label_atoms`       | `partition` of a graph that is reused                                    |

METIS reads the graph alone, `slices` places alone; all others read where the atoms are, too, and
work in cells of any shape, periodic along any axis. The steps can be called one by one:
`PlaneCoordinates`, `Rows`, `find_candidates`, `refine` and the methods by name.

[1] M. Kaniselvan et al., "Distributed Equivariant Graph Neural Networks for Large-Scale Electronic
    Structure Prediction" (2025), section 4.4 and appendix A.
[2] G. Karypis and V. Kumar, SIAM J. Sci. Comput. 20, 359 (1998).
[3] C. H. Xia et al., "Learning the Electronic Hamiltonian of Large Atomic Structures" (2025),
    arXiv:2501.19110.
"""

from pipeline_kernels.partition.coordinates import PlaneCoordinates
from pipeline_kernels.partition.graph_cut import cut_by_metis, cut_by_metis_volume, make_adjacency
from pipeline_kernels.partition.low_nn import cut_by_grid, cut_by_low_nn
from pipeline_kernels.partition.metrics import PartitionMetrics
from pipeline_kernels.partition.op import Method, label_atoms, partition
from pipeline_kernels.partition.refine import refine
from pipeline_kernels.partition.rows import Rows
from pipeline_kernels.partition.search import (
    MESSAGE,
    Candidate,
    count_exchange,
    find_candidates,
    find_grids,
)
from pipeline_kernels.partition.slices import cut_by_slices

__all__ = [
    "MESSAGE",
    "Candidate",
    "Method",
    "PartitionMetrics",
    "PlaneCoordinates",
    "Rows",
    "count_exchange",
    "cut_by_grid",
    "cut_by_low_nn",
    "cut_by_metis",
    "cut_by_metis_volume",
    "cut_by_slices",
    "find_candidates",
    "find_grids",
    "label_atoms",
    "make_adjacency",
    "partition",
    "refine",
]

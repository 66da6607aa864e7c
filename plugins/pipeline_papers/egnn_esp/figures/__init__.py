"""Figures 3 and 5 to 8, from measurements here."""

from typing import Final

from pipeline_core.figures import Figure
from pipeline_papers.egnn_esp.figures import (
    domains,
    partitions,
    strong,
    throughput,
    tiled,
    topology,
    weak,
)

_PACKING: Final = (
    "The structure is a random packing of the density of the paper's amorphous HfO2, which is "
    "public but was not used here."
)
_PROJECTED: Final = (
    "Measured: forward passes of the network over processes of this machine, one thread each on a "
    "CPU, exchanges included. Projected: atoms, edges, neighbours and messages of every part are "
    "counted; what a rank computes follows from passes of one rank, and what messages take from a "
    "latency and a bandwidth, the dotted lines. The slowest part ends a pass, and nothing overlaps."
)

FIGURES: Final = [
    Figure(
        name="figure3",
        title="Figure 3: throughput of messages",
        caption="Messages that the node block works on in a second, against their number, for "
        "embeddings of E channels: without gradients, in single precision, frames of edges made "
        "before. Dashed: the fewest messages that reach 90 % of the best throughput.",
        category="Reproduction",
        draw=throughput.draw,
    ),
    Figure(
        name="figure5",
        title="Figure 5: what sharing costs",
        caption="One structure shared between many parts. Lines: means over parts; bars reach to "
        "the part that has most. Imbalance: the largest part over the mean. METIS cuts few edges, "
        "as the paper's baseline; Low-NN is the paper's algorithm; grid and auto choose among all "
        f"divisions by planes. {_PACKING}",
        category="Partition",
        draw=partitions.draw,
    ),
    Figure(
        name="figure5_domains",
        title="Figure 5: the domains",
        caption="Atoms next to the faces of the periodic box, coloured by the part that owns them. "
        f"{_PACKING}",
        category="Partition",
        draw=domains.draw,
    ),
    Figure(
        name="figure6",
        title="Figure 6: strong scaling",
        caption="Time of a pass over one structure against the number of ranks. "
        f"{_PROJECTED} Below: the link, and what messages of the mean part take. Structures differ "
        "between measured and projected passes.",
        category="Reproduction",
        draw=strong.draw,
    ),
    Figure(
        name="figure6_topology",
        title="Figure 6: who sends to whom",
        caption="Above: parts, and lines as wide as what two of them exchange, placed by springs "
        "(Fruchterman and Reingold, 1991). Below: atoms that a part, the row, receives from each "
        "other part in one exchange; white: none.",
        category="Partition",
        draw=topology.draw,
    ),
    Figure(
        name="figure7",
        title="Figure 7: weak scaling",
        caption="Ranks and copies of a box, in one or all directions, grow together, shared by "
        f"Low-NN; small numbers are atoms. {_PROJECTED} Right: part of the pass that the mean "
        "part spends on messages and on waiting for the slowest. The cross is the paper's "
        "efficiency on 512 GPUs.",
        category="Reproduction",
        draw=weak.draw,
    ),
    Figure(
        name="figure8_tiled",
        title="Figure 8: Hamiltonian of a tiled cell",
        caption="Left: atoms next to the faces of a repeated cell of the data. Right: its "
        "predicted Hamiltonian, the largest magnitude of each pixel over all images of the cell.",
        category="Reproduction",
        draw=tiled.draw,
    ),
]

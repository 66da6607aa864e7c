"""Figures 5 to 13, from measurements here."""

from typing import Final

from pipeline_core.figures import Figure
from pipeline_papers.mace.figures import bins, losses, saturation, scaling, shares, sizes

_FOUR: Final = (
    "Baseline: plain PyTorch operations and equal numbers of samples for all ranks; algorithm 1: "
    "the bins of the paper; fused kernels: tensor products that are summed as they are made, and "
    "contractions as polynomials (both kinds of kernels store the radial weights of the edges); "
    "both: algorithm 1 with fused kernels, what the paper calls its optimised training. Ours is no "
    "part of the paper: fused kernels with the balancer that this project has for its default."
)
_PROJECTED: Final = (
    "Projected epochs are those of a set composed as Table 3 of the paper, whose samples cannot be "
    "had: sizes are drawn, each step takes the time that the cost model of the measured steps "
    "gives for the rank that has most to do, and gradients are added by a ring. Algorithm 1 deals "
    "samples by atoms there, as in the paper; in trainings by cost, atoms and edges. All measured "
    "cells have about as many edges an atom, so the cost model cannot tell what is owed to edges: "
    "it decides nothing between algorithm 1 and ours."
)

FIGURES: Final = [
    Figure(
        name="figure5",
        title="Figure 5: sizes and sparsity of the samples",
        caption="Left: atoms of a sample in the eight sets of the paper, and here, with the number "
        "of samples. Middle and right: edges of the samples here. Images across the boundary of "
        "the cell count, so a small cell may have more edges than pairs of atoms.",
        category="Reproduction",
        draw=sizes.draw,
    ),
    Figure(
        name="figure6",
        title="Figure 6: what balancing and kernels are worth",
        caption="Time of an epoch of the baseline over that of each configuration on as many "
        f"ranks: the median over epochs without the first, and over seeds. {_FOUR} With one rank "
        "there is nothing to balance, though bins of algorithm 1 hold unequal numbers of samples. "
        "The paper's values are a picture only.",
        category="Reproduction",
        draw=scaling.draw_ablation,
    ),
    Figure(
        name="figure7",
        title="Figure 7: strong scaling",
        caption="Time of an epoch against the number of ranks. Three machines and sets of data, so "
        "their times do not compare: on this machine all ranks share the cores that one rank has "
        f"to itself. {_PROJECTED} {_FOUR} Of the paper's times only those that its text gives.",
        category="Reproduction",
        draw=scaling.draw_strong,
    ),
    Figure(
        name="figure8",
        title="Figure 8: speed-up and efficiency of strong scaling",
        caption="Left: time of the baseline over time on as many ranks. Right: efficiency, with "
        f"the fewest projected ranks as reference. {_PROJECTED} Crosses are what follows from the "
        "times in the text of the paper.",
        category="Reproduction",
        draw=scaling.draw_speedup,
    ),
    Figure(
        name="figure9",
        title="Figure 9: training loss",
        caption="Left: mean over seeds; the bands reach from the smallest to the largest. Right: "
        "how far the losses are from those of the baseline of the same seed, beside what another "
        "seed changes. Algorithm 1 puts samples of like sizes into a step, so its training takes "
        "another way. Ours gives each step the samples of the baseline, and both kinds of kernels "
        "compute the same, so rounding alone tells the two apart.",
        category="Reproduction",
        draw=losses.draw,
    ),
    Figure(
        name="figure10",
        title="Figure 10: weak scaling",
        caption="Ranks and samples grow together, as in the paper: 0.6, 1.2 and 2.65 million "
        "samples. Efficiency: time per sample of a rank, at the fewest ranks over that at as many. "
        f"{_PROJECTED} None of this was measured.",
        category="Reproduction",
        draw=scaling.draw_weak,
    ),
    Figure(
        name="figure11",
        title="Figure 11: saturation and capacity",
        caption="Time and memory of a training step against the size of the batch. On the dotted "
        "slope twice the samples take twice the time. Saturated: the smallest batch from which on "
        "the time per atom stays within 10 % of the best. Capacity: the largest batch that memory "
        "holds or time allows, or that was tried. Double: steps in double precision.",
        category="Workload",
        draw=saturation.draw,
    ),
    Figure(
        name="figure12",
        title="Figure 12: samples of one step",
        caption="The first step of an epoch: each bar is a rank, each piece a sample, as long as "
        "its cost. The dashed line is the mean; all ranks wait for the longest bar. Ours is the "
        "balancer that this project has for its default.",
        category="Workload",
        draw=bins.draw,
    ),
    Figure(
        name="figure13",
        title="Figure 13: computing, communicating, waiting",
        caption="Left: seconds of an epoch that each rank spent, a mean over epochs without the "
        f"first. Right: shares of the mean rank. {_PROJECTED}",
        category="Workload",
        draw=shares.draw,
    ),
]

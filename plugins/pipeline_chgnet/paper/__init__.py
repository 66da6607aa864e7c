"""Figures 5, 8, 9 and 10 of FastCHGNet, arXiv:2412.20796, from what was measured here."""

from __future__ import annotations

from typing import Final

from pipeline_chgnet.paper import ablation, loads, scaling, sizes
from pipeline_core.figures import Figure

FIGURES: Final = [
    Figure(
        name="figure5",
        title="Figure 5: sizes of the samples",
        caption="How many atoms, bonds within the cutoff of the atom graph, and angles between "
        "bonds within that of the bond graph the samples have. Bonds are undirected, as the paper "
        "counts them.",
        category="Reproduction",
        draw=sizes.draw,
    ),
    Figure(
        name="figure8",
        title="Figure 8: what each optimisation is worth",
        caption="Time and memory of a training step of copies of one sample, each bar with one "
        "change more than the bar before; above it how many times less than the first. Measured "
        "on this machine; the paper's bars are those of an A100, which launches kernels, and "
        "gains most where there are fewer of them.",
        category="Reproduction",
        draw=ablation.draw,
    ),
    Figure(
        name="figure9",
        title="Figure 9: load of the ranks",
        caption="Atoms + bonds + angles of each step: the bands reach from the rank that has least "
        "to the one that has most. In the legend their variation: root mean square deviation from "
        "the mean of the step, over the mean. Nothing was trained: it follows from the sizes.",
        category="Reproduction",
        draw=loads.draw,
    ),
    Figure(
        name="figure10",
        title="Figure 10: strong and weak scaling",
        caption="Efficiency from 4 ranks on: left steps of the same size, right steps that grow "
        "with the ranks. Projected: samples are drawn from those here, each step takes the time "
        "that the cost model of the measured steps gives for the rank that has most to do, and "
        "gradients are added by a ring as fast as two processes of this machine do it. Crosses "
        "are the paper's.",
        category="Reproduction",
        draw=scaling.draw,
    ),
]

__all__ = ["FIGURES"]

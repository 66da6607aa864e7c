"""Figures 1 and 2 and equation 19, from measurements here."""

from typing import Final

from pipeline_core.figures import Figure
from pipeline_gauge_flows.figures import BOOTSTRAP
from pipeline_papers.gauge_flows.figures import equation19, figure1, figure2

FIGURES: Final = [
    Figure(
        name="figure1",
        title="Figure 1: training with and without learned active loops",
        caption="Left: effective sample size during the training, of the validation draws, which "
        "are the same in each epoch; thin: each seed, thick: their mean. Right: the divergence, "
        "log Z less its lower bound. At the end: the trained flows with new samples. "
        f"{BOOTSTRAP} Few draws let effective sample sizes scatter and, where they are small, "
        "look larger than they are; the divergence is the steadier measure.",
        category="Reproduction",
        draw=figure1.draw,
    ),
    Figure(
        name="figure2",
        title="Figure 2: gluons in the pion by the Feynman-Hellmann relation",
        caption="Correlated fits of the mass in [t_min, T/2], of the same configurations but for "
        "independent ensembles. Left: by the anisotropy the momentum fraction of gluons, Eq. 17, "
        "by other parameters the matrix element of Eq. 15. Middle: errors over that of the flow; "
        f"grey: the paper. Right: masses before the map, and effective ones of two times. "
        f"{BOOTSTRAP}",
        category="Reproduction",
        draw=figure2.draw,
    ),
    Figure(
        name="cost_derivatives",
        title="Eq. 19: what a derivative costs",
        caption="The paper: QCD on A100 GPUs, GPU hours, with the lower end of its 5 to 10 times "
        "fewer configurations. Ours: wall time, s. Generation: of the second ensemble with its "
        "thermalisation. Sampled, flows, independent: a configuration by ε-reweighting, with the "
        "flow, which is measured twice, and of each of two independent ensembles. Ratios: variance "
        "of ε-reweighting at its best step, and of independent ensembles, over that of the flow; "
        "of the matrix element of the pion, from the range that the experiment names, or without "
        "a pion of the derivative of ⟨dS/dλ⟩, from as many configurations; independent ensembles "
        "have as many at each end. Pays beside: configurations after which the error of the flow "
        "becomes smaller than the other's at equal cost; ∞: never.",
        category="Cost",
        draw=equation19.draw,
    ),
]

"""Tables I and II and Figures 5 to 10, from measurements here."""

from typing import Final

from pipeline_core.figures import Figure
from pipeline_papers.chgnet.figures import ablation, accuracy, budgets, loads, rates, scaling, sizes

FIGURES: Final = [
    Figure(
        name="table1",
        title="Table I: errors of the networks",
        caption="Each network of the paper, its numbers and ours; what differs between "
        "the two is said where the paper's numbers stand beside ours.",
        category="Reproduction",
        draw=accuracy.draw_table_1,
    ),
    Figure(
        name="table2",
        title="Table II: a step of molecular dynamics",
        caption="Time of a step of each crystal, of the published code and of FastCHGNet with "
        "heads: on an A100 in the paper, on the cores of this machine here.",
        category="Reproduction",
        draw=accuracy.draw_table_2,
    ),
    Figure(
        name="budgets",
        title="Equal budgets",
        caption="Mean absolute errors on the validation split against epochs (above) and against "
        "the time of all training steps until then (below), one line a training. The reference "
        "has the mathematics of the networks without heads and takes longer. Two stages are one "
        "line.",
        category="Reproduction",
        draw=budgets.draw,
    ),
    Figure(
        name="budget_errors",
        title="Equal budgets: errors",
        caption="Mean absolute errors of the same trainings on the held-out split, of each the "
        "weights of its best epoch.",
        category="Reproduction",
        draw=budgets.draw_table,
    ),
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
        name="figure6",
        title="Figure 6: learning rates for large batches",
        caption="Mean absolute errors on the validation split. Red: the same learning rate "
        "whatever the batch. Blue: the rate in proportion to the batch (Eq. 14).",
        category="Reproduction",
        draw=rates.draw,
    ),
    Figure(
        name="figure7",
        title="Figure 7: predictions against labels",
        caption="Energies and components of forces of the test split, of the published weights as "
        "they are where they were taken, and of the longest training of each kind.",
        category="Reproduction",
        draw=accuracy.draw_parity,
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

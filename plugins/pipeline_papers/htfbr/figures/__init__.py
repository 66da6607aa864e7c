"""Tables 2 to 4 and Figures 3 and 4, from measurements here."""

from typing import Final

from pipeline_core.figures import Figure
from pipeline_papers.htfbr.figures import tables, training

FIGURES: Final = [
    Figure(
        name="table2",
        title="Table 2: fits of HONO",
        caption="The paper's rows and ours. Losses are root-mean-square errors in hartree: the "
        "paper does not define its loss, and this reading is inferred from the size of the "
        "numbers. Grid: all 1,000,000 points of Table 1. The time is that of the epochs listed, "
        "iterations for the solver.",
        category="Reproduction",
        draw=lambda e: tables.draw_fits(e, "hono", "hono", "train", "test", "grid"),
    ),
    Figure(
        name="table3",
        title="Table 3: gap between training and test",
        caption="If the loss is a mean of squares, the sum over equal shares of a batch of their "
        "gradients is the gradient of the batch, whatever the number of shares: more devices alone "
        "then cannot change what a full-batch training finds. The paper does not define its loss; "
        "gradients of root-mean-square errors of the shares would not add up so. A share is a GPU "
        "in the paper; ours cut one batch into as many shares; beside it stands the largest "
        "relative difference of the training loss from that with one share, over all records. "
        "Dataloader is the paper's benchmark, for fewer epochs.",
        category="Reproduction",
        draw=tables.draw_table3,
    ),
    Figure(
        name="table4",
        title="Table 4: fits of ethene",
        caption="The paper's rows and ours, which fit other data: GFN2-xTB energies along "
        "classical trajectories in place of the paper's unpublished points, so losses compare in "
        "their order of magnitude at most. Losses are root-mean-square errors in hartree, as in "
        "Table 2.",
        category="Reproduction",
        draw=lambda e: tables.draw_fits(e, "ethene", "ethene_xtb", "train", "test"),
    ),
    Figure(
        name="figure3",
        title="Figure 3: time of a training on HONO",
        caption="The paper's times for 100,000 epochs, and 100,000 times the measured time of an "
        "epoch here: resident keeps the points in memory and has the analytic gradient of the "
        "tree, dataloader is torch's Dataset and DataLoader with autograd. Several devices like "
        "ours are projected: the measured epoch of an equal share of the points, and a ring that "
        "adds gradients as fast as two processes here.",
        category="Reproduction",
        draw=training.draw_time,
    ),
    Figure(
        name="figure4",
        title="Figure 4: losses on ethene",
        caption="Mean squared error in units of the variance of the training energies. The same "
        "steps by two implementations.",
        category="Reproduction",
        draw=training.draw_curves,
    ),
]

"""The figures that the engine itself can draw, in the order of the report."""

from typing import Final

from pipeline_core.figures import (
    Figure,
    balance,
    dataset,
    errors,
    learning,
    parity,
)

ENGINE_FIGURES: Final = [
    Figure(
        name="dataset",
        title="Dataset",
        caption="Samples of each group by split.",
        category="Data",
        draw=dataset.draw,
    ),
    Figure(
        name="parity",
        title="Predictions against labels",
        caption="Every number of the held-out split: components of forces and stress count one by "
        "one. The line is perfect agreement; the colour counts numbers per cell where there are "
        f"more than {parity.MOST_POINTS}. All variants share the axes of a quantity; models with "
        "several heads have panels for each, which have axes of their own. "
        "Of a committee the mean is drawn, with bars of 95 % intervals: of each number, or their "
        "means over numbers of like labels.",
        category="Accuracy",
        draw=parity.draw,
    ),
    Figure(
        name="errors_by_group",
        title="Error by group",
        caption="Mean absolute errors of each group of samples in every split that was evaluated.",
        category="Accuracy",
        draw=errors.draw_by_group,
    ),
    Figure(
        name="errors_by_head",
        title="Error by head",
        caption="Mean absolute errors of each head of models with several, such as levels of "
        "theory, in every split that was evaluated.",
        category="Accuracy",
        draw=errors.draw_by_head,
    ),
    Figure(
        name="learning",
        title="Learning curves",
        caption="Loss on training and validation split, mean absolute errors on the validation "
        "split, and learning rate.",
        category="Training",
        draw=learning.draw,
    ),
    Figure(
        name="balance",
        title="Load balance",
        caption="Ranks wait for the one with the largest share: 1 - mean over largest share, in "
        "steps of 16 samples a rank, from the costs of the training samples. A forecast, in which "
        "communication costs nothing.",
        category="Balance",
        draw=balance.draw,
    ),
]

"""Figures of errors by group of samples and by head."""

from collections.abc import Iterator
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from pipeline_core.fields import SPLITS
from pipeline_core.figures import Drawn, Rows, results, style, tabulate
from pipeline_core.figures.quantities import add_unit, find_quantity
from pipeline_core.figures.results import Errors, Metrics, Split, Table
from pipeline_core.project.run import ExperimentRun

Errorbook = dict[str, dict[str, Errors]]
"""Variant -> key, such as a group or an element -> errors of one quantity."""
Kind = Literal["group", "head"]


def read_all_metrics(experiment: ExperimentRun) -> dict[str, Metrics]:
    """Return the errors of all evaluated variants, by label."""
    metrics = {run.label: results.read_metrics(run) for run in experiment.runs.values()}
    return {variant: report for variant, report in metrics.items() if report is not None}


def draw_bars(
    axes: Axes,
    names: list[str],
    book: Errorbook,
    factor: float,
    direction: Literal["vertical", "horizontal"],
) -> None:
    """Draw the MAE of each name, the variants side by side."""
    thickness = 0.8 / len(book)
    for number, (variant, errors) in enumerate(book.items()):
        places = [i - 0.4 + (number + 0.5) * thickness for i in range(len(names))]
        values = [factor * ((errors[n].mae if n in errors else None) or 0.0) for n in names]
        draw = axes.bar if direction == "vertical" else axes.barh
        draw(places, values, 0.92 * thickness, color=style.choose_colour(number), label=variant)


def draw_by_group(experiment: ExperimentRun) -> Drawn:
    """Draw energy and force errors of each group and split, one colour per variant."""
    return _draw_by(experiment, "group")


def draw_by_head(experiment: ExperimentRun) -> Drawn:
    """Draw energy and force errors of each head, for models with several."""
    return _draw_by(experiment, "head")


def _draw_by(experiment: ExperimentRun, kind: Kind) -> Drawn:
    reports = {
        variant: report
        for variant, report in read_all_metrics(experiment).items()
        if any(_get_tables(split, kind) for split in report.splits.values())
    }
    books = {
        name: {variant: dict(_list_by(kind, report, name)) for variant, report in reports.items()}
        for name in ("energy_per_atom", "energy", "forces")
    }
    books = {name: book for name, book in books.items() if any(book.values())}
    if "energy_per_atom" in books:
        books.pop("energy", None)
    keys = list(dict.fromkeys(k for book in books.values() for e in book.values() for k in e))
    splits = (split for report in reports.values() for split in report.splits.values())
    if len({key for split in splits for key in _get_tables(split, kind)}) < 2 or not books:
        return None
    height = 0.7 + len(keys) * (0.1 + 0.11 * len(reports))
    figure, (axes,) = style.make_canvas(1, len(books), width=style.PAGE, height=height, sharey=True)
    table: Rows = []
    for panel, (name, book) in zip(axes, books.items(), strict=True):
        shown = find_quantity(name)
        draw_bars(panel, keys, book, shown.error_factor, "horizontal")
        panel.set_xlabel(add_unit(f"{shown.title} MAE", shown.error_unit))
        panel.xaxis.set_major_locator(MaxNLocator(5))
        panel.tick_params(axis="y", length=0)
        table += make_table(kind, name, book)[1 if table else 0 :]
    axes[0].set_yticks(range(len(keys)), keys)
    axes[0].set_ylim(len(keys) - 0.5, -0.5)
    style.add_legend_above(figure, axes[0])
    return figure, table


def _get_tables(split: Split, kind: Kind) -> dict[str, Table]:
    return split.groups if kind == "group" else split.heads


def _list_by(kind: Kind, report: Metrics, name: str) -> Iterator[tuple[str, Errors]]:
    for split in sorted(report.splits, key=SPLITS.index):
        for key, table in sorted(_get_tables(report.splits[split], kind).items()):
            if name in table and table[name].count:
                yield f"{key} ({split})", table[name]


def make_table(kind: str, name: str, book: Errorbook) -> Rows:
    """Return the errors of a quantity, with a header; `kind` is the meaning of the keys."""
    shown = find_quantity(name)
    return tabulate(
        {
            "variant": variant,
            "quantity": name,
            kind: key,
            "count": errors.count,
            "MAE": None if errors.mae is None else errors.mae * shown.error_factor,
            "RMSE": None if errors.rmse is None else errors.rmse * shown.error_factor,
            "unit of errors": shown.error_unit,
        }
        for variant, members in book.items()
        for key, errors in members.items()
    )

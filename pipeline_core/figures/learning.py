"""Learning curves: losses, errors on the validation split and learning rate, epoch by epoch."""

from collections.abc import Callable
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from pipeline_core.figures import Drawn, Rows, results, style, tabulate
from pipeline_core.figures.quantities import Quantity, add_unit, find_quantity
from pipeline_core.project.run import ExperimentRun

History = list[dict[str, Any]]
Value = Callable[[dict[str, Any]], float | None]


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw loss, error of each quantity and learning rate of all variants."""
    by_variant = {
        run.label: results.read_history(run, with_start=True) for run in experiment.runs.values()
    }
    # A plugin that trains in steps of its own, not epochs, provides figures of its own.
    histories = {
        v: records
        for v, records in by_variant.items()
        if records and "train" in records[0] and "step" not in records[0]
    }
    if not histories:
        return None
    names = list(dict.fromkeys(n for h in histories.values() for n in _read_part(h[0], "mae")))
    n_panels = 2 + len(names)
    n_columns = 3 if n_panels > 4 else 2
    n_rows = -(-n_panels // n_columns)
    figure, rows = style.make_canvas(n_rows, n_columns, width=style.PAGE, height=2.0, sharex=True)
    panels = [axes for row in rows for axes in row]
    _draw_losses(panels[0], histories)
    for axes, name in zip(panels[1:], names, strict=False):
        _draw_errors(axes, histories, name, _find_quantity(name, experiment))
    _draw_curves(panels[1 + len(names)], histories, lambda record: record.get("lr"))
    panels[1 + len(names)].set(ylabel="learning rate", yscale="log")
    for axes in panels[:n_panels]:
        style.set_log_ticks(axes.yaxis)
    for axes in panels[n_panels:]:
        axes.set_axis_off()
    for axes in panels[max(0, n_panels - n_columns) : n_panels]:
        axes.set_xlabel("epoch")
        axes.tick_params(labelbottom=True)
    style.add_legend_above(figure, panels[1 + len(names)])
    return figure, _make_table(histories, names)


def _find_quantity(name: str, experiment: ExperimentRun) -> Quantity:
    # The trainer compares total energies of structures per atom, see `Quantity.per_atom` of a task.
    per_atom = name == "energy" and experiment.model_info.data_kind == "structure"
    return find_quantity("energy_per_atom" if per_atom else name)


def _draw_losses(axes: Axes, histories: dict[str, History]) -> None:
    _draw_curves(axes, histories, lambda record: _read_part(record, "train").get("loss"), ":")
    if any(_read_part(records[0], "val") for records in histories.values()):
        _draw_curves(axes, histories, lambda record: _read_part(record, "val").get("loss"))
        lines = [Line2D([], [], color=style.INK, linestyle=line) for line in (":", "-")]
        axes.legend(lines, ["training", "validation"])
    axes.set(ylabel="loss", yscale="log")
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))


def _draw_errors(axes: Axes, histories: dict[str, History], name: str, shown: Quantity) -> None:
    def read_value(record: dict[str, Any]) -> float | None:
        error = _read_part(record, "mae").get(name)
        return None if error is None else error * shown.error_factor

    _draw_curves(axes, histories, read_value)
    axes.set(ylabel=add_unit(f"{shown.title} MAE", shown.error_unit), yscale="log")


def _draw_curves(
    axes: Axes, histories: dict[str, History], value: Value, linestyle: str = "-"
) -> None:
    for number, (variant, records) in enumerate(histories.items()):
        points = [(record["epoch"], value(record)) for record in records]
        kept = [(epoch, number) for epoch, number in points if number is not None and number > 0]
        marker = "o" if len(kept) < 2 else ""
        x, y = [epoch for epoch, _ in kept], [number for _, number in kept]
        axes.plot(x, y, linestyle, marker=marker, color=style.choose_colour(number), label=variant)


def _read_part(record: dict[str, Any], part: str) -> dict[str, float | None]:
    """Return a part of a record; empty without validation, or without training in epoch 0."""
    return record.get(part) or {}


def _make_table(histories: dict[str, History], names: list[str]) -> Rows:
    return tabulate(
        {
            "variant": variant,
            "epoch": record["epoch"],
            "train_loss": _read_part(record, "train").get("loss"),
            "val_loss": _read_part(record, "val").get("loss"),
            **{f"{name}_mae": _read_part(record, "mae").get(name) for name in names},
            **{name: record.get(name) for name in ("lr", "grad_norm", "seconds")},
        }
        for variant, records in histories.items()
        for record in records
    )

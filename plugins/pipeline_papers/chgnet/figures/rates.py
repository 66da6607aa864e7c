"""Figure 6 of the paper: large batches with the default learning rate and the rate of Eq. 14."""

from collections.abc import Sequence
from typing import Final

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from pipeline_core.config.sections import TrainOptions
from pipeline_core.figures import Drawn, Rows, style
from pipeline_core.figures.quantities import add_unit, find_quantity
from pipeline_core.project.run import ExperimentRun
from pipeline_papers.chgnet.figures.courses import Course, read_courses

_DEFAULT, _SCALED = style.COLOURS[1], style.COLOURS[0]
_LINES: Final = ("-", "--", ":")
"""Line styles of the batch sizes, the largest first."""


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw errors on the validation split against epochs, a panel for each quantity."""
    courses = _find_comparable(read_courses(experiment))
    if not courses:
        return None
    names = list(courses[0].errors)
    figure, (row,) = style.make_canvas(1, len(names), width=style.PAGE, height=2.2)
    for axes, name in zip(row, names, strict=True):
        _draw_errors(axes, courses, name)
    style.add_legend_above(figure, row[0])
    table: Rows = [["variant", "batch_size", "rate", "epoch", *(f"{name}_mae" for name in names)]]
    for course in courses:
        options = _read_training(course)
        columns = [range(1, course.epochs + 1), *course.errors.values()]
        table += [
            [course.run.variant, options.batch_size, options.learning_rate, *map(float, values)]
            for values in zip(*columns, strict=True)
        ]
    return figure, table


def _read_training(course: Course) -> TrainOptions:
    return course.run.get_section("train", TrainOptions)


def _find_comparable(courses: Sequence[Course]) -> list[Course]:
    """Return courses that differ only in batch size and rate, if one has a scaled rate."""
    scaled = [c for c in courses if _read_training(c).optimizer.lr_batch_size is not None]
    if not scaled:
        return []
    wanted = _strip(scaled[0])
    alike = [c for c in courses if c.epochs and _strip(c) == wanted]
    return sorted(alike, key=lambda c: (-_count_batch(c), _read_training(c).learning_rate))


def _strip(course: Course) -> tuple[object, ...]:
    """Return model and training options without batch size and rate."""
    options = _read_training(course)
    optimizer = options.optimizer.model_copy(update={"lr_batch_size": None})
    return course.run.options, options.model_copy(update={"batch_size": 1, "optimizer": optimizer})


def _count_batch(course: Course) -> int:
    size = _read_training(course).batch_size
    assert size != "all"  # no rate can be scaled by it
    return size


def _draw_errors(axes: Axes, courses: Sequence[Course], name: str) -> None:
    shown = find_quantity("energy_per_atom" if name == "energy" else name)
    sizes = sorted({_count_batch(course) for course in courses}, reverse=True)
    for course in courses:
        options, size = _read_training(course), _count_batch(course)
        is_scaled = options.optimizer.lr_batch_size is not None
        label = f"batch {size}, rate {options.learning_rate:g}{' (scaled)' if is_scaled else ''}"
        colour = _SCALED if is_scaled else _DEFAULT
        values = course.errors[name] * shown.error_factor
        line = _LINES[sizes.index(size) % len(_LINES)]
        axes.plot(range(1, course.epochs + 1), values, line, color=colour, label=label)
    axes.set(xlabel="epoch", yscale="log", title=add_unit(f"{shown.title} MAE", shown.error_unit))
    style.set_log_ticks(axes.yaxis)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))

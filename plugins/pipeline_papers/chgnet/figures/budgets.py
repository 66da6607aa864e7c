"""Equal budgets: errors of networks with and without heads against epochs and against time."""

from collections.abc import Sequence
from textwrap import fill
from typing import Final

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from pipeline_core.config.sections import TrainOptions
from pipeline_core.figures import Drawn, Rows, results, style, tabulate
from pipeline_core.figures.quantities import Quantity, add_unit, find_quantity
from pipeline_core.figures.results import Errors
from pipeline_core.project.run import ExperimentRun
from pipeline_papers.chgnet.figures.courses import NETWORKS, Course, read_courses

COLOURS: Final = dict(
    zip(NETWORKS, (style.FAINT, style.COLOURS[2], style.COLOURS[0], style.COLOURS[1]), strict=True)
)
_LINES: Final = ("-", "--", ":")
"""Line styles of the courses of one kind, the longest first."""
_TITLES: Final = 72
"""Characters of titles side by side."""
_SHOWN: Final = ("energy_per_atom", "forces", "stress", "magmoms")


def read_budgets(experiment: ExperimentRun) -> list[Course]:
    """Return the courses to compare by budget; none if all networks are of one kind.

    These are all courses trained with the batch size of the first, kind by kind, the longest course
    of a kind first.
    """
    courses = [course for course in read_courses(experiment) if course.epochs]
    courses = [course for course in courses if _read_batch(course) == _read_batch(courses[0])]
    if len({course.kind for course in courses}) < 2:
        return []
    return sorted(courses, key=lambda c: (NETWORKS.index(c.kind), -c.epochs))


def _read_batch(course: Course) -> int | str:
    return course.run.get_section("train", TrainOptions).batch_size


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw validation errors: a column for each quantity, against epochs above, time below."""
    courses = read_budgets(experiment)
    if not courses:
        return None
    names = list(courses[0].errors)
    figure, rows = style.make_canvas(2, len(names), width=style.PAGE, height=2.0, sharey="col")
    for column, name in enumerate(names):
        above, below = rows[0][column], rows[1][column]
        _draw_errors(above, below, courses, name)
        shown = find_quantity("energy_per_atom" if name == "energy" else name)
        title = add_unit(f"{shown.title} MAE", shown.error_unit)
        above.set_title(fill(title, _TITLES // len(names)))
        above.set_xlabel("epoch")
        below.set_xlabel("time of training (s)")
    style.add_legend_above(figure, rows[0][0])
    table: Rows = [["course", "variant", "epoch", "seconds", *(f"{name}_mae" for name in names)]]
    for course in courses:
        columns = [range(1, course.epochs + 1), course.seconds, *course.errors.values()]
        table += [
            [course.name, course.run.variant, *map(float, row)]
            for row in zip(*columns, strict=True)
        ]
    return figure, table


def _draw_errors(above: Axes, below: Axes, courses: Sequence[Course], name: str) -> None:
    shown = find_quantity("energy_per_atom" if name == "energy" else name)
    for course in courses:
        alike = [c for c in courses if c.kind == course.kind]
        line = _LINES[alike.index(course) % len(_LINES)]
        values = course.errors[name] * shown.error_factor
        for axes, x in ((above, range(1, course.epochs + 1)), (below, course.seconds)):
            axes.plot(x, values, line, color=COLOURS[course.kind], label=course.name)
    for axes in (above, below):
        axes.set_yscale("log")
        style.set_log_ticks(axes.yaxis)
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))


def draw_table(experiment: ExperimentRun) -> Drawn:
    """Tabulate the errors on the held-out split side by side."""
    courses = read_budgets(experiment)
    reports = {course.run.variant: results.read_metrics(course.run) for course in courses}
    split = next((report.held_out for report in reports.values() if report is not None), None)
    if split is None:
        return None
    errors = {
        variant: report.splits[split].quantities
        for variant, report in reports.items()
        if report is not None and split in report.splits
    }
    shown = [find_quantity(n) for n in _SHOWN if any(n in table for table in errors.values())]
    return None, tabulate(
        {
            "training": course.name,
            "variant": course.run.variant,
            "epochs": course.epochs,
            "seconds": float(course.seconds[-1]),
            "split": split,
            **{
                add_unit(f"{one.title} MAE", one.error_unit): _convert_error(
                    errors[course.run.variant].get(one.name), one
                )
                for one in shown
            },
        }
        for course in courses
        if course.run.variant in errors
    )


def _convert_error(errors: Errors | None, quantity: Quantity) -> float | None:
    """Return the MAE in the unit of the table."""
    return None if errors is None or errors.mae is None else errors.mae * quantity.error_factor

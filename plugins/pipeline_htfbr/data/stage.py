"""Stage `data`: points of a potential energy surface, generated or read from tables."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline_core.artifacts.store import write_json
from pipeline_core.config.raw_files import match_files
from pipeline_core.data.splits import divide_rows
from pipeline_core.hookspecs import Summary
from pipeline_core.project.run import DatasetRun
from pipeline_htfbr.data.datasets import EtheneSource, HonoSource, PointDataset, PointsSource
from pipeline_htfbr.data.made import Made
from pipeline_htfbr.data.point_checks import require_sound
from pipeline_htfbr.data.points import write_points
from pipeline_htfbr.data.report import make_report, summarize

__all__ = ["make_points"]


def make_points(run: DatasetRun) -> Summary:
    """Generate or read the points of a dataset, split them, write `run.data` and `run.report`.

    Args:
        run: A dataset with `plugin: htfbr`.

    Returns:
        Summary for the screen.

    Raises:
        ValueError: The dataset file, a table or its content is wrong; nothing is written.
    """
    options = run.options
    assert isinstance(options, PointDataset)
    # Outside of the `try` below, since this error names the line of the dataset file.
    files = [match_files(run.path, *item) for item in options.raw_patterns.items()]
    try:
        made = _make(options.source, *files)
        require_sound(made)
        points = made.points
        groups = points.group.astype(str).tolist()
        split = divide_rows(points.x, points.energy, options.split, groups)
        points = replace(points, split=split)
    except ValueError as error:
        raise ValueError(f"{run.path}: {error}") from None
    place = made.place if made.inputs else None
    write_points(run.data, points, _make_provenance(run, made), place)
    content = make_report(run.name, made, points, options.split)
    write_json(run.report, content, run.make_provenance())
    return summarize(content)


def _make(source: HonoSource | EtheneSource | PointsSource, *files: Mapping[str, Path]) -> Made:
    match source:
        case HonoSource():
            from pipeline_htfbr.data.sampling import draw_hono

            return draw_hono(source)
        case EtheneSource():
            from pipeline_htfbr.data.trajectories import follow_trajectories

            return follow_trajectories(source)
        case PointsSource():
            from pipeline_htfbr.data.tables import read_tables

            return read_tables(source, *files)


def _make_provenance(run: DatasetRun, made: Made) -> dict[str, Any]:
    record = run.make_provenance()
    return record | {
        "inputs": {**record["inputs"], **made.inputs},
        "versions": {**record["versions"], **made.versions},
    }

"""Stage `data`: raw files to samples, splits and reference energies."""

from __future__ import annotations

from pipeline_core import hookimpl
from pipeline_core.dataset_run import DatasetRun
from pipeline_core.hookspecs import Summary


@hookimpl(trylast=True)
def data(run: DatasetRun) -> Summary:
    """Import the dataset file of `run` into `run.data`, with a report in `run.report`."""
    from pipeline_core.importing.dataset import import_dataset

    return import_dataset(run)

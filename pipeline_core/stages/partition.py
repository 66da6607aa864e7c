"""Stage `partition`: cost of each sample, and forecast of the balance between ranks."""

from pipeline_core import hookimpl
from pipeline_core.config.sections import PartitionOptions
from pipeline_core.hookspecs import Summary
from pipeline_core.project.run import Run


@hookimpl(trylast=True)
def partition(run: Run) -> Summary:
    """Write costs and evaluation batches into `run.partition`; forecast the balance of ranks."""
    from pipeline_core.task import build_task
    from pipeline_core.training.balance.partitioning import write_partition

    return write_partition(run, build_task(run), run.get_section("partition", PartitionOptions))

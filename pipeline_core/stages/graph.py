"""Stage `graph`: neighbour graph and bond graph of every structure."""

from __future__ import annotations

from pipeline_core import hookimpl
from pipeline_core.config.sections import GraphOptions
from pipeline_core.hookspecs import Summary
from pipeline_core.run import Run


@hookimpl(trylast=True)
def graph(run: Run) -> Summary:
    """Write the graph of each sample of `run.data`, in the same order, into `run.graph`."""
    from pipeline_core.graphs import write_graphs

    options = run.get_section("graph", GraphOptions)
    return write_graphs(run.data, run.graph, options, run.make_provenance("graph"))

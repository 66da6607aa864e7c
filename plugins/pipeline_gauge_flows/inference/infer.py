"""All requested uses of a trained flow."""

import json
from contextlib import nullcontext
from functools import partial
from typing import Any, Final

from pipeline_core.artifacts import store
from pipeline_core.distributed.ranks import Ranks, connect_ranks
from pipeline_core.hookspecs import Summary
from pipeline_core.project.run import Run
from pipeline_core.training.out_of_memory import report_out_of_memory
from pipeline_gauge_flows.evaluation.inputs import load_flow
from pipeline_gauge_flows.inference.correlated import differentiate, write_derivatives
from pipeline_gauge_flows.inference.derivative import CONJUGATE
from pipeline_gauge_flows.inference.options import GaugeInferOptions
from pipeline_gauge_flows.inference.sample import write_samples
from pipeline_gauge_flows.model.flow import Flow
from pipeline_gauge_flows.options import GaugeOptions

SCHEMA: Final = "plugin/gauge_flows/inference"


def infer_flow(run: Run) -> Summary:
    """Draw configurations, differentiate observables; write `run.inference` and further files.

    Called on every rank: they share the configurations, rank 0 writes and returns the summary.

    Raises:
        ValueError: The model does not belong to the run, options do not match the base distribution
            of the flow, its lattice or its actions, or a weight is not finite.
    """
    options = run.get_section("infer", GaugeInferOptions)
    model = run.get_section("model", GaugeOptions)
    if options.samples is not None and model.prior != "haar":
        raise ValueError(
            f"{run.experiment}: infer.samples: the flow starts from an ensemble, of which it has "
            "no more configurations than the dataset; remove the key, or choose the prior 'haar'"
        )
    with connect_ranks(run.device, run.state) as ranks:
        _, flow = load_flow(run, ranks.device)
        return _write_all(run, flow, options, ranks)


def _write_all(run: Run, flow: Flow, options: GaugeInferOptions, ranks: Ranks) -> dict[str, Any]:
    provenance = run.make_provenance("infer")
    writing = (
        store.create(run.inference, SCHEMA, provenance) if ranks.is_rank_zero else nullcontext()
    )
    summary: dict[str, Any] = {}
    with writing as file:
        if options.samples is not None:
            batch_size = options.samples.batch_size
            with report_out_of_memory(partial(_describe, "samples", batch_size)):
                summary |= write_samples(run, flow, options.samples, ranks, file)
        if options.derivatives is not None:
            batch_size = options.derivatives.batch_size
            with report_out_of_memory(partial(_describe, "derivatives", batch_size)):
                report, series = differentiate(run, flow, options.derivatives, ranks)
            if file is not None:
                group = file.create_group("derivatives")
                group.attrs["report"] = json.dumps(report)
                write_derivatives(group, series)
                summary |= _summarize(report)
    return summary


def _describe(work: str, batch_size: int) -> str:
    return f"in infer.{work}; lower infer.{work}.batch_size (now {batch_size})"


def _summarize(report: dict[str, Any]) -> dict[str, Any]:
    """Return the summary that the stage prints at its end."""
    conjugate = report["observables"][CONJUGATE]
    return {
        "derivative_by": report["parameter"],
        "configurations": report["n_configurations"],
        "ESS": report["weights"]["flow"]["ess"]["value"],
        "ESS_identity": report["weights"]["identity"]["ess"]["value"],
        "sigmas_from_variance": conjugate["ends"]["sigmas"],
        **{f"error_ratio_{name}": ratio for name, ratio in conjugate["error_ratio"].items()},
    }

"""What tests of the stage `evaluate` share."""

from __future__ import annotations

import json

from pipeline_gauge_flows.evaluation.evaluate import evaluate_flow
from pipeline_gauge_flows.evaluation.options import GaugeEvaluateOptions
from plugins.gauge_flows.trained import replace_section

HEATBATH = {"method": "heatbath", "n_configurations": 400, "thermalisation": 30}


THEORY = {"lattice": {"extents": [4, 4]}, "action": {"beta": 1.0}}


def replace_options(run, **options):
    options = {"cost": None, "resamples": 100, **options}
    return replace_section(run, "evaluate", GaugeEvaluateOptions(**options))


def call_evaluate(run, **options):
    return evaluate_flow(replace_options(run, **options)), json.loads(run.metrics.read_text())


def compute_sigmas(value: dict[str, float], expected: float) -> float:
    return abs(value["value"] - expected) / value["error"]

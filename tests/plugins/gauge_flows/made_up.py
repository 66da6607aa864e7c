"""Made-up results of flows whose weights are normal, in the layouts that the stages write.

With log w normal of variance s² under the flow and mean log Z - s²/2, the effective sample size is
exp(-s²), and both divergences are s²/2; under the target the mean of log w is log Z + s²/2.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import deepcopy
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from pipeline_core.artifacts import store
from pipeline_core.project.project import Project
from pipeline_core.project.run import ExperimentRun, Run
from pipeline_core.stages.builtin import load_registry
from pipeline_gauge_flows.data.actions import ActionOptions, GaugeAction
from pipeline_gauge_flows.data.datasets import FermionOptions
from pipeline_gauge_flows.data.ensembles.statistics import ChainRows
from pipeline_gauge_flows.data.lattice import Lattice
from pipeline_gauge_flows.data.theory import compute_known
from pipeline_gauge_flows.evaluation.cost import compare_costs
from pipeline_gauge_flows.evaluation.predictions import LatticeSeries, write_predictions
from pipeline_gauge_flows.evaluation.report import (
    Reference,
    compare_volumes,
    report_haar,
)
from pipeline_gauge_flows.evaluation.shots import report_shots
from pipeline_gauge_flows.inference.derivative import DerivativeEstimates, Step, compute_independent
from pipeline_gauge_flows.inference.infer import SCHEMA
from pipeline_gauge_flows.inference.options import PionOptions
from pipeline_gauge_flows.inference.pion import PionCorrelator, add_masses, report_pion

ROOT = Path(__file__).parents[3]
EXPECTED = ROOT / "workflows/experiments/gauge_flows/expected.yaml"
VARIANCES = {"plaquette": 0.9, "learned": 0.4}
"""s² on the lattice of the training."""
EPOCHS = 8
LEARNED = {"model": {"layers": {"loops": "learned"}}}
LOOPS: dict[str, Any] = {
    "description": "Flows with made-up results",
    "plugin": "gauge_flows",
    "scale": "smoke",
    "model": {"action": {"beta": 6.0}, "draws": {"train": 250, "val": 64}},
    "graph": {"lattice": {"extents": [4, 4]}},
    "train": {"epochs": EPOCHS, "batch_size": 64},
    "figures": {"formats": ["png"]},
    "variants": {
        "fixed_seed1": {"seed": 1},
        "loops_seed0": LEARNED,
        "loops_seed1": {**LEARNED, "seed": 1},
    },
}
PAYS = "fixed_seed1"
"""The variant that a slow heat bath stands beside."""
STEP = Step("anisotropy", 0.0, 0.2)
N = 4000


def write_experiment(
    folder: Path, content: dict[str, Any], expected: str | None = None
) -> ExperimentRun:
    """Write an experiment into a folder, with the numbers of a paper; return it."""
    path = folder / "workflows/experiments/gauge_flows/made_up.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    if expected is not None:
        (path.parent / "expected.yaml").write_text(expected)
    points = [EntryPoint("gauge_flows", "pipeline_gauge_flows.plugin", "pipeline_core")]
    project = Project(folder / "workflows", folder / "results", load_registry(points))
    return project.load_experiment("gauge_flows/made_up")


def write_loops(folder: Path, content: dict[str, Any] = LOOPS, expected: str | None = None):
    """Return an experiment with and without learned loops, with results of all variants."""
    experiment = write_experiment(folder, content, expected)
    for run in experiment.runs.values():
        write_training(run)
        write_evaluation(run)
    return experiment


def read_theory(run: Run) -> tuple[Lattice, ActionOptions]:
    lattice = run.sections["graph"].lattice
    return Lattice(tuple(lattice.extents), lattice.n_colours), run.options.action


def compute_log_z(run: Run) -> float:
    lattice, options = read_theory(run)
    return compute_known(GaugeAction(options, lattice)).log_z


def compute_ess(epoch: int, seed: int) -> float:
    return epoch / (epoch + 4 + seed)


def write_training(run: Run) -> None:
    """Write a history whose effective sample sizes and divergences follow from the epoch."""
    run.folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for epoch in range(1, EPOCHS + 1):
        terms = {
            "reverse_kl": 2 / epoch - compute_log_z(run),
            "weight": 0.5,
            "weight_square": 0.25 / compute_ess(epoch, run.seed),
            "log_weight": -2 / epoch,
            "log_weight_square": 9.0,
        }
        terms["loss"] = terms["reverse_kl"]
        record = {"epoch": epoch, "lr": 0.01, "train": terms, "val": terms, "mae": {}}
        lines.append(json.dumps({**record, "grad_norm": 3 / epoch, "seconds": 2.0}))
    run.history.write_text("\n".join(lines) + "\n")
    records = [
        {"stage": "graph", "seconds": 1.0, "summary": {"layers": 8}},
        {"stage": "train", "seconds": 20.0, "summary": {}},
    ]
    text = "\n".join(json.dumps({**one, "started": "2026-01-01"}) for one in records)
    (run.folder / "records.jsonl").write_text(text + "\n")


def draw_series(
    variance: float, centre: float, planes: Sequence[float], seed: int, n: int, sign=-1
):
    """Return samples of a flow, or with the other sign configurations of its target."""
    random = np.random.default_rng([seed, n, sign + 1])
    log_weight = centre + variance / 2 * sign + variance**0.5 * random.normal(size=n)
    values = np.array(planes) + 0.05 * random.normal(size=(n, len(planes)))
    columns = {"log_weight": log_weight, "action": -log_weight, "planes": values}
    return {**columns, "plaquette": values.mean(1), "polyakov": random.normal(size=n)}


def write_evaluation(run: Run, n: int = N) -> None:
    """Write what the stage evaluate would, on the lattice and one of twice its volume."""
    lattice, options = read_theory(run)
    parts = []
    for number, factor in enumerate((1, 2)):
        extents = (factor * lattice.extents[0], *lattice.extents[1:])
        larger = Lattice(extents, lattice.n_colours)
        exact = compute_known(GaugeAction(options, larger))
        variance = factor * VARIANCES[run.options.layers.loops]
        seed = 10 * run.seed + number
        ours = draw_series(variance, exact.log_z, exact.planes, seed, n)
        theirs = draw_series(variance, exact.log_z, exact.planes, seed, n // 2, sign=1)
        rows = ChainRows([np.arange(n // 2)])
        reference = Reference(exact, *(() if number else (theirs, rows)))
        report = report_haar(ours, larger, reference, 50, (seed,))
        parts.append(LatticeSeries(larger, ours, reference.series, report))
    reports = [one.report for one in parts]
    content = {
        "prior": "haar",
        "action": options.model_dump(mode="json"),
        "lattices": reports,
        "volume_law": compare_volumes(reports),
        "cost": make_cost(reports[0], heatbath=5e-3 if run.variant == PAYS else 1e-4),
    }
    headline = {"verdict": "Made up.", "numbers": []}
    store.write_json(run.metrics, {"n_parameters": 7, "flow": content, "headline": headline})
    write_predictions(run, parts)


def make_cost(report: dict[str, Any], heatbath: float) -> dict[str, Any]:
    """Return costs of a flow of a millisecond, beside chains of given costs."""
    each = {"reweighted": 1e-3 / report["ess"]["value"], "chain": 8e-3}
    content = {
        "device": "cpu",
        "threads": 1,
        "training_seconds": 16.0,
        "training_cost": 16.0,
        "flow": {"seconds": 1e-3, "cpu_seconds": 1e-3, "seconds_per_independent": each},
        "hmc": make_chain(2e-2, 1.5),
        "heatbath": make_chain(heatbath, 0.5),
    }
    return content | compare_costs(content)


def make_chain(seconds: float, tau: float) -> dict[str, Any]:
    cost = {"seconds": seconds, "cpu_seconds": seconds, "tau_int": tau, "tau_error": 0.1}
    return {**cost, "seconds_per_independent": seconds * max(1.0, 2 * tau), "acceptance": 1.0}


def draw_shift(n: int, part: float, seed: int = 0) -> dict[str, np.ndarray]:
    """Return the series of a shift of normal numbers, S = x²/2 - lambda x, as of configurations.

    At lambda the mean of x is lambda, its variance 1; x -> x + lambda_2 - lambda_1 is exact.

    Args:
        n: How many.
        part: Of the exact shift, which the flow makes.
        seed: Of the numbers.
    """
    x = np.random.default_rng(seed).normal(size=n)
    series = {}
    for prefix, one in (("start:", x), ("end:", x + part * STEP.length)):
        actions = {"base": one**2 / 2, "target": one**2 / 2 - STEP.length * one}
        values = {**actions, "plaquette": one, "square": one**2, "planes": one[:, None]}
        series |= {f"{prefix}{name}": value for name, value in values.items()}
    series["log_weight"] = series["start:base"] - series["end:target"]
    series["log_weight_identity"] = series["start:base"] - series["start:target"]
    return series


MASS, SLOPE, MIDDLE = 1.0, 0.1, 5
"""M at lambda = 0 and dM/dlambda of a made-up meson, and T/2."""


CORRELATOR = PionCorrelator(
    PionOptions().n_sources, FermionOptions(kappa=0.1), Lattice((2 * MIDDLE, 2), 3), (0,)
)


def draw_meson(x: np.ndarray, seed: int = 0) -> np.ndarray:
    """Return correlators whose mean at lambda is cosh(M(lambda) (T/2 - t)), (n, T/2 + 1).

    M(lambda) = MASS + SLOPE lambda, since the mean of exp(k x) is exp(k lambda + k²/2).

    Args:
        x: Normal numbers of mean lambda and variance 1, (n,).
        seed: Of noise of each slice, the same before and after a flow.
    """
    distance = np.arange(MIDDLE, -1, -1)
    noise = 1 + 0.02 * np.random.default_rng([seed, 1]).normal(size=(len(x), MIDDLE + 1))
    angle = (MASS + SLOPE * x[:, None]) * distance
    return np.cosh(angle) * np.exp(-((SLOPE * distance) ** 2) / 2) * noise


def make_meson_estimates(part: float, n: int = N, seed: int = 0) -> DerivativeEstimates:
    """Return estimates with the mass of the made-up meson, whose flow makes part of the shift."""
    series = draw_shift(n, part, seed)
    for prefix in ("start:", "end:"):
        series[f"{prefix}pion"] = draw_meson(series[f"{prefix}plaquette"], seed)
    chains = ChainRows([np.arange(n)])
    estimates = DerivativeEstimates(series, STEP, chains, 100, (seed,))
    add_masses(estimates, CORRELATOR.lattice)
    return estimates


def write_derivatives(
    folder: Path, second: bool = True, expected: str | None = None, pion: bool = False
) -> ExperimentRun:
    """Return an experiment with derivatives by a flow that makes 80 % of an exact shift."""
    content = {key: LOOPS[key] for key in ("description", "plugin", "model", "graph", "train")}
    experiment = write_experiment(folder, {**content, "figures": LOOPS["figures"]}, expected)
    run = experiment.runs["base"]
    write_training(run)
    chains = ChainRows([np.arange(N)])
    estimates = DerivativeEstimates(draw_shift(N, 0.8), STEP, chains, 100, (0,))
    if pion:
        estimates = make_meson_estimates(0.8)
    reports = {name: estimates.report(name) for name in estimates.names}
    for report in reports.values():
        report |= {"known": None, "known_sigmas": None, "independent": None}
        if second:
            mean = estimate_independent(report)
            report["independent"] = mean.to_dict()
            report["error_ratio"]["independent"] = mean.error / report["flow"]["error"]
    reports["plaquette"]["known"] = 1.0
    weights = {name: {"ess": {"value": value, "error": 0.01}} for name, value in ESS.items()}
    content = {
        "parameter": STEP.parameter, "start": STEP.start, "end": STEP.end, "n_configurations": N,
        "n_blocks": N, "weights": weights, "observables": reports,
        "seconds": {
            "generation": 8e-4 if second else None, "measurement": 2e-4, "flow": 1.8e-3,
            "reweighting": 1e-3,
        },
        "independent_configurations": 2 * N if second else None,
        "pion": report_pion(CORRELATOR, estimates) if pion else None,
    }  # fmt: skip
    with store.create(run.inference, SCHEMA, run.make_provenance("infer")) as file:
        file.create_group("derivatives").attrs["report"] = json.dumps(content)
    return experiment


ESS = {"flow": 0.99, "identity": 0.9}


def estimate_independent(report: dict[str, Any]):
    """Return what two ensembles of N would give, for a number of variance 1."""
    from pipeline_gauge_flows.evaluation.resampling import Value

    value = report["flow"]["value"]
    return compute_independent(Value(0.0, N**-0.5), Value(value * STEP.length, N**-0.5), STEP)


def read_legend(figure):
    return [text.get_text() for one in figure.legends for text in one.get_texts()]


def replace_variants(**variants):
    return {**deepcopy(LOOPS), "variants": variants}


NOISE = {"flow": 0.05, "identity": 0.2}
"""Variance of log r of a noise shot, with a flow of pseudofermions and with none."""


def write_shots(folder: Path) -> ExperimentRun:
    """Return an experiment whose second variant has noise shots, four of each configuration."""
    flow = {"prior": "ensemble", "pseudofermions": {}}
    trained = {"loops_seed0": {"model": flow, "train": {"objective": "pseudofermions"}}}
    content = replace_variants(**trained)
    del content["model"]["draws"]  # configurations of an ensemble are not drawn
    experiment = write_experiment(folder, content)
    random, s = np.random.default_rng(0), VARIANCES["learned"] ** 0.5
    log_weight = s * random.normal(size=N)
    noise = {
        f"shots:{kind}": v**0.5 * random.normal(size=(N, 4)) - v / 2 for kind, v in NOISE.items()
    }
    nothing = dict.fromkeys(("start:base", "start:gauge", "end:target", "end:gauge"), np.zeros(N))
    chains = ChainRows([np.arange(N)])
    series = {"log_weight": log_weight, **noise, **nothing}
    weights = {"value": float(np.exp(-(s**2))), "error": 0.01}
    quarks = {"kappa": 0.164111, "two_kappa_mu": 0.003938664}
    for name, run in experiment.runs.items():
        write_training(run)
        report = {"extents": [4, 4], "ess": weights, "identity": {"ess": weights}}
        if name != "base":
            report["pseudofermions"] = report_shots(series, chains, 100, (0,))
        action = {"name": "symanzik", "beta": 3.8, "anisotropy": 0.01, "fermions": quarks}
        flow = {"action": action, "lattices": [report], "volume_law": []}
        store.write_json(run.metrics, {"flow": flow})
    return experiment

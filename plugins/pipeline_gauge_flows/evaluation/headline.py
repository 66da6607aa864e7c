"""A flow in one sentence and a few numbers, for the first page of a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pipeline_gauge_flows.evaluation.cost import cheapest
from pipeline_gauge_flows.evaluation.resampling import Value

_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def make_headline(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return what readers should see first: `verdict`, and `numbers` with title, value and note.

    Args:
        content: `flow` of `run.metrics`.
    """
    first = content["lattices"][0]
    return {"verdict": _verdict(first), "numbers": [*_numbers(first), *_cost(content["cost"])]}


def _verdict(report: Mapping[str, Any]) -> str:
    extents = "x".join(map(str, report["extents"]))
    text = (
        f"On {extents} the effective sample size is {_shown(report['ess'])} of "
        f"{report['n_samples']:,} samples"
    )
    if not trusted(report):
        return (
            f"{text}, but their weights have too long a tail (Pareto k {_k(report)}) to trust it."
        )
    divergence = report["kl"]["reverse"]
    source = "" if report["kl"]["log_z"] == "estimate" else f" ({report['kl']['log_z']} log Z)"
    return f"{text}; the divergence KL(q, p) is {_shown(divergence)}{source}."


def trusted(report: Mapping[str, Any]) -> bool:
    """Return whether the tail of the weights allows averages with errors."""
    return report["k_hat"] is None or report["k_hat"] < report["k_hat_limit"]


def _k(report: Mapping[str, Any]) -> str:
    return "none" if report["k_hat"] is None else f"{report['k_hat']:.2f}"


def _numbers(report: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    yield _number(
        "Effective sample size",
        _shown(report["ess"]),
        f"{report['n_samples']:,} samples, Pareto k {_k(report)} of at most "
        f"{report['k_hat_limit']:.2f}",
    )
    if report["forward"] is not None:
        n = report["forward"]["n_configurations"]
        yield _number(
            "Forward effective sample size",
            _shown(report["forward"]["ess"]),
            f"{n:,} configurations of the ensemble",
        )
    log_z = report["log_z"]
    bracket = f"between {_shown(log_z['elbo'])} and {_shown(log_z['eubo'])}"
    known = "" if log_z["known"] is None else f"; {log_z['known']['how']} {_known(log_z['known'])}"
    yield _number("log Z", _shown(log_z["estimate"]), f"{bracket}{known}")
    yield _number("KL(q, p)", _shown(report["kl"]["reverse"]), "0 for an exact flow")
    if report["metropolis"] is not None:
        tau = report["metropolis"]["tau_int"]
        note = "" if tau is None else f"autocorrelation time {tau:.3g} proposals"
        yield _number("Acceptance", f"{100 * report['metropolis']['acceptance']:.1f} %", note)
    plaquette = report["observables"]["plaquette"]
    yield _number("Plaquette", _shown(plaquette["flow"]), "; ".join(_others(plaquette)))


def _others(observable: Mapping[str, Any]) -> Iterator[str]:
    if observable["known"] is not None:
        yield f"known {observable['known']['value']:.6f}"
    if observable["ensemble"] is not None:
        found = observable["ensemble"]
        yield f"ensemble {Value(found['mean'], found['error'])}"


def _cost(cost: Mapping[str, Any] | None) -> Iterator[dict[str, str]]:
    own = None if cost is None else cheapest(cost)
    if cost is None or own is None or cost["rival"] is None:
        return
    rival, ratio = cost["rival"], cost["flow_over_rival"]
    name = {"heatbath": "heat bath", "hmc": "HMC"}[rival]
    theirs = _time(cost[rival]["seconds_per_independent"])
    word = f"{ratio:.3g} times as much as" if ratio >= 1 else f"{ratio:.3g} of"
    where = "core time" if cost["device"] == "cpu" else "GPU time"
    note = f"{where}; {word} by {name} ({theirs})"
    yield _number("Independent configuration", _time(own), note)


def _number(title: str, value: str, note: str) -> dict[str, str]:
    return {"title": title, "value": value, "note": note}


def _shown(content: Mapping[str, float | None]) -> str:
    value, error = content["value"], content["error"]
    return "–" if value is None else str(Value(value, 0.0 if error is None else error))


def _known(content: Mapping[str, float]) -> str:
    return str(Value(content["value"], content["uncertainty"]))


def _time(seconds: float) -> str:
    factor, unit = next((f, u) for f, u in _TIMES if seconds >= f or u == "µs")
    return f"{seconds / factor:.3g} {unit}"

"""Summary of a flow in one sentence and a few numbers, for the first page of a report."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipeline_gauge_flows.evaluation.cost import find_cheapest
from pipeline_gauge_flows.evaluation.resampling import Value

_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def make_headline(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first lines of a report: `verdict`, and `numbers` with title, value and note.

    Args:
        content: `flow` of `run.metrics`.
    """
    first = content["lattices"][0]
    facts = [content["prior"], content.get("start"), content["action"]]
    problem = json.dumps([*facts, first["extents"], first["n_colours"]])
    numbers = [
        *_list_numbers(first),
        *_list_volumes(content["volume_law"]),
        *_list_cost(content["cost"]),
    ]
    return {
        "verdict": _write_verdict(first),
        "numbers": [{**number, "problem": problem} for number in numbers],
    }


def _write_verdict(report: Mapping[str, Any]) -> str:
    extents = "x".join(map(str, report["extents"]))
    text = (
        f"On {extents} the effective sample size is {_format_value(report['ess'])} of "
        f"{report['n_samples']:,} samples"
    )
    if not check_tail(report):
        shape = _format_shape(report)
        return f"{text}, but their weights have too long a tail (Pareto k {shape}) to trust it."
    divergence = report["kl"]["reverse"]
    source = "" if report["kl"]["log_z"] == "estimate" else f" ({report['kl']['log_z']} log Z)"
    return f"{text}; the divergence KL(q, p) is {_format_value(divergence)}{source}."


def check_tail(report: Mapping[str, Any]) -> bool:
    """Return True if the tail of the weights allows averages with errors."""
    return report["k_hat"] is None or report["k_hat"] < report["k_hat_limit"]


def _format_shape(report: Mapping[str, Any]) -> str:
    return "none" if report["k_hat"] is None else f"{report['k_hat']:.2f}"


def _list_numbers(report: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield _make_number(
        "Effective sample size",
        _format_value(report["ess"]),
        f"{report['n_samples']:,} samples, Pareto k {_format_shape(report)} of at most "
        f"{report['k_hat_limit']:.2f}",
        amount=report["ess"]["value"] if check_tail(report) else None,
        better="more",
    )
    if report["forward"] is not None:
        n = report["forward"]["n_configurations"]
        yield _make_number(
            "Forward effective sample size",
            _format_value(report["forward"]["ess"]),
            f"{n:,} configurations of the ensemble",
            amount=report["forward"]["ess"]["value"],
            better="more",
        )
    log_z = report["log_z"]
    bracket = f"between {_format_value(log_z['elbo'])} and {_format_value(log_z['eubo'])}"
    theory = ""
    if (known := log_z["known"]) is not None:
        theory = f"; {known['how']} {Value(known['value'], known['uncertainty'])}"
    estimate, divergence = log_z["estimate"], report["kl"]["reverse"]
    note = f"{bracket}{theory}"
    yield _make_number("log Z", _format_value(estimate), note, amount=estimate["value"])
    yield _make_number(
        "KL(q, p)",
        _format_value(divergence),
        "0 for an exact flow",
        amount=divergence["value"],
        better="less",
    )
    if report["metropolis"] is not None:
        tau = report["metropolis"]["tau_int"]
        note = "" if tau is None else f"autocorrelation time {tau:.3g} proposals"
        rate = 100 * report["metropolis"]["acceptance"]
        yield _make_number("Acceptance", f"{rate:.1f} %", note, amount=rate, unit="%")
    plaquette = report["observables"]["plaquette"]
    note = "; ".join(_list_references(plaquette))
    value = plaquette["flow"]
    yield _make_number("Plaquette", _format_value(value), note, amount=value["value"])


def _list_volumes(law: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for entry in law[1:]:
        extents = "x".join(map(str, entry["extents"]))
        note = f"without training; {_format_value(entry['expected'])} by ESS(V0)^(V/V0)"
        yield _make_number(f"The same on {extents}", _format_value(entry["ess"]), note)


def _list_references(observable: Mapping[str, Any]) -> Iterator[str]:
    if observable["known"] is not None:
        yield f"known {observable['known']['value']:.6f}"
    if observable["ensemble"] is not None:
        ensemble = observable["ensemble"]
        yield f"ensemble {Value(ensemble['mean'], ensemble['error'])}"


def _list_cost(cost: Mapping[str, Any] | None) -> Iterator[dict[str, Any]]:
    own = None if cost is None else find_cheapest(cost)
    if cost is None or own is None or cost["rival"] is None:
        return
    rival, ratio = cost["rival"], cost["flow_over_rival"]
    name = {"heatbath": "heat bath", "hmc": "HMC"}[rival]
    theirs = _format_time(cost[rival]["seconds_per_independent"])
    word = f"{ratio:.3g} times as much as" if ratio >= 1 else f"{ratio:.3g} of"
    where = "core time" if cost["device"] == "cpu" else "GPU time"
    note = f"{where}; {word} by {name} ({theirs})"
    yield _make_number("Independent configuration", _format_time(own), note)


def _make_number(title: str, value: str, note: str, **facts: Any) -> dict[str, Any]:
    """Return a number; variants are compared by `amount`, `unit` and `better`."""
    return {"title": title, "value": value, "note": note, **facts}


def _format_value(content: Mapping[str, float | None]) -> str:
    value, error = content["value"], content["error"]
    return "–" if value is None else str(Value(value, 0.0 if error is None else error))


def _format_time(seconds: float) -> str:
    factor, unit = next((f, u) for f, u in _TIMES if seconds >= f or u == "µs")
    return f"{seconds / factor:.3g} {unit}"

"""Gated messages on the CPU, in C: messages go through all steps in blocks that stay in the cache.

Messages are cut into ranges, each with derivatives by the parameters of its own, which are added in
one order: the result does not depend on the number of threads, which share the ranges.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from torch import Tensor

from pipeline_kernels.message.gated.route import (
    N_TABLES,
    Arguments,
    Inputs,
    Route,
    decode,
    make_kept,
)
from pipeline_kernels.message.segments import Segments
from pipeline_kernels.message.segments.cpu import sum_segments
from pipeline_kernels.native import call_routine, compute_size, load_library, make_plain, pack
from pipeline_kernels.threads import choose_threads, count_ranges

MIN_RANGE: Final = 256
"""Messages that a range has at least, unless there are fewer."""
WORK: Final = 1000
"""Numbers read and written for a message, for the choice of threads."""
TABLES: Final = tuple(f"table_{t}" for t in range(N_TABLES))
ROWS: Final = (*(f"row_{t}" for t in range(N_TABLES)), "factor_row", "target")
PARAMETERS: Final = ("projection", "gain", "shift", "weight", "bias")
POINTERS: Final = (
    *TABLES,
    *("factors", *PARAMETERS, "gradient"),
    *(f"d_table_{t}" for t in range(N_TABLES)),
    "d_factors",
    *ROWS,
    *("messages", "by_sum", "kept", "by_h", "by_features", "by_factor"),
    *(f"by_{name}" for name in PARAMETERS),
)


def values(keep: bool, *arguments: *Arguments) -> tuple[Tensor, Tensor]:
    """Implement `reference.values`, and keep intermediate results for `gradient`."""
    inputs, route = decode(*arguments)
    outputs = {"messages": inputs.gain.new_empty(route.n_messages, inputs.gain.shape[2])}
    kept = make_kept(keep, inputs, route)
    if keep:
        outputs["kept"] = kept
    _run("values", inputs, route, outputs)
    (sums,) = _sum_rows([outputs["messages"]], [route.targets])
    return sums, kept


def gradient(
    g: Tensor, with_parameters: bool, kept: Tensor | None, *arguments: *Arguments
) -> list[Tensor]:
    """Implement `reference.gradient`; by tables and factors from results kept by `values`."""
    inputs, route = decode(*arguments)
    outputs = _make_outputs(inputs, route, with_parameters)
    others = {"gradient": g, **outputs}
    if kept is not None and not with_parameters:
        others["kept"] = kept
    _run("gradient", inputs, route, others)
    return _sum_outputs(outputs, route)


def second(directions: Sequence[Tensor], g: Tensor, *arguments: *Arguments) -> list[Tensor]:
    """Implement `reference.second`."""
    inputs, route = decode(*arguments)
    outputs = _make_outputs(inputs, route, with_parameters=True)
    names = [*(f"d_table_{t}" for t in range(N_TABLES)), "d_factors"]
    changes = dict(zip(names, directions, strict=False))
    by_sum = g.new_empty(route.n_messages, g.shape[1])
    _run("second", inputs, route, {"gradient": g, "by_sum": by_sum, **changes, **outputs})
    (by_g,) = _sum_rows([by_sum], [route.targets])
    return [by_g, *_sum_outputs(outputs, route)]


def _make_outputs(inputs: Inputs, route: Route, with_parameters: bool) -> dict[str, Tensor]:
    """Allocate derivatives by h and factor of each message, by parameters of each range."""
    n, gain = route.n_messages, inputs.gain
    outputs = {"by_h": gain.new_empty(n, inputs.tables[0].shape[1])}
    if inputs.projection is not None:
        outputs["by_features"] = gain.new_empty(n, inputs.projection.shape[1])
    if inputs.factors is not None:
        outputs["by_factor"] = gain.new_empty(n, gain.shape[2])
    if with_parameters:
        for name, parameter in _name_parameters(inputs).items():
            outputs[f"by_{name}"] = gain.new_empty(count_ranges(n, MIN_RANGE), *parameter.shape)
    return outputs


def _sum_outputs(outputs: Mapping[str, Tensor], route: Route) -> list[Tensor]:
    """Sum the outputs of `_make_outputs` over messages and ranges."""
    others = dict(outputs)
    by_h = others.pop("by_h")
    by_rows, plans = [by_h, by_h, others.pop("by_features", by_h)], [*route.tables]
    if route.factors is not None:
        by_rows.append(others.pop("by_factor"))
        plans.append(route.factors)
    return _sum_rows(by_rows, plans) + [partial.sum(0) for partial in others.values()]


def _sum_rows(values: Sequence[Tensor], plans: Sequence[Segments | None]) -> list[Tensor]:
    """Sum the values of messages that share a row; those without a plan stay as they are."""
    present = [(x, plan) for x, plan in zip(values, plans, strict=True) if plan is not None]
    if not present:
        return list(values)
    sums = iter(sum_segments(*zip(*present, strict=True)))
    return [x if plan is None else next(sums) for x, plan in zip(values, plans, strict=True)]


def _name_parameters(inputs: Inputs) -> dict[str, Tensor]:
    """Return the parameters that there are by name, in the order of `Inputs.parameters`."""
    fields = inputs._asdict()
    return {name: fields[name] for name in PARAMETERS if fields[name] is not None}


def _run(name: str, inputs: Inputs, route: Route, others: Mapping[str, Tensor]) -> None:
    """Call a routine in as many threads as its work repays."""
    library = load_library("gated", inputs.gain.dtype)
    tensors = _name_parameters(inputs) | dict(others)
    tensors |= zip(TABLES, inputs.tables, strict=True)
    tensors |= {row: plan.index for row, plan in zip(ROWS, route.plans, strict=True) if plan}
    if inputs.factors is not None:
        tensors["factors"] = inputs.factors
    plain = {name: make_plain(tensor) for name, tensor in tensors.items()}
    n, n_ranges = route.n_messages, count_ranges(route.n_messages, MIN_RANGE)
    hidden = 0 if inputs.weight is None else inputs.weight.shape[1]
    n_features = 0 if inputs.projection is None else inputs.projection.shape[1]
    sizes = n, n_ranges, inputs.gain.shape[2], hidden, n_features
    arrays = pack(*map(plain.get, POINTERS), *sizes)
    n_threads = min(n_ranges, choose_threads(WORK * n))
    n_bytes = compute_size(library, "memory_size", arrays)
    call_routine(library, name, arrays, n_threads=n_threads, n_bytes=n_bytes)

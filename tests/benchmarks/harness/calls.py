"""Calls of one subject on both sides, beside the operations that they take."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from harness.peak import measure_peak
from harness.sides import Place, Side, alternate, compare_sides, measure_memory, open_sides


def measure_calls(
    places: Mapping[str, Place],
    kind: str,
    arrays: Mapping[str, Any],
    groups: Sequence[Mapping[str, float]],
    *,
    threads: int,
    repeats: int,
    device: str = "cpu",
    same: bool = True,
    parameters: bool = False,
    operators: str | None = None,
) -> dict[str, dict[str, Any]]:
    """Make the same subject on both sides, check that they agree, and measure calls in turn.

    Args:
        places: Of the sides.
        kind: Name of the subject.
        arrays: What it is made of.
        groups: The calls to measure, with operations of each; each group has processes of its own:
            TorchScript, in which e3nn writes its modules, optimises for the first calls it sees.
        threads: Of each side.
        repeats: Rounds.
        device: Where our side works.
        same: Whether the sides compute the same.
        parameters: Whether to count what the model of each side learns.
        operators: Beginning of the names of packages whose operators a peer has on a GPU:
            `peer_operators` lists those that were loaded, `peer_slowest_kernels` what ran.

    Returns:
        The figures of each call. `roofline_share` is the time of its operations at
        `matrix_gflops`, the rate of a large product of matrices, over ours; `peak_gflops` is that
        of multiply-adds in registers.

    Raises:
        RuntimeError: Sides that should agree do not.
    """
    facts: dict[str, Any] = {"deviation": None}
    if same and len(groups) > 1:
        with open_sides(places, kind, arrays, threads) as sides:
            facts["deviation"] = compare_sides(sides)
    result = {}
    for group in groups:
        with open_sides(places, kind, arrays, threads) as sides:
            if same and len(groups) == 1:
                facts["deviation"] = compare_sides(sides)
            figures = {
                call: alternate(sides, call, repeats) | measure_memory(sides, call)
                for call in group
            }
            if parameters:
                facts |= {f"{n}_parameters": side.ask("parameters") for n, side in sides.items()}
            if operators is not None:
                facts |= watch_peer(sides, next(iter(group)), operators, device)
            rate = sides["ours"].ask("matrix_rate", device)  # forgets the subject
        facts |= {"matrix_gflops": rate / 1e9}
        facts["peak_gflops"] = measure_peak(torch.float32, threads) if device == "cpu" else None
        for call, operations in group.items():
            share = operations / rate / figures[call]["ours_s"]
            result[call] = figures[call] | facts | {"flop": operations, "roofline_share": share}
    return result


def watch_peer(sides: Mapping[str, Side], call: str, operators: str, device: str) -> dict[str, Any]:
    """Return what shows by which kernels a peer calculates on a GPU; None elsewhere."""
    names = ("peer_operators", "peer_slowest_kernels")
    if device == "cpu" or "peer" not in sides:
        return dict.fromkeys(names)
    peer = sides["peer"]
    shown = peer.ask("loaded_modules", operators), peer.ask("slowest_kernels", call)
    return dict(zip(names, shown, strict=True))

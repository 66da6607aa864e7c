"""Studies of speed and of sharing that `infer` can be asked for: figures 3, 5, 6, 7 of the paper.

They need a basis and sizes of a network, no trained weights. Rank 0 does them, with processes of
its own where several ranks are measured. Results are in the group `studies` of `run.inference`:

| name         | content                                                                     |
|--------------|-----------------------------------------------------------------------------|
| `throughput` | JSON, see `throughput.study_throughput`                                     |
| `partitions` | JSON: atoms, edges by cutoff, link, and `records`, see `partitions.Shared`  |
| `domains/`   | structure, and of the drawn partitions `labels/` and `traffic/` by method,  |
|              | see `partitions.Drawn`; attributes `cutoff`, `parts`                        |
| `scaling`    | JSON, see `scaling.study_scaling`                                           |
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import h5py
    import torch

    from pipeline_core.config.sections import LinkOptions
    from pipeline_egnn_esp.basis import Basis
    from pipeline_egnn_esp.inference.options import ESPInferOptions
    from pipeline_egnn_esp.options import ESPOptions
    from pipeline_egnn_esp.paper.studies.partitions import Divisions, Drawn

GROUP: Final = "studies"
"""Group of `run.inference`; no structure can have this name."""
_SIZE: Final = 4
"""Bytes of a number in messages."""
_SHOWN: Final = {
    "neighbours": "neighbours_mean",
    "received": "received_mean",
    "edge_imbalance": "edge_imbalance",
    "seconds": "seconds",
}


def study(
    file: h5py.File,
    options: ESPInferOptions,
    model: ESPOptions,
    basis: Basis,
    device: torch.device,
    seed: int,
    link: LinkOptions,
) -> dict[str, Any]:
    """Run the studies that are asked for, and write their results.

    Args:
        file: Where to write.
        options: What is asked for.
        model: Sizes of the network.
        basis: Shells of the elements.
        device: Where times are measured.
        seed: Of random structures.
        link: By which partitions are chosen.

    Returns:
        Numbers for people and for comparisons; lists over numbers of parts, ranks or channels.

    Raises:
        ValueError: A study is impossible.
    """
    if not (options.throughput or options.partitions or options.scaling):
        return {}
    group, summary = file.create_group(GROUP), {}
    if options.throughput is not None:
        from pipeline_egnn_esp.paper.studies.throughput import study_throughput

        content = study_throughput(options.throughput, model, device)
        _write(group, "throughput", content)
        summary["throughput"] = _tabulate_throughput(content)
    shared = []
    if options.partitions is not None:
        from pipeline_egnn_esp.paper.studies.partitions import study_partitions
        from pipeline_egnn_esp.task import make_link

        chosen_by = make_link(link, model, _SIZE)
        divisions = study_partitions(options.partitions, basis.elements, chosen_by, seed)
        content = _tabulate_partitions(divisions) | {"link": asdict(chosen_by)}
        _write(group, "partitions", content)
        if divisions.drawn is not None:
            _write_domains(group.create_group("domains"), divisions.drawn)
        summary["partitions"] = _tabulate_by_cutoff(content)
        shared = divisions.shared
    if options.scaling is not None:
        from pipeline_egnn_esp.paper.studies.scaling import study_scaling

        content = study_scaling(
            options.scaling, model, basis, shared, device, options.work_bytes, seed
        )
        _write(group, "scaling", content)
        summary["scaling"] = _tabulate_scaling(content)
    return summary


def _write(group: h5py.Group, name: str, content: Mapping[str, Any]) -> None:
    # A dataset, as attributes hold 64 KiB at most.
    group.create_dataset(name, data=json.dumps(content))


def _tabulate_partitions(divisions: Divisions) -> dict[str, Any]:
    return {
        "atoms": divisions.n_atoms,
        "edges": {f"{cutoff:g}": n for cutoff, n in divisions.n_edges.items()},
        "records": [one.record() for one in divisions.shared],
    }


def _write_domains(group: h5py.Group, drawn: Drawn) -> None:
    group.attrs["cutoff"], group.attrs["parts"] = drawn.cutoff, drawn.parts
    group.create_dataset("positions", data=drawn.structure.positions.astype("f4"))
    group.create_dataset("atomic_numbers", data=drawn.structure.atomic_numbers.astype("i2"))
    group.create_dataset("cell", data=drawn.structure.cell)
    for method in drawn.labels:
        group.create_dataset(f"labels/{method}", data=drawn.labels[method].astype("i4"))
        traffic = drawn.traffic[method].astype("i4")
        group.create_dataset(f"traffic/{method}", data=traffic, compression="gzip")


def _tabulate_throughput(content: Mapping[str, Any]) -> dict[str, Any]:
    curves = content["curves"]
    return {
        "channels": [curve["channels"] for curve in curves],
        "message_bytes": [curve["message_bytes"] for curve in curves],
        "best_per_second": [max(curve["per_second"]) for curve in curves],
        "saturated_from": [curve["saturated"] for curve in curves],
    }


def _tabulate_by_cutoff(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return lists over numbers of parts, by cutoff and method."""
    summary: dict[str, Any] = {"atoms": content["atoms"]}
    for cutoff, n_edges in content["edges"].items():
        mine = [one for one in content["records"] if f"{one['cutoff']:g}" == cutoff]
        summary[cutoff] = {"edges": n_edges, "parts": _drop_repeats(one["parts"] for one in mine)}
        for method in _drop_repeats(one["method"] for one in mine):
            rows = [one for one in mine if one["method"] == method]
            summary[cutoff][method] = {
                name: [row[key] for row in rows] for name, key in _SHOWN.items()
            }
    return summary


def _tabulate_scaling(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was fitted, and lists over numbers of ranks by mode, cutoff and method."""
    summary: dict[str, Any] = {
        "cost_model": content["cost_model"],
        "latency": content["link"]["latency"],
        "bandwidth": content["link"]["bandwidth"],
    }
    for one in content["measured"]:
        mine = summary.setdefault("measured", {}).setdefault(one["mode"], {})
        for name in ("ranks", "seconds", "modelled"):
            mine.setdefault(name, []).append(one[name])
    for one in content["projected"]:
        by_mode = summary.setdefault(one["mode"], {})
        mine = by_mode.setdefault(f"{one['cutoff']:g}", {}).setdefault(one["method"], {})
        for name in ("ranks", "seconds", "bytes_received", "received"):
            mine.setdefault(name, []).append(one[name])
    for mode in ("line", "cube"):
        for methods in summary.get(mode, {}).values():
            for mine in methods.values():
                mine["efficiency"] = [float(mine["seconds"][0] / s) for s in mine["seconds"]]
    return summary


def _drop_repeats(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))

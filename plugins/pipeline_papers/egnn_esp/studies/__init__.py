"""Studies of speed and partitioning, figures 3, 5, 6 and 7, beside the engine's measured steps.

They need a basis and sizes of a network, no trained weights. Rank 0 does them in the stage
`profile`, with processes of its own where several ranks are measured. To the content of
`run.profile` they add

| key          | content                                                                        |
|--------------|--------------------------------------------------------------------------------|
| `throughput` | see `throughput.study_throughput`                                              |
| `partitions` | atoms, edges by cutoff, link, and `records`, see `partitions.Shared`           |
| `domains`    | cutoff, parts, positions and cell of the structure, and of the partitions that |
|              | are drawn labels and traffic by method, see `study_partitions`; null for none  |
| `bulk`       | keys of which evidence keeps only the drawn data                               |
| `scaling`    | see `scaling.study_scaling`                                                    |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pipeline_core.artifacts.extracts import BULK

if TYPE_CHECKING:
    import torch

    from pipeline_core.config.sections import Link
    from pipeline_core.distributed.ranks import Ranks
    from pipeline_core.project.run import Run
    from pipeline_egnn_esp.data.basis import Basis
    from pipeline_egnn_esp.options import ESPOptions
    from pipeline_papers.egnn_esp.studies.options import ESPStudyOptions
    from pipeline_papers.egnn_esp.studies.partitions import Shared

_SIZE: Final = 4
"""Bytes of a number in messages."""
_SHOWN: Final = {
    "neighbours": "neighbours_mean",
    "received": "received_mean",
    "edge_imbalance": "edge_imbalance",
    "seconds": "seconds",
}


def profile_run(run: Run) -> dict[str, Any] | None:
    """Measure the steps and studies of the section `profile`, on rank 0; write `run.profile`.

    Returns:
        Numbers for people and for comparisons, see `pipeline_core.profiling.report.summarize` and
        `summarize`; None if the run selects no study.

    Raises:
        ValueError: `run.model` is missing or not of this run, or a study is impossible.
    """
    from pipeline_core.profiling import report
    from pipeline_core.profiling.study import write_profile
    from pipeline_papers.egnn_esp.studies.options import ESPStudyOptions

    options = run.get_section("profile", ESPStudyOptions)
    if not options.has_studies:
        return None
    content = write_profile(run, partial(_measure, run, options))
    return (report.summarize(content) if "steps" in content else {}) | summarize(content)


def _measure(run: Run, options: ESPStudyOptions, ranks: Ranks) -> dict[str, Any]:
    """Measure the steps and do the studies that options select."""
    from pipeline_core.config.sections import PartitionOptions
    from pipeline_core.profiling.study import measure_steps
    from pipeline_core.training.model_file import load_model
    from pipeline_egnn_esp.data.basis import Basis
    from pipeline_egnn_esp.options import ESPOptions

    content = measure_steps(run, options, ranks.device) if options.samples else {}
    basis = Basis.from_json(load_model(run.model, run.model_info)["metadata"]["basis"])
    link = run.get_section("partition", PartitionOptions).link
    model = run.get_section("model", ESPOptions)
    return content | study(options, model, basis, ranks.device, run.seed, link)


def study(
    options: ESPStudyOptions,
    model: ESPOptions,
    basis: Basis,
    device: torch.device,
    seed: int,
    link: Link,
) -> dict[str, Any]:
    """Do the selected studies.

    Args:
        options: Options of the studies.
        model: Sizes of the network.
        basis: Shells of the elements.
        device: Device on which times are measured.
        seed: Seed of random structures.
        link: Latency and bandwidth by which partitions are chosen.

    Returns:
        The keys of the module docstring, JSON-able.

    Raises:
        ValueError: A study is impossible.
    """
    content: dict[str, Any] = {}
    shared: list[Shared] = []
    if options.throughput is not None:
        from pipeline_papers.egnn_esp.studies.throughput import study_throughput

        content["throughput"] = study_throughput(options.throughput, model, device)
    if options.partitions is not None:
        from pipeline_egnn_esp.task import count_bytes_per_atom
        from pipeline_papers.egnn_esp.studies.partitions import study_partitions

        n_bytes = count_bytes_per_atom(model, _SIZE)
        message = link.count_rows(n_bytes)
        table, drawn, shared = study_partitions(options.partitions, basis.elements, message, seed)
        chosen_by = link.model_dump() | {"bytes_per_node": n_bytes}
        content["partitions"] = table | {"link": chosen_by}
        content["domains"] = drawn
        content[BULK] = ["domains"]
    if options.scaling is not None:
        from pipeline_papers.egnn_esp.studies.scaling import study_scaling

        content["scaling"] = study_scaling(options.scaling, model, basis, shared, device, seed)
    return content


def summarize(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the main numbers of studies, for people and for comparisons with the paper.

    They are lists over numbers of parts, ranks or channels.
    """
    tables = {
        "throughput": _summarize_throughput,
        "partitions": _summarize_partitions,
        "scaling": _summarize_scaling,
    }
    return {name: table(content[name]) for name, table in tables.items() if name in content}


def _summarize_throughput(content: Mapping[str, Any]) -> dict[str, Any]:
    curves = content["curves"]
    return {
        "channels": [curve["channels"] for curve in curves],
        "message_bytes": [curve["message_bytes"] for curve in curves],
        "best_per_second": [max(curve["per_second"]) for curve in curves],
        "saturated_from": [curve["saturated"] for curve in curves],
    }


def _summarize_partitions(content: Mapping[str, Any]) -> dict[str, Any]:
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


def _summarize_scaling(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return fitted numbers, and lists over numbers of ranks by mode, cutoff and method."""
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

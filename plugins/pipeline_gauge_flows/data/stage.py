"""Stage `data`: an ensemble of link configurations, generated or read, or none."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_core.artifacts.provenance import hash_file
from pipeline_core.artifacts.samples import SampleWriter
from pipeline_core.artifacts.store import write_json
from pipeline_core.config.raw_files import match_files
from pipeline_core.data.duplicates import Duplicates, describe_duplicates, hash_content
from pipeline_core.data.splits import count_groups, count_splits, divide, list_empty_splits
from pipeline_core.hookspecs import Summary
from pipeline_core.project.run import DatasetRun
from pipeline_gauge_flows.data.datasets import EnsembleDataset
from pipeline_gauge_flows.data.ensembles.measurements import Measurements, find_warnings
from pipeline_gauge_flows.data.ensembles.origins import GeneratedEnsemble, read_ensemble
from pipeline_gauge_flows.data.ensembles.storage import make_configuration_fields, write_theory
from pipeline_gauge_flows.data.lattice import Lattice


def make_data(run: DatasetRun) -> Summary:
    """Generate or read the configurations of a dataset, split them, write data and report files.

    Args:
        run: A dataset with `plugin: gauge_flows`.

    Returns:
        Summary for the screen.

    Raises:
        ValueError: The dataset file, a file of links or its content is wrong; nothing is written.
    """
    options = run.options
    assert isinstance(options, EnsembleDataset)
    # Outside of the `try` below, since this error names the line of the dataset file.
    files = [match_files(run.path, *item) for item in options.raw_patterns.items()]
    try:
        content = _write_data(run, options, files)
    except ValueError as error:
        if str(error).startswith(str(run.data)):
            raise
        raise ValueError(f"{run.path}: {error}") from None
    write_json(run.report, content, run.make_provenance())
    return _summarize(content)


def _write_data(
    run: DatasetRun, options: EnsembleDataset, files: list[dict[str, Path]]
) -> dict[str, Any]:
    """Write `run.data`; return the content of the report."""
    lattice = Lattice(tuple(options.lattice.extents), options.lattice.n_colours)
    made = None
    if options.generate is not None:
        made = GeneratedEnsemble(options.action, lattice, options.generate)
    hashes = {name: hash_file(path) for paths in files for name, path in paths.items()}
    groups: list[str] = []
    measured, duplicates = Measurements(options.action, lattice), Duplicates()
    fields = make_configuration_fields(lattice)
    record = run.make_provenance()
    record = record | {"inputs": {**record["inputs"], **hashes}}
    with SampleWriter(run.data, "data", record, fields) as writer:
        for drawn in made or read_ensemble(options.sources, files, lattice, options.action):
            writer.add({**drawn.make_fields(), **measured.add(drawn)})
            groups.append(drawn.group)
            duplicates.add(drawn.source, hash_content([drawn.links]))
        statistics = None
        if groups:
            if options.sources and options.check_action:
                measured.require_action()
            facts = made.summarize() if made else {"files": [len(paths) for paths in files]}
            statistics = {"origin": facts, **measured.summarize()}
        first = duplicates.find_first()
        names, group = (each.tolist() for each in np.unique(groups, return_inverse=True))
        codes = divide(groups, options.split, first) if groups else np.empty(0, dtype=np.int8)
        writer.add_column("split", codes)
        write_theory(writer, lattice, options.action, statistics)
    return {
        "dataset": run.name,
        "samples": len(codes),
        "warnings": [
            *_list_warnings(options, statistics, codes),
            # Repeated configurations of a generated chain are rejected updates.
            *(describe_duplicates(duplicates.report(), "the links") if options.sources else ()),
        ],
        "lattice": options.lattice.model_dump(mode="json"),
        "action": options.action.model_dump(mode="json"),
        "splits": count_splits(codes),
        "groups": count_groups(names, group, codes),
        "duplicates": duplicates.report(),
        "statistics": statistics,
    }


def _list_warnings(
    options: EnsembleDataset, statistics: Mapping[str, Any] | None, codes: NDArray[np.int8]
) -> list[str]:
    if statistics is None:
        return []
    made = options.generate
    updates = made.thermalisation // made.separation if made is not None else None
    messages = list(find_warnings(statistics, updates))
    missing = list_empty_splits(codes, options.split)
    return messages + [f"no configuration is in the split {name!r}" for name in missing]


def _summarize(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a report that the stage prints at its end."""
    shown = {"samples": content["samples"], **content["splits"], "warnings": content["warnings"]}
    statistics = content["statistics"]
    if statistics is None:
        return shown
    plaquette, origin = statistics["plaquette"], statistics["origin"]
    shown |= {key: plaquette[key] for key in ("tau_int",)}
    shown |= {"plaquette": plaquette["mean"], "plaquette_error": plaquette["error"]}
    shown |= {key: origin[key] for key in ("acceptance", "irreversibility") if key in origin}
    if "exp_minus_violation" in origin:
        shown["exp_minus_violation"] = origin["exp_minus_violation"]["mean"]
    return shown

"""Predictions of a flow: file of weights, actions and plaquettes of configurations.

The file has the layout of all sample files (`pipeline_core.artifacts.samples`):

| field           | content                                                                       |
|-----------------|-------------------------------------------------------------------------------|
| `lattice`       | number of the lattice in the attribute `lattices`, JSON: extents of each      |
| `from_ensemble` | True for a configuration of the target's ensemble, mapped by the inverse      |
| `log_weight`    | log w                                                                         |
| `action`        | S                                                                             |
| `plaquette`     | mean of Re tr P / N in each plane, (planes,)                                  |
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline_core.artifacts.samples import SampleWriter
from pipeline_core.fields import Field
from pipeline_core.project.run import Run
from pipeline_gauge_flows.data.lattice import Lattice
from pipeline_gauge_flows.evaluation.series import Series


@dataclass(frozen=True)
class LatticeSeries:
    """Flow on one lattice.

    Attributes:
        lattice: The lattice.
        series: Series of the samples of the flow.
        back: Series of target configurations, mapped by the inverse flow; None for none.
        report: Report on the flow; empty on ranks other than 0.
    """

    lattice: Lattice
    series: Series
    back: Series | None
    report: dict[str, Any]


def write_predictions(run: Run, parts: Sequence[LatticeSeries]) -> None:
    """Write `run.predictions`."""
    planes = (len(parts[0].lattice.planes),)
    fields = [
        Field("lattice", (), "1", "sample", "i2", "Its number among the lattices."),
        Field("from_ensemble", (), "1", "sample", "bool", "Whether of the target's ensemble."),
        Field("log_weight", (), "1", "sample", "f8", "log w.", exact=True),
        Field("action", (), "1", "sample", "f8", "Action S.", exact=True),
        Field("plaquette", planes, "1", "sample", "f8", "Mean of Re tr P / N in each plane."),
    ]
    provenance = run.make_provenance("evaluate")
    with SampleWriter(run.predictions, "predictions", provenance, fields) as writer:
        writer.attributes["lattices"] = json.dumps([one.lattice.extents for one in parts])
        for number, one in enumerate(parts):
            for from_ensemble, series in ((False, one.series), (True, one.back)):
                if series is None:
                    continue
                columns = (series[name] for name in ("log_weight", "action", "planes"))
                for log_weight, action, plaquette in zip(*columns, strict=True):
                    writer.add(
                        {
                            "lattice": np.asarray(number, dtype=np.int16),
                            "from_ensemble": np.asarray(from_ensemble),
                            "log_weight": log_weight,
                            "action": action,
                            "plaquette": plaquette,
                        }
                    )

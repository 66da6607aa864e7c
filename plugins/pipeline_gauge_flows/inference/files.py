"""Files of configurations written by the stage `infer`.

`samples/ensemble.h5` has the layout of `data.h5`, all in the split `train`. Files for other
programs are `samples/00000.ildg` or `samples/00000.nersc` and so on, which state their action.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pipeline_core.artifacts.samples import SampleWriter
from pipeline_core.project.run import Run
from pipeline_gauge_flows.data.actions import WholeAction
from pipeline_gauge_flows.data.ensembles.measurements import Measurements
from pipeline_gauge_flows.data.ensembles.origins import Sample
from pipeline_gauge_flows.data.ensembles.storage import make_configuration_fields, write_theory
from pipeline_gauge_flows.data.formats import Configuration, write_ildg, write_nersc
from pipeline_gauge_flows.data.lattice import Lattice
from pipeline_gauge_flows.inference.options import SampleOptions

Complex = NDArray[np.complex128]

_WRITERS: Final[dict[str, Callable[[Path, Configuration], None]]] = {
    "ildg": write_ildg,
    "nersc": write_nersc,
}


@dataclass(frozen=True)
class Proposal:
    """Configuration drawn by the flow.

    Attributes:
        number: Number of the proposal.
        links: (D, V, N, N).
        log_weight: log w.
    """

    number: int
    links: Complex
    log_weight: float


def require_writable(run: Run, options: SampleOptions, lattice: Lattice) -> None:
    """Check that the formats support configurations of a lattice.

    Raises:
        ValueError: A format does not.
    """
    foreign = lattice.dimension == 4
    holds = {"hdf5": True, "nersc": foreign, "ildg": foreign and lattice.n_colours == 3}
    for name in options.formats:
        if not holds[name]:
            raise ValueError(
                f"{run.experiment}: infer.samples.formats: {name!r} does not support "
                f"SU({lattice.n_colours}) in {lattice.dimension} dimensions; choose hdf5"
            )


class Files:
    """Files of the configurations of a run, which replace those of an earlier call.

    Args:
        run: The run.
        action: Target action.
        options: Formats.
    """

    def __init__(self, run: Run, action: WholeAction, options: SampleOptions) -> None:
        self._action, self._options, self._folder = action, options, run.folder / "samples"
        self._measured, self._count = Measurements(action.options, action.lattice), 0
        self._stack = ExitStack()
        self._writer: SampleWriter | None = None
        for pattern in ("*.h5", "*.ildg", "*.nersc"):
            for path in self._folder.glob(pattern):
                path.unlink()
        if "hdf5" in options.formats:
            fields = make_configuration_fields(action.lattice)
            provenance = run.make_provenance("infer")
            ensemble = self._folder / "ensemble.h5"
            self._writer = SampleWriter(ensemble, "data", provenance, fields)

    def __enter__(self) -> Files:
        if self._writer is not None:
            self._stack.enter_context(self._writer)
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def add(self, one: Proposal) -> Proposal:
        """Write a configuration, and return it."""
        drawn = Sample(one.links, 0, "chain-0000", f"flow:metropolis:{one.number}")
        fields = {**drawn.make_fields(), **self._measured.add(drawn)}
        if self._writer is not None:
            self._writer.add(fields)
        for name in self._options.formats:
            if name in _WRITERS:
                configuration = Configuration(
                    self._action.lattice, drawn.links, self._action.options
                )
                _WRITERS[name](self._folder / f"{self._count:05d}.{name}", configuration)
        self._count += 1
        return one

    def finish(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Write the data common to all configurations; return a summary for the screen."""
        summary = self._measured.summarize()
        if self._writer is not None:
            self._writer.add_column("split", np.zeros(self._count, np.int8))
            lattice = self._action.lattice
            theory = {
                "lattice": {"extents": list(lattice.extents), "n_colours": lattice.n_colours},
                "action": self._action.options.model_dump(mode="json"),
            }
            write_theory(self._writer, theory, {"origin": dict(facts), **summary})
        plaquette = summary["plaquette"]
        shown = {"plaquette": plaquette["mean"], "plaquette_error": plaquette["error"]}
        return {**shown, "tau_int": plaquette["tau_int"]}

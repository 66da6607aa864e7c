"""Measured observables by name.

| name              | content                                                                     |
|-------------------|-----------------------------------------------------------------------------|
| `plaquette`       | mean of Re tr P / N over all plaquettes                                     |
| `plaquette_time`  | over plaquettes with a side in time; in more than two dimensions            |
| `plaquette_space` | over the other plaquettes                                                   |
| `wilson_<R>x<T>`  | mean of Re tr W / N over rectangular loops of these sides in all planes     |
| `polyakov`        | real part of the mean of tr / N of loops around time; 0 by centre symmetry  |
| `polyakov_abs`    | magnitude of that mean                                                      |
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pipeline_gauge_flows.data.lattice import Lattice
from pipeline_gauge_flows.data.observables import average_plaquettes, polyakov_loop, wilson_loop
from pipeline_gauge_flows.evaluation.options import ObservableOptions


@dataclass(frozen=True)
class Observables:
    """Observables on one lattice.

    Attributes:
        options: Selection of observables.
        lattice: The lattice.
        correlate: Further measurements, of links and indices of the configurations in their file.
    """

    options: ObservableOptions
    lattice: Lattice
    correlate: Callable[[Tensor, Sequence[int]], Mapping[str, Tensor]] | None = None

    def __call__(self, links: Tensor, numbers: Sequence[int] = ()) -> dict[str, Tensor]:
        """Measure links (batch, D, V, N, N): name -> (batch,) float64 on their device.

        `planes`, (batch, planes), are the plaquettes of each plane.

        Args:
            links: The links.
            numbers: Indices of the configurations in their file, for `correlate`.
        """
        planes = average_plaquettes(links, self.lattice)
        values = {"planes": planes, "plaquette": planes.mean(1)}
        if self.lattice.dimension > 2:
            time = torch.tensor([mu == 0 for mu, _ in self.lattice.planes], device=links.device)
            values["plaquette_time"] = planes[:, time].mean(1)
            values["plaquette_space"] = planes[:, ~time].mean(1)
        for sides in self.options.wilson_loops:
            values["wilson_{}x{}".format(*sides)] = self._average_wilson_loops(links, sides)
        if self.options.polyakov:
            loop = polyakov_loop(links, self.lattice)
            values |= {"polyakov": loop.real, "polyakov_abs": loop.abs()}
        if self.correlate is not None:
            values |= self.correlate(links, numbers)
        return values

    def _average_wilson_loops(self, links: Tensor, sides: tuple[int, int]) -> Tensor:
        orientations = {sides, sides[::-1]}
        loops = [
            wilson_loop(links, self.lattice, one, mu, nu)
            for mu, nu in self.lattice.planes
            for one in sorted(orientations)
        ]
        return torch.stack(loops).mean(0)

"""The plugin with `parity`, as `harness/worker.py` measures it."""

from pipeline_egnn_esp.data.basis import Basis
from pipeline_egnn_esp.model.network import Network as Blocks
from pipeline_egnn_esp.options import ESPOptions
from subjects.esp import ours


class Network(ours.Network):
    """The same, equivariant under reflections, too."""

    def network(self, model: ESPOptions, basis: Basis, cutoff: float) -> Blocks:
        return Blocks(model.model_copy(update={"parity": True}), basis, cutoff)

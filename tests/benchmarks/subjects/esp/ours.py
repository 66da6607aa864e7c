"""The plugin, as `harness/worker.py` measures it."""

from typing import Any

import torch
from torch import Tensor, nn

from harness.structures import Arrays
from harness.training import TrainedNetwork
from pipeline_core.batch import Batch, collate
from pipeline_core.fields import FIELDS
from pipeline_core.system.memory import keep_freed_memory
from pipeline_core.task import Outputs, Quantity
from pipeline_egnn_esp.data.baselines import TwoCentre
from pipeline_egnn_esp.data.basis import Basis
from pipeline_egnn_esp.data.samples import REVERSE_EDGE, make_block_fields
from pipeline_egnn_esp.model.network import Network as Blocks
from pipeline_egnn_esp.model.scaling import ScaledNetwork, Sizes
from pipeline_egnn_esp.options import BlockLoss, ESPOptions
from pipeline_egnn_esp.training.objective import BlockObjective


class Network(TrainedNetwork):
    """`pipeline_egnn_esp` as its task trains it: with tables of distances, and its loss.

    `messages` is the attention of the last node block alone, with the features that reach it.
    """

    fused = True

    def __init__(self, arrays: Arrays, options: dict[str, Any]) -> None:
        keep_freed_memory()  # as the command that trains does
        basis = Basis({symbol: tuple(shells) for symbol, shells in options["basis"].items()})
        model = ESPOptions(**options["model"])
        torch.manual_seed(0)
        dtype = getattr(torch, options.get("dtype", "float32"))
        cutoff = options["cutoff"]
        network = self.network(model, basis, cutoff).to(dtype)
        sizes, two_centre = Sizes(basis, cutoff), TwoCentre(basis, cutoff)
        module = ScaledNetwork(network, two_centre, sizes, uses_edges=True)
        self.fields = make_block_fields(basis, "hamiltonian")
        whole = self.batch(arrays, torch.float64)
        module.fit(lambda: [whole])
        super().__init__(module)
        self.data = self.batch(arrays, dtype)
        quantities = tuple(Quantity(field.name, own_field=field) for field in self.fields)
        self.objective = BlockObjective(BlockLoss(**options["loss"]), quantities, module)
        self.counts = self.objective.counts(self.data)
        self.calls["messages"] = self.messages
        self.attention = network.node_blocks[-1].attention
        hook = self.attention.register_forward_pre_hook(self.keep)
        self.infer()
        hook.remove()

    def network(self, model: ESPOptions, basis: Basis, cutoff: float) -> Blocks:
        """Return the network that the tables are put beside."""
        return Blocks(model, basis, cutoff)

    def batch(self, arrays: Arrays, dtype: torch.dtype) -> Batch:
        """Return the structure as a batch."""
        own = {field.name: field for field in (REVERSE_EDGE, *self.fields)}
        return collate([arrays], dtype, {**FIELDS, **own})

    def predict(self) -> Outputs:
        return self.model(self.data)

    def loss(self) -> Tensor:
        sums = self.objective.sums(self.predict(), self.data)
        weights = self.objective.weights
        return sum(weights[name] * sums[name] / self.counts[name] for name in weights)

    def keep(self, _: nn.Module, inputs: tuple[Any, ...]) -> None:
        """Keep what the attention is called with."""
        self.inputs = inputs

    def messages(self) -> None:
        with torch.no_grad():
            self.attention(*self.inputs)

    def result(self) -> Arrays:
        """Return blocks, loss, and norms of its gradients by weights that all sides have."""
        with torch.no_grad():
            result = dict(self.predict())
        result["loss"] = self.loss()
        result["loss"].backward()
        result |= {
            f"gradient of {name}": parameter.grad.norm()
            for name, parameter in self.model.named_parameters()
            if any(part in name for part in ("radial", "embedding", "heads"))
        }
        return {name: value.detach().numpy() for name, value in result.items()}

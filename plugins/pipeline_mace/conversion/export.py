"""Export of networks to files that mace-torch loads, written without mace-torch.

As all files of mace-torch, the file holds a pickle: when loaded, this one makes mace-torch build a
`ScaleShiftMACE` with its own constructor and load our weights.
"""

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Final

import torch
from ase.data import atomic_numbers
from torch import Tensor

from pipeline_core.artifacts.store import write_atomic
from pipeline_mace.conversion.peer import INTERACTIONS
from pipeline_mace.conversion.weights import list_weights
from pipeline_mace.model.network import MACE


@dataclass(frozen=True)
class _Name:
    """An object that the reader of a pickle imports by name."""

    module: str
    name: str


@dataclass(frozen=True)
class _Call:
    """Result of a call that the reader of a pickle makes."""

    function: Any
    arguments: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)


class _Pickler(pickle._Pickler):
    """Pickler of names and calls that this process cannot import or make."""

    write: Callable[[bytes], None]
    save: Callable[[Any], None]
    memoize: Callable[[Any], None]

    def _save_name(self, name: _Name) -> None:
        self.write(pickle.GLOBAL + f"{name.module}\n{name.name}\n".encode())
        self.memoize(name)

    def _save_call(self, call: _Call) -> None:
        function = call.function
        if call.keywords:
            partial = _Call(_Name("functools", "partial"), (function,))
            self.save(partial)
            self.save((function, (), dict(call.keywords), {}))
            self.write(pickle.BUILD)
        else:
            self.save(function)
        self.save(call.arguments)
        self.write(pickle.REDUCE)
        self.memoize(call)

    dispatch: ClassVar[dict[type, Any]] = pickle._Pickler.dispatch | {
        _Name: _save_name,
        _Call: _save_call,
    }


_PICKLE: Final = SimpleNamespace(Pickler=_Pickler, __name__="pickle")
_GATES: Final = {
    "silu": _Name("torch.nn.functional", "silu"),
    "tanh": _Name("torch", "tanh"),
    "none": None,
}


def write_peer(module: MACE, path: Path) -> None:
    """Write a network as a file that mace-torch 0.3.16 and its calculators load.

    It includes energies of free atoms, cutoff and heads. Its couplings are all those of mace-torch
    without `use_reduced_cg`, since every network here has weights for these.

    Args:
        module: The network.
        path: The file to write, atomically.
    """
    weights = {name: tensor.detach().contiguous() for name, tensor in list_weights(module).items()}
    dtype = next(module.parameters()).dtype
    network = _Call(_Name("mace.modules.models", "ScaleShiftMACE"), (), list_arguments(module))
    network = _give_weights(network, {n: x.cpu().to(dtype) for n, x in weights.items()}, dtype)
    with write_atomic(path) as temporary:
        torch.save(network, temporary, pickle_module=_PICKLE)


def list_arguments(module: MACE) -> dict[str, Any]:
    """Return the arguments of mace-torch's constructor for the same network."""
    options, facts = module.options, module.facts
    channels, degrees = options.channels, range(options.max_l + 1)
    kinds = [options.first_interaction, options.interaction]
    first, further = (
        _Name("mace.modules.blocks", INTERACTIONS[kind, options.normalization]) for kind in kinds
    )
    numbers = [atomic_numbers[symbol] for symbol in facts.elements]
    energies = torch.stack(module.list_references())[:, numbers].tolist()
    hidden = "+".join(f"{channels}x{degree}{'eo'[degree % 2]}" for degree in degrees)
    return {
        "r_max": module.graph.cutoff,
        "num_bessel": options.radial_functions,
        "num_polynomial_cutoff": options.envelope_power,
        "max_ell": options.lmax,
        "interaction_cls": further,
        "interaction_cls_first": first,
        "num_interactions": options.layers,
        "num_elements": len(numbers),
        "hidden_irreps": _make_irreps(hidden),
        "MLP_irreps": _make_irreps(f"{options.readout_features}x0e"),
        "atomic_energies": _Call(_Name("numpy", "array"), (energies,)),
        "avg_num_neighbors": facts.average_neighbours,
        "atomic_numbers": numbers,
        "correlation": options.correlation,
        "gate": _GATES[options.gate],
        "pair_repulsion": options.pair_repulsion,
        "distance_transform": "Agnesi" if options.distance_transform == "agnesi" else "None",
        "radial_MLP": list(options.radial_features),
        "radial_type": "bessel",
        "heads": list(options.heads),
        "use_reduced_cg": False,
        "atomic_inter_scale": module.scale.tolist(),
        "atomic_inter_shift": module.shift.tolist(),
    }


def _make_irreps(text: str) -> _Call:
    return _Call(_Name("e3nn.o3", "Irreps"), (text,))


def _give_weights(network: _Call, weights: Mapping[str, Tensor], dtype: torch.dtype) -> _Call:
    """Return the calls that set type and weights of a network after its construction."""
    of_type = _Call(_get(network, "to"), (dtype,))
    result = _Call(_get(of_type, "load_state_dict"), (dict(weights), False))  # not strict
    return _Call(_Name("operator", "getitem"), ((of_type, result), 0))


def _get(owner: _Call, name: str) -> _Call:
    return _Call(_Name("builtins", "getattr"), (owner, name))

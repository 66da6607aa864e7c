"""Conversion of networks of mace-torch: options, elements and weights, all from one file."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from ase.data import chemical_symbols
from pydantic import ValidationError
from torch import Tensor

from pipeline_mace.conversion.heads import add_heads, choose_heads
from pipeline_mace.conversion.peer import INTERACTIONS, PeerOptions, read_peer_options
from pipeline_mace.conversion.pickles import list_state, read_module
from pipeline_mace.conversion.published import find_published
from pipeline_mace.conversion.weights import load_from_peer
from pipeline_mace.model.network import MACE, Facts
from pipeline_mace.options import MACEGraphOptions, MACEOptions

_KINDS: Final = {name: kind for kind, name in INTERACTIONS.items()}
_LAST_RADIAL: Final = re.compile(r"interactions\.0\.conv_tp_weights\.layer(\d+)\.weight")
_AGNESI: Final = "radial_embedding.distance_transform.q"
_COUPLINGS: Final = re.compile(
    r"products\.0\.symmetric_contractions\.contractions\.(\d+)\.U_matrix_(\d+)"
)


class PeerFile(NamedTuple):
    """Content of the file of a network of mace-torch.

    Attributes:
        state: Tensors of the network, by their names in `state_dict()`.
        options: Settings that the state lacks.
    """

    state: dict[str, Tensor]
    options: PeerOptions

    def find_facts(self) -> Facts:
        """Return elements and average number of neighbours."""
        symbols = [chemical_symbols[z] for z in self.state["atomic_numbers"].tolist()]
        return Facts(tuple(symbols), self.options.average_neighbours)


def read_peer(path: Path, heads: Sequence[str] = ()) -> MACE:
    """Read a network of mace-torch as one of ours, in the type of its weights.

    Args:
        path: The file that mace-torch wrote, `.model`.
        heads: Heads to take; the network predicts the first by default. If the file has only one
            head, this may be empty, or give it another name.

    Raises:
        ValueError: The file is missing, damaged, or would run foreign code; or the network does
            something that ours does not, which the message names.
    """
    peer = read_file(path, heads)
    with _explain(path):
        graph = MACEGraphOptions(cutoff=find_cutoff(peer.state))
        module = MACE(MACEOptions(**find_options(*peer)), peer.find_facts(), graph)
        module.to(peer.state["node_embedding.linear.weight"].dtype)
        load_from_peer(module, *peer)
    return module.eval()


def read_file(path: Path, heads: Sequence[str] = ()) -> PeerFile:
    """Read the state and options from the file of a network of mace-torch.

    Args:
        path: The file.
        heads: As `read_peer`.

    Raises:
        ValueError: As for `read_peer`.
    """
    peer = read_module(path)
    with _explain(path):
        options = read_peer_options(peer)
        if len(options.heads) == 1 == len(heads):
            options = replace(options, heads=tuple(heads))
        names = _check_heads(heads, options.heads)
        return PeerFile(*choose_heads(list_state(peer), options, names))


class StartingMACE(MACE):
    """MACE that can be fine-tuned from networks of mace-torch, or with fewer heads."""

    def add_heads(
        self, weights: dict[str, Tensor], metadata: Mapping[str, Any]
    ) -> dict[str, Tensor]:
        """Return the weights of a trained network with the heads that it lacks; see `heads`."""
        return add_heads(weights, metadata["options"].get("heads", ["default"]), self.options.heads)

    def load_published(self, name: str) -> None:
        """Load the weights and the energies of free atoms of a published network.

        Args:
            name: As for `read_published`.

        Raises:
            ValueError: The file is missing, cannot be converted, or holds another network.
        """
        peer = read_published(name, self.options)
        with _explain(find_published(name)):
            changed = [
                f"model.{key}: {json.dumps(value)}"
                for key, value in find_options(*peer).items()
                if key not in _FREE and value != getattr(self.options, key)
            ]
            cutoff = find_cutoff(peer.state)
            if cutoff != self.graph.cutoff:
                changed.append(f"graph.cutoff: {cutoff}")
            if changed:
                raise ValueError(
                    f"is another network than the experiment has, which needs {', '.join(changed)}"
                )
            load_from_peer(self, *peer)


def read_published(name: str, options: MACEOptions) -> PeerFile:
    """Read the network that `train.start_from: published:NAME` names.

    Args:
        name: A published network or the path of a file, as `published.find_published` takes it.
        options: Options of the experiment, whose heads are taken.

    Raises:
        ValueError: As for `read_peer`, or the file is missing.
    """
    return read_file(find_published(name), options.heads)


_FREE: Final = ("independent_couplings",)
"""Options that may differ: the weights are converted."""


@contextmanager
def _explain(path: Path) -> Iterator[None]:
    """Add the name of the file to errors."""
    try:
        yield
    except KeyError as error:
        raise ValueError(
            f"{path}: {error.args[0]}: not in the file; it is not a ScaleShiftMACE of mace-torch"
        ) from None
    except AttributeError as error:
        raise ValueError(f"{path}: the network of the file has no {error}") from None
    except ValidationError as error:
        problem = error.errors()[0]
        name = ".".join(map(str, problem["loc"]))
        raise ValueError(
            f"{path}: the network needs {name} {problem['input']}, which ours lacks: "
            f"{problem['msg']}"
        ) from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    except (TypeError, RuntimeError, IndexError, ZeroDivisionError) as error:
        raise ValueError(f"{path}: does not hold a whole network of mace-torch ({error})") from None


def _check_heads(requested: Sequence[str], present: Sequence[str]) -> tuple[str, ...]:
    names = ", ".join(present)
    unknown = [name for name in requested if name not in present]
    if unknown:
        raise ValueError(f"has no head {unknown[0]!r}, only {names}; name one of these")
    if not requested and len(present) > 1:
        raise ValueError(
            f"has the heads {names}, each for data of another kind; choose the one to predict "
            f"(--head {present[-1]}); if several are given, the first is predicted"
        )
    return tuple(requested) or tuple(present)


def find_options(state: Mapping[str, Tensor], options: PeerOptions) -> dict[str, Any]:
    """Return our options for the network of a state.

    Args:
        state: State of mace-torch's network.
        options: Settings that the state lacks.

    Raises:
        ValueError: No options of ours give this network.
        KeyError: The state lacks something.
    """
    n_elements = len(state["atomic_numbers"])
    channels = state["node_embedding.linear.weight"].numel() // n_elements
    widths = [len(state[name]) for name in _list_radial(state)]
    n_paths = state[_list_radial(state)[-1]].shape[1] // channels
    found = [match for match in map(_COUPLINGS.fullmatch, state) if match]
    if not found:
        raise ValueError(
            "has no couplings (U_matrix), like networks that were converted to cuequivariance; "
            "convert it back by mace_cueq_to_e3nn"
        )
    layers = int(state["num_interactions"])
    kinds = [_find_kind(name) for name in options.interactions]
    if len(kinds) != layers:
        raise ValueError(f"has {len(kinds)} interactions, but num_interactions is {layers}")
    (first, normalization), (further, _) = kinds[0], kinds[-1]
    last = state.get(f"readouts.{layers - 1}.linear_1.weight")
    if last is None:
        raise ValueError(
            f"readouts.{layers - 1}: has no hidden layer, or the network lacks a readout after "
            "each layer; ours has both"
        )
    return {
        "channels": channels,
        "max_l": max(int(match[1]) for match in found),
        "lmax": n_paths - 1,
        "correlation": max(int(match[2]) for match in found),
        "independent_couplings": True,
        "layers": layers,
        "first_interaction": first,
        "interaction": further,
        "normalization": normalization,
        "distance_transform": "agnesi" if _AGNESI in state else "none",
        "pair_repulsion": "pair_repulsion_fn.c" in state,
        "radial_functions": widths[0],
        "radial_features": widths[1:],
        "envelope_power": int(state["radial_embedding.cutoff_fn.p"]),
        "readout_features": last.numel() // channels // len(options.heads),
        "gate": options.gate,
        "heads": list(options.heads),
    }


def find_cutoff(state: Mapping[str, Tensor]) -> float:
    """Return the cutoff of the graph of mace-torch's network, Å.

    Raises:
        KeyError: The state lacks it.
    """
    return _read_number(state["r_max"])


def _list_radial(state: Mapping[str, Tensor]) -> list[str]:
    found = [match for match in map(_LAST_RADIAL.fullmatch, state) if match]
    if not found:
        raise KeyError("interactions.0.conv_tp_weights.layer0.weight")
    return [match[0] for match in sorted(found, key=lambda match: int(match[1]))]


def _find_kind(name: str) -> tuple[str, str]:
    if name not in _KINDS:
        raise ValueError(
            f"has interactions of the class {name}, which ours lacks; it has {', '.join(_KINDS)}"
        )
    return _KINDS[name]


def _read_number(tensor: Tensor) -> float:
    """Return the shortest decimal form of a number: 4.1 for 4.0999999 in float32."""
    return float(str(tensor.numpy()))


def describe(module: MACE) -> dict[str, Any]:
    """Return the metadata of a converted network, in the form that training writes."""
    facts = module.facts
    return {
        "options": module.options.model_dump(mode="json"),
        "graph": module.graph.model_dump(mode="json"),
        "elements": list(facts.elements),
        "average_neighbours": facts.average_neighbours,
    }

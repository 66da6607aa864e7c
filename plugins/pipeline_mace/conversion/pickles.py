"""Safe reading of files of mace-torch, without mace-torch and without running code from them.

`torch.save` writes a network as a pickle: names of classes, and the content of their objects. The
restricted unpickler of torch (`weights_only`) calls no function but those that it is given. Here it
is given, for each class, an empty record with its name, without its code. Names outside of the
packages that networks are made of are refused, so that reading a file which would run code stops
with an error.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import torch
from torch import Tensor
from torch.serialization import get_unsafe_globals_in_checkpoint, safe_globals

_PACKAGES: Final = ("e3nn.", "mace.", "torch.nn.", "torch.fx.", "torch._C.")
"""Prefixes of the names of classes that become records."""
_OF_EXPORT: Final = "operator.getitem"
"""The last function that files of `export.py` call."""
_MEMBERS: Final = ("_modules", "_parameters", "_buffers")


class Record:
    """Content of an object in a file; the record's class has the name of the object's class.

    Attributes are read as from the object itself, including the parts of a module.

    Attributes:
        kind: Module and name of the class.
        arguments: Arguments that the object was made with.
        state: State of the object.
    """

    kind: str = ""
    arguments: tuple[Any, ...]
    state: Any

    def __new__(cls, *arguments: Any) -> Self:
        """Keep the arguments."""
        record = super().__new__(cls)
        record.arguments, record.state = arguments, {}
        return record

    def __init__(self, *arguments: Any) -> None:
        """Do nothing: `__new__` has kept the arguments."""

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __getattr__(self, name: str) -> Any:
        state = self.__dict__.get("state")
        if isinstance(state, dict):
            for place in (state, *(state.get(key) or {} for key in _MEMBERS)):
                if name in place:
                    return place[name]
        raise AttributeError(name)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.state["_modules"].values())

    def __getitem__(self, number: int) -> Any:
        return list(self)[number]


def _make_record(full: str) -> type[Record]:
    return type(full.rpartition(".")[2], (Record,), {"kind": full})


def _get_function(owner: Any, name: str) -> type[Record]:
    """Return a record for a function that is pickled as an attribute of a class, such as tanh."""
    if not (isinstance(owner, type) and issubclass(owner, Record)):
        raise TypeError("getattr of an object that is not a class of a network")
    return _make_record(f"{owner.kind}.{name}")


_MAKE_NUMBER: Final[Any] = np.float64().__reduce__()[0]
_KNOWN: Final[Mapping[str, Callable[..., Any]]] = {
    "builtins.slice": slice,
    "builtins.getattr": _get_function,
    "numpy.dtype": np.dtype,
    "numpy.core.multiarray.scalar": _MAKE_NUMBER,
    "numpy._core.multiarray.scalar": _MAKE_NUMBER,
}
"""Names, other than classes of networks, that a file may contain, and their substitutes."""
_NUMBERS: Final = [type(np.dtype(code)) for code in ("f8", "f4", "i8", "i4", "b1")]
"""Types of numbers of numpy, which the unpickler may set the order of bytes of."""


def read_module(path: Path) -> Record:
    """Read the file of a whole network, written by `torch.save`.

    Args:
        path: A `.model` file of mace-torch.

    Raises:
        ValueError: It is missing, damaged, of another kind, or names objects foreign to networks.
    """
    if not path.is_file():
        raise ValueError(f"{path}: no such file; give the path of a .model file of mace-torch")
    try:
        with zipfile.ZipFile(path) as archive:
            is_compiled = any("/code/" in name for name in archive.namelist())
        names = [] if is_compiled else get_unsafe_globals_in_checkpoint(path)
        problem, module = _find_problem(names, is_compiled=is_compiled), None
        if problem is None:
            values = [(value, name) for name, value in _KNOWN.items()]
            records = [(_make_record(name), name) for name in {*names} - {*_KNOWN}]
            with safe_globals([*values, *records, *_NUMBERS]):
                module = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # noqa: BLE001 - torch raises errors of any type for damaged files
        # The message of `torch.load` is advice on trust, which a user must not follow here.
        lines = str(error.__context__ or error).splitlines() or [type(error).__name__]
        raise ValueError(
            f"{path}: truncated, damaged, or not a network that torch.save has written since torch "
            f"1.6 ({lines[0]}); fetch the file again"
        ) from None
    if problem is None and isinstance(module, Record):
        return module
    raise ValueError(
        f"{path}: "
        + (
            problem
            or f"holds a {type(module).__name__}, not a network; give the .model file that "
            "mace-torch writes at the end of a training"
        )
    )


def _find_problem(names: Sequence[str], *, is_compiled: bool) -> str | None:
    """Return the reason to refuse a whole file, by the names in it; None if there is none."""
    if is_compiled:
        return (
            "is compiled (TorchScript), which holds no options; give the file that mace-torch "
            "wrote beside it, without _compiled in its name"
        )
    if _OF_EXPORT in names:
        return (
            f"names {_OF_EXPORT!r}, like files of `pipeline-core export`; no code of the file was "
            "run. Use the model.pt from which it was written"
        )
    other = sorted(n for n in {*names} - {*_KNOWN} if not n.startswith(_PACKAGES))
    if other:
        return (
            f"names {other[0]!r}, which no network of mace-torch contains; no code of the file was "
            "run. Do not open it with torch.load either, unless you trust its author"
        )
    return None


def list_state(module: Record, prefix: str = "") -> dict[str, Tensor]:
    """Return the tensors of a module and its parts by their names, as `state_dict()` does.

    Compiled code of e3nn is not in the file as tensors; it follows from the options of a network.

    Raises:
        ValueError: A tensor claims more numbers than the file holds.
    """
    state: dict[str, Tensor] = {}
    hidden = module.state.get("_non_persistent_buffers_set") or set()
    for place in ("_parameters", "_buffers"):
        members: Mapping[str, Any] = module.state.get(place) or {}
        for name, tensor in members.items():
            if isinstance(tensor, Tensor) and name not in hidden:
                if tensor.nbytes > tensor.untyped_storage().nbytes():
                    raise ValueError(f"{prefix}{name}: a tensor {tuple(tensor.shape)} is damaged")
                state[f"{prefix}{name}"] = tensor.detach()
    for name, part in (module.state.get("_modules") or {}).items():
        if isinstance(part, Record) and isinstance(part.state, dict):
            state |= list_state(part, f"{prefix}{name}.")
    return state

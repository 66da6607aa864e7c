"""Safe reading of files of mace-torch, without mace-torch and without running code from them.

`torch.save` writes a network as a pickle: names of classes, and the content of their objects. Here
a class becomes an empty record with its name, without its code, and a tensor becomes its numbers.
Names outside of the packages that networks are made of are refused, so that reading a file which
would run code stops with an error.
"""

import math
import pickle
import struct
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import IO, Any, Final, Self

import torch
from torch import Tensor

_PACKAGES: Final = ("e3nn.", "mace.", "torch.nn.", "torch.fx.", "torch._C.")
"""Prefixes of the names of classes that become records."""
_FUNCTIONS: Final = "torch._C"
"""Module of functions that are pickled as an attribute of a class, such as tanh."""
_OF_EXPORT: Final = "operator.getitem"
"""The last function that files of `export.py` call, whose name comes first in the file."""
_STORAGES: Final = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "BoolStorage": torch.bool,
}
_NUMBERS: Final = {"f8": "d", "f4": "f", "i8": "q", "i4": "i", "b1": "?"}
"""Types of numbers of numpy, and their codes in `struct`."""
_DAMAGE: Final = (
    *(pickle.UnpicklingError, zipfile.BadZipFile, EOFError, RuntimeError, ValueError),
    *(KeyError, IndexError, TypeError, AttributeError, OverflowError, MemoryError),
    *(zlib.error, struct.error),
)
"""Exceptions from reading a damaged file."""


class RefusedError(ValueError):
    """A file is complete but must not be read here."""


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


_MEMBERS: Final = ("_modules", "_parameters", "_buffers")


class StoredTensor:
    """A tensor of a file.

    Args:
        storage: All numbers of its storage.
        offset: Offset of the first number.
        size: Shape of the tensor.
        stride: Strides, as for `torch.as_strided`.
    """

    def __init__(
        self, storage: Tensor, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: Any
    ) -> None:
        if math.prod(size) > storage.numel():
            raise pickle.UnpicklingError(f"a tensor {size} of {storage.numel()} numbers")
        self.value = storage.as_strided(size, stride, offset).clone()

    def __float__(self) -> float:
        return float(self.value)

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("a tensor with a state of its own")


class _Function:
    """One of the few functions that a file may call; nothing can be set on it."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("a function with a state of its own")


def _encode(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes in the encoding {encoding!r}")
    return str.encode(text, "latin1")


def _get_function(owner: Any, name: str) -> type[Record]:
    if not (isinstance(owner, type) and issubclass(owner, Record)):
        raise pickle.UnpicklingError("getattr")
    return _make_record(owner.kind, name)


class _NumberType:
    """The type of a number of numpy, by its code."""

    def __init__(self, code: str, *_: Any) -> None:
        if code not in _NUMBERS:
            raise pickle.UnpicklingError(f"numbers of numpy of the type {code!r}")
        self.code = code

    def __setstate__(self, state: Any) -> None:
        if state[1] != "<" and not (state[1] == "|" and self.code == "b1"):
            raise pickle.UnpicklingError("numbers of numpy in another order of bytes")


def _read_number(kind: _NumberType, content: bytes) -> Any:
    (number,) = struct.unpack(f"<{_NUMBERS[kind.code]}", content)
    return number


def _take_data(data: StoredTensor, *_: Any) -> StoredTensor:
    return data


_KNOWN: Final = {
    "collections.OrderedDict": OrderedDict,
    "__builtin__.set": set,
    "__builtin__.slice": slice,
    "__builtin__.getattr": _Function(_get_function),
    "_codecs.encode": _Function(_encode),
    "torch._utils._rebuild_tensor_v2": _Function(StoredTensor),
    "torch._utils._rebuild_parameter": _Function(_take_data),
    "torch.Size": _Function(tuple),
    "numpy.dtype": _Function(_NumberType),
    "numpy.core.multiarray.scalar": _Function(_read_number),
    "numpy._core.multiarray.scalar": _Function(_read_number),
}
"""Names, other than classes of networks, that a file may contain, and their substitutes."""


def _make_record(module: str, name: str) -> type[Record]:
    return type(name.rpartition(".")[2], (Record,), {"kind": f"{module}.{name}"})


class _Unpickler(pickle._Unpickler):
    """Unpickler of records and tensors, in Python, as the one in C allocates any claimed size.

    Args:
        file: The pickle.
        read_storage: Returns the bytes of a storage by its key.
        path: For messages.
    """

    def __init__(self, file: IO[bytes], read_storage: Callable[[str], bytes], path: Path) -> None:
        super().__init__(file)
        self._read, self._path = read_storage, path
        self._records: dict[str, type[Record]] = {}
        self._storages: dict[str, Tensor] = {}

    def find_class(self, module: str, name: str) -> Any:
        """Return the substitute for a name, and import nothing.

        Raises:
            RefusedError: The name does not belong in the file of a network.
        """
        full = f"{module}.{name}"
        place = full.replace("builtins.", "__builtin__.", 1)
        if place in _KNOWN:
            return _KNOWN[place]
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        if full == _OF_EXPORT:
            raise RefusedError(
                f"{self._path}: names {full!r}, like files of `pipeline-core export`; no code of "
                "the file was run. Use the model.pt from which it was written"
            )
        if not full.startswith(_PACKAGES) and module != _FUNCTIONS:
            raise RefusedError(
                f"{self._path}: names {full!r}, which no network of mace-torch contains; no code "
                "of the file was run. Do not open it with torch.load either, unless you trust its "
                "author"
            )
        return self._records.setdefault(full, _make_record(module, name))

    def persistent_load(self, identifier: Any) -> Tensor:
        """Return all numbers of a storage."""
        if not isinstance(identifier, tuple) or len(identifier) != 5:
            raise pickle.UnpicklingError("an unknown reference")
        kind, dtype, key, _, count = identifier
        if kind != "storage" or not isinstance(dtype, torch.dtype):
            raise pickle.UnpicklingError(f"an unknown reference {kind!r}")
        if key not in self._storages:
            content = self._read(key)
            if len(content) != count * dtype.itemsize:
                raise pickle.UnpicklingError(f"storage {key} has {len(content)} bytes")
            empty = torch.zeros(0, dtype=dtype)
            made = torch.frombuffer(bytearray(content), dtype=dtype) if content else empty
            self._storages[key] = made
        return self._storages[key]


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
            return _read_archive(archive, path)
    except RefusedError:
        raise
    except _DAMAGE as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(
            f"{path}: truncated, damaged, or not a network that torch.save has written since torch "
            f"1.6 ({reason}); fetch the file again"
        ) from None


def _read_archive(archive: zipfile.ZipFile, path: Path) -> Record:
    names = archive.namelist()
    if any("/code/" in name for name in names):
        raise RefusedError(
            f"{path}: is compiled (TorchScript), which holds no options; give the file that "
            "mace-torch wrote beside it, without _compiled in its name"
        )
    (inner,) = [name for name in names if name.endswith("/data.pkl")]
    folder = inner.removesuffix("data.pkl")
    if f"{folder}byteorder" in names and archive.read(f"{folder}byteorder") != b"little":
        raise RefusedError(f"{path}: was written on a big-endian machine; write it on another one")

    def read_storage(folder: str, key: str) -> bytes:
        member = archive.getinfo(f"{folder}data/{key}")
        if member.compress_type != zipfile.ZIP_STORED:  # torch compresses nothing
            raise zipfile.BadZipFile(f"{member.filename} is compressed")
        return archive.read(member)

    with archive.open(inner) as file:
        module = _Unpickler(file, partial(read_storage, folder), path).load()
    if not isinstance(module, Record):
        raise RefusedError(
            f"{path}: holds a {type(module).__name__}, not a network; give the .model file that "
            "mace-torch writes at the end of a training"
        )
    return module


def list_state(module: Record, prefix: str = "") -> dict[str, Tensor]:
    """Return the tensors of a module and its parts by their names, as `state_dict()` does.

    Compiled code of e3nn is not in the file as tensors; it follows from the options of a network.
    """
    state: dict[str, Tensor] = {}
    hidden = module.state.get("_non_persistent_buffers_set") or set()
    for place in ("_parameters", "_buffers"):
        members: Mapping[str, Any] = module.state.get(place) or {}
        for name, tensor in members.items():
            if isinstance(tensor, StoredTensor) and name not in hidden:
                state[f"{prefix}{name}"] = tensor.value
    for name, part in (module.state.get("_modules") or {}).items():
        if isinstance(part, Record) and isinstance(part.state, dict):
            state |= list_state(part, f"{prefix}{name}.")
    return state

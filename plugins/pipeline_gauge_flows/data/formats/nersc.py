"""NERSC archive files (the Gauge Connection) of SU(2) and SU(3) links.

A text header, then the links as IEEE numbers, complete or without their last row. It contains a
checksum, the mean plaquette and the mean trace of the links, which are all verified.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from pipeline_core.artifacts.store import write_atomic
from pipeline_gauge_flows.data.formats.configuration import (
    Configuration,
    convert_from_file_order,
    convert_to_file_order,
    read_action,
    require_special_unitary,
)

Number = TypeVar("Number", int, float)

ACTION: Final = "GAUGE_ACTION"
"""Key of this package, which other programs skip."""
_TYPES: Final[dict[str, list[str]]] = {
    "IEEE32BIG": [">c8"],
    "IEEE32LITTLE": ["<c8"],
    "IEEE32": [">c8", "<c8"],
    "IEEE64BIG": [">c16"],
    "IEEE64LITTLE": ["<c16"],
    "IEEE64": [">c16", "<c16"],
}
"""Number types; programs disagree on the byte order if none is named, so both are tried."""
_LONGEST_HEADER: Final = 65_536
_PLAQUETTE, _TRACE = 1e-5, 1e-5
"""Largest differences from the header, in single precision."""


def write_nersc(path: Path, configuration: Configuration) -> None:
    """Write a configuration in four dimensions with all rows of the links, in double precision.

    Raises:
        ValueError: The file cannot be written.
    """
    n = configuration.lattice.n_colours
    links = convert_to_file_order(configuration).astype(_TYPES["IEEE64BIG"][0])
    header = {
        "HDR_VERSION": "1.0",
        "DATATYPE": f"4D_SU{n}_GAUGE_{n}x{n}",
        "STORAGE_FORMAT": "1.0",
        **{f"DIMENSION_{i}": str(length) for i, length in enumerate(links.shape[3::-1], start=1)},
        "LINK_TRACE": f"{configuration.link_trace:.15g}",
        "PLAQUETTE": f"{configuration.plaquette:.15g}",
        **{f"BOUNDARY_{i}": "PERIODIC" for i in range(1, 5)},
        "CHECKSUM": f"{compute_checksum(links):08x}",
        "ENSEMBLE_ID": "pipeline-core",
        "ENSEMBLE_LABEL": "",
        "SEQUENCE_NUMBER": "1",
        "FLOATING_POINT": "IEEE64BIG",
    }
    if configuration.action is not None:
        header[ACTION] = json.dumps(configuration.action.model_dump(mode="json"))
    lines = ["BEGIN_HEADER", *(f"{k} = {v}" for k, v in header.items()), "END_HEADER", ""]
    with write_atomic(path) as temporary, temporary.open("wb") as file:
        file.write("\n".join(lines).encode("ascii"))
        file.write(links.tobytes())


def read_nersc(path: Path) -> Configuration:
    """Read a configuration, and check size, checksum, plaquette, trace and links.

    Raises:
        ValueError: The file is truncated, damaged, or of another kind.
    """
    header, data = _split_header(path)
    n, rows = _count_rows(path, header)
    shape = [_read_number(path, header, f"DIMENSION_{i}", int) for i in (4, 3, 2, 1)]
    raw = _read_array(path, header, data, (*shape, 4, rows, n))
    whole = raw.astype(np.complex128)
    lattice, links = convert_from_file_order(_complete_rows(whole) if rows < n else whole)
    action = None
    if ACTION in header:
        action = read_action(path, f"{ACTION} in its header", header[ACTION])
    configuration = Configuration(lattice, require_special_unitary(path, links), action)
    _compare(path, header, "PLAQUETTE", configuration.plaquette, _PLAQUETTE)
    _compare(path, header, "LINK_TRACE", configuration.link_trace, _TRACE)
    return configuration


def compute_checksum(links: NDArray[Any]) -> int:
    """Return the sum of all 32-bit words modulo 2^32, in the byte order of the array."""
    order = links.dtype.str[0]
    words = np.ascontiguousarray(links).reshape(-1).view(f"{order}u4")
    return int(words.sum(dtype=np.uint64)) & 0xFFFFFFFF


def _split_header(path: Path) -> tuple[dict[str, str], bytes]:
    """Return the keys of the header and the bytes after it."""
    content = path.read_bytes()
    end = content.find(b"END_HEADER", 0, _LONGEST_HEADER)
    if not content.startswith(b"BEGIN_HEADER") or end < 0:
        raise ValueError(
            f"{path}: does not begin with a NERSC header; the file is damaged, or of another "
            "format: check `reader`"
        )
    lines = content[:end].decode("ascii", "replace").splitlines()
    pairs = (line.split("=", 1) for line in lines if "=" in line)
    header = {key.strip(): value.strip() for key, value in pairs}
    start = content.find(b"\n", end)
    return header, content[start + 1 :]


def _read_value(path: Path, header: dict[str, str], key: str) -> str:
    if key not in header:
        raise ValueError(f"{path}: its header lacks {key}; the file is damaged")
    return header[key]


def _read_number(
    path: Path, header: dict[str, str], key: str, kind: Callable[[str], Number]
) -> Number:
    text = _read_value(path, header, key)
    try:
        return kind(text)
    except ValueError:
        raise ValueError(
            f"{path}: {key} = {text!r} in its header is not a number; correct the file"
        ) from None


def _count_rows(path: Path, header: dict[str, str]) -> tuple[int, int]:
    """Return the number of colours and the number of rows in the file."""
    kind = _read_value(path, header, "DATATYPE")
    kinds = {f"4D_SU{n}_GAUGE": (n, n - 1) for n in (2, 3)}
    kinds |= {f"4D_SU{n}_GAUGE_{n}x{n}": (n, n) for n in (2, 3)}
    if kind not in kinds:
        raise ValueError(f"{path}: DATATYPE {kind!r}; only {', '.join(kinds)} can be read")
    return kinds[kind]


def _read_array(
    path: Path, header: dict[str, str], data: bytes, shape: tuple[int, ...]
) -> NDArray[Any]:
    kind = _read_value(path, header, "FLOATING_POINT")
    if kind not in _TYPES:
        raise ValueError(f"{path}: FLOATING_POINT {kind!r}; only {', '.join(_TYPES)} can be read")
    expected = int(np.prod(shape)) * np.dtype(_TYPES[kind][0]).itemsize
    if len(data) != expected:
        raise ValueError(
            f"{path}: {len(data)} bytes of links, expected {expected} for "
            f"{' x '.join(map(str, shape[:4]))} sites (t, z, y, x); get an intact copy of the file"
        )
    stated = _read_number(path, header, "CHECKSUM", lambda text: int(text, 16))
    candidates = [np.frombuffer(data, dtype).reshape(shape) for dtype in _TYPES[kind]]
    for links in candidates:
        if compute_checksum(links) == stated:
            return links
    raise ValueError(
        f"{path}: CHECKSUM is {compute_checksum(candidates[0]):08x}, the header has "
        f"{stated:08x}: the links are damaged; get an intact copy of the file"
    )


def _complete_rows(rows: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """Complete matrices by the last row, which the others determine, (..., N, N)."""
    if rows.shape[-1] == 2:
        first, second = rows[..., 0, 0], rows[..., 0, 1]
        last = np.stack([-second.conj(), first.conj()], axis=-1)
    else:
        last = np.cross(rows[..., 0, :], rows[..., 1, :]).conj()
    return np.concatenate([rows, last[..., None, :]], axis=-2)


def _compare(
    path: Path, header: dict[str, str], key: str, computed: float, tolerance: float
) -> None:
    stated = _read_number(path, header, key, float)
    if not abs(stated - computed) <= tolerance:
        raise ValueError(
            f"{path}: {key} is {computed:.8f}, the header has {stated:.8f}: the links are not "
            "those that were written; get an intact copy of the file"
        )

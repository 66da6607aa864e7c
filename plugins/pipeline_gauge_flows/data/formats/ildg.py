"""ILDG binary files of SU(3) links, with SciDAC checksums.

ILDG Binary File Format, revision 1.1 or later (https://www.lqcd.org/ildg/ildg-file-format.pdf);
checksums as SciDAC's QIO computes them.
"""

import json
import re
import zlib
from pathlib import Path
from typing import Any, Final

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
from pipeline_gauge_flows.data.formats.lime import Record, read_records, write_records

ACTION: Final = "gauge-action-json"
"""Record of this package, which other programs skip."""
_TYPES: Final[dict[int, np.dtype[Any]]] = {32: np.dtype(">c8"), 64: np.dtype(">c16")}
_LENGTHS: Final = ("lt", "lz", "ly", "lx")

_FORMAT: Final = """<?xml version="1.0" encoding="UTF-8"?>
<ildgFormat xmlns="http://www.lqcd.org/ildg" \
xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" \
xsi:schemaLocation="http://www.lqcd.org/ildg filefmt.xsd">
  <version>1.0</version>
  <field>su3gauge</field>
  <precision>64</precision>
  <lx>{lx}</lx>
  <ly>{ly}</ly>
  <lz>{lz}</lz>
  <lt>{lt}</lt>
</ildgFormat>
"""
_CHECKSUM: Final = """<?xml version="1.0" encoding="UTF-8"?>
<scidacChecksum><version>1.0</version><suma>{:08x}</suma><sumb>{:08x}</sumb></scidacChecksum>
"""


def write_ildg(path: Path, configuration: Configuration) -> None:
    """Write a configuration of SU(3) in four dimensions, in double precision.

    Raises:
        ValueError: The group is not SU(3), or the file cannot be written.
    """
    if configuration.lattice.n_colours != 3:
        raise ValueError(
            f"{path}: ILDG files hold SU(3), not SU({configuration.lattice.n_colours}); write NERSC"
        )
    links = convert_to_file_order(configuration).astype(_TYPES[64])
    lt, lz, ly, lx = links.shape[:4]
    text = _FORMAT.format(lx=lx, ly=ly, lz=lz, lt=lt)
    records = [Record("ildg-format", text.encode()), Record("ildg-binary-data", links.tobytes())]
    records.append(Record("scidac-checksum", _CHECKSUM.format(*compute_checksums(links)).encode()))
    if configuration.action is not None:
        content = json.dumps(configuration.action.model_dump(mode="json"))
        records.append(Record(ACTION, content.encode()))
    with write_atomic(path) as temporary, temporary.open("wb") as file:
        write_records(file, records)


def read_ildg(path: Path) -> Configuration:
    """Read a configuration, and check its size, checksums and links.

    Raises:
        ValueError: The file is truncated or damaged, or does not hold SU(3) links.
    """
    records: dict[str, bytes] = {}
    for record in read_records(path):
        records.setdefault(record.kind, record.data)
    for kind in ("ildg-format", "ildg-binary-data"):
        if kind not in records:
            raise ValueError(
                f"{path}: has no record {kind!r}, only {', '.join(records) or 'none'}; give an "
                "ILDG file of links"
            )
    text = records["ildg-format"].decode("utf-8", "replace")
    field = _read_tag(path, text, "field")
    if field != "su3gauge":
        raise ValueError(f"{path}: holds the field {field!r}, expected 'su3gauge'")
    shape = [_read_integer(path, text, name) for name in _LENGTHS]
    raw = _read_array(
        path, records["ildg-binary-data"], shape, _read_integer(path, text, "precision")
    )
    if "scidac-checksum" in records:
        _compare(path, raw, records["scidac-checksum"])
    lattice, links = convert_from_file_order(raw.astype(np.complex128))
    action = None
    if ACTION in records:
        action = read_action(path, f"its record {ACTION!r}", records[ACTION])
    return Configuration(lattice, require_special_unitary(path, links), action)


def compute_checksums(links: NDArray[Any]) -> tuple[int, int]:
    """Return SciDAC's two checksums of an array (t, z, y, x, 4, 3, 3) in the file's byte order.

    CRC-32 of every site, rotated by its number modulo 29 or 31, all combined by exclusive or.
    """
    volume = int(np.prod(links.shape[:4]))
    data = np.ascontiguousarray(links).reshape(volume, -1).view(np.uint8)
    sites = np.fromiter((zlib.crc32(site.tobytes()) for site in data), np.uint64, volume)
    a, b = (_rotate(sites, np.arange(volume, dtype=np.uint64) % m) for m in (29, 31))
    return int(np.bitwise_xor.reduce(a)), int(np.bitwise_xor.reduce(b))


def _rotate(values: NDArray[np.uint64], bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return ((values << bits) | (values >> (np.uint64(32) - bits))) & np.uint64(0xFFFFFFFF)


def _read_tag(path: Path, text: str, name: str) -> str:
    match = re.search(rf"<{name}>\s*([^<]*?)\s*</{name}>", text)
    if match is None:
        raise ValueError(f"{path}: its record 'ildg-format' lacks <{name}>; the file is damaged")
    return match[1]


def _read_integer(path: Path, text: str, name: str) -> int:
    value = _read_tag(path, text, name)
    if not value.isdigit():
        raise ValueError(f"{path}: <{name}> is {value!r}, not a number; the file is damaged")
    return int(value)


def _read_array(path: Path, data: bytes, shape: list[int], precision: int) -> NDArray[Any]:
    if precision not in _TYPES:
        raise ValueError(f"{path}: precision {precision}; ILDG files have 32 or 64")
    dtype = _TYPES[precision]
    expected = int(np.prod(shape)) * 4 * 9 * dtype.itemsize
    if len(data) != expected:
        raise ValueError(
            f"{path}: {len(data)} bytes of links, expected {expected} for "
            f"{' x '.join(map(str, shape))} sites (t, z, y, x) at {precision} bits; get an intact "
            "copy of the file"
        )
    return np.frombuffer(data, dtype).reshape(*shape, 4, 3, 3)


def _compare(path: Path, raw: NDArray[Any], record: bytes) -> None:
    text = record.decode("utf-8", "replace")
    stated = dict(re.findall(r"<(sum[ab])>\s*([0-9a-fA-F]+)\s*</sum[ab]>", text))
    computed = dict(zip(("suma", "sumb"), compute_checksums(raw), strict=True))
    wrong = [k for k, v in computed.items() if int(stated.get(k, "0"), 16) != v]
    if wrong:
        raise ValueError(
            f"{path}: checksum {wrong[0]} is {computed[wrong[0]]:08x}, the file states "
            f"{stated.get(wrong[0], 'nothing')}: its links are damaged; get an intact copy of the "
            "file"
        )

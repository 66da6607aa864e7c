"""LIME containers (Lattice QCD Interchange Message Encapsulation): records with a type and bytes.

Every record has a header of 144 bytes, big-endian: magic number, version, flags, length, type.
Data are padded to a multiple of eight bytes.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

_MAGIC: Final = 0x456789AB
_HEADER: Final = struct.Struct(">IHHQ128s")
_BEGIN, _END = 0x8000, 0x4000
"""Flags of the first and the last record of a message."""
_FILLING: Final = 8


@dataclass(frozen=True)
class Record:
    """Record of a LIME file.

    Attributes:
        kind: Type, such as "ildg-format".
        data: Content.
    """

    kind: str
    data: bytes


def write_records(file: BinaryIO, records: Sequence[Record]) -> None:
    """Write records as one message."""
    for number, record in enumerate(records):
        flags = (_BEGIN if number == 0 else 0) | (_END if number == len(records) - 1 else 0)
        file.write(_HEADER.pack(_MAGIC, 1, flags, len(record.data), record.kind.encode("ascii")))
        file.write(record.data)
        file.write(bytes(-len(record.data) % _FILLING))


def read_records(path: Path) -> Iterator[Record]:
    """Yield the records of all messages of a file.

    Raises:
        ValueError: The file is not a LIME file, or is truncated.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        while header := file.read(_HEADER.size):
            if len(header) < _HEADER.size:
                raise ValueError(f"{path}: ends within the header of a record; {_AGAIN}")
            magic, _, _, length, kind = _HEADER.unpack(header)
            if magic != _MAGIC:
                raise ValueError(
                    f"{path}: no LIME record at byte {file.tell() - _HEADER.size}; the file is "
                    "damaged, or of another format: check `reader`"
                )
            name = kind.rstrip(b"\0").decode("ascii", "replace")
            # A damaged length may have any value.
            if (left := size - file.tell()) < length:
                raise ValueError(
                    f"{path}: record {name!r} has {left} of {length} bytes: the file is truncated "
                    f"or damaged; {_AGAIN}"
                )
            data = file.read(length)
            file.read(-length % _FILLING)
            yield Record(name, data)


_AGAIN: Final = "get an intact copy of the file"

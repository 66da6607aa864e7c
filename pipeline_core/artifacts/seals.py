"""Checksum and provenance trailer (seal) of binary artifacts.

    content | digest of each block | facts (JSON) | content bytes, facts bytes, digest | magic

Programs that read HDF5 or torch archives ignore bytes after the content. The identity of an
artifact is the digest over the digests of its blocks: equal content has equal identity, whenever
and wherever it was made. A block is checked when it is first read, so that reading little of a file
costs little; SHA-256 takes 1.6 GB/s on one core.

A JSON object has a key instead, `checksum`, the last one.
"""

import errno
import hashlib
import io
import json
import os
import stat
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pipeline_core.artifacts.provenance import hash_file

BLOCK: Final = 2**18
"""Bytes of a block; the last one may have fewer."""
_DIGEST: Final = 16
_MAGIC: Final = b"\x89sealed\n"
_END: Final = struct.Struct(f"<QQ{_DIGEST}s{len(_MAGIC)}s")
_CURE: Final = "remove the file and run its stage again"


@dataclass(frozen=True)
class Seal:
    """The trailer of an artifact.

    Attributes:
        size: Bytes of the content.
        digests: Digests of its blocks, concatenated.
        facts: Provenance, JSON-able.
    """

    size: int
    digests: bytes
    facts: Mapping[str, Any]

    @property
    def identity(self) -> str:
        """Identity of the content: equal for equal content only."""
        return _hash(self.size.to_bytes(8, "little") + self.digests).hex()

    def has_block(self, number: int, block: bytes) -> bool:
        """Return True if a block is the one that was sealed."""
        return _hash(block) == self.digests[number * _DIGEST : (number + 1) * _DIGEST]


def write_seal(file: io.FileIO, facts: Mapping[str, Any]) -> None:
    """Append a seal to a complete file that is open for reading and writing."""
    file.seek(0)
    digests = b"".join(map(_hash, iter(lambda: file.read(BLOCK), b"")))
    size = file.tell()
    text = json.dumps(facts, sort_keys=True).encode()
    whole = _hash(size.to_bytes(8, "little") + digests + text)
    file.write(digests + text + _END.pack(size, len(text), whole, _MAGIC))


def read_seal(path: Path) -> Seal | None:
    """Return the seal of a file; None if it has none.

    Raises:
        ValueError: The seal is damaged, or the file cannot be read.
    """
    with open_file(path) as file:
        length = os.fstat(file.fileno()).st_size
        file.seek(max(0, length - _END.size))
        end = file.read()
        if len(end) < _END.size or not end.endswith(_MAGIC):
            return None
        size, n_text, whole, _ = _END.unpack(end)
        n_digests = -(-size // BLOCK) * _DIGEST
        if size + n_digests + n_text + _END.size != length:
            raise ValueError(f"{path}: its seal is damaged; {_CURE}")
        file.seek(size)
        digests, text = file.read(n_digests), file.read(n_text)
    if _hash(size.to_bytes(8, "little") + digests + text) != whole:
        raise ValueError(f"{path}: its seal is damaged; {_CURE}")
    return Seal(size, digests, json.loads(text))


@contextmanager
def open_file(path: Path) -> Iterator[io.FileIO]:
    """Open a file for reading; fail on a pipe instead of waiting for it.

    Raises:
        ValueError: It cannot be read, or is not a file.
    """
    try:
        with io.FileIO(path, opener=_open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError(errno.EINVAL, "not a regular file")
            yield file
    except OSError as error:
        raise ValueError(
            f"{path}: cannot be read ({error.strerror or error}); give the right to read it, or "
            "remove it and run its stage again"
        ) from error


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def identify(path: Path) -> str:
    """Return the identity of a file's content, from its seal if it has one.

    Raises:
        ValueError: The seal is damaged, or the file cannot be read.
    """
    seal = read_seal(path)
    return hash_file(path) if seal is None else seal.identity


CHECKSUM: Final = "checksum"
"""Key of the checksum in a JSON object, over all other keys as they are written."""


def add_checksum(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON object with its checksum."""
    return {**content, CHECKSUM: _hash_json(content)}


def take_checksum(content: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return a JSON object without its checksum, and whether it had one.

    Raises:
        ValueError: The checksum does not match the content.
    """
    if not content:
        return content, False
    *rest, (name, checksum) = content.items()
    is_whole = checksum == _hash_json(dict(rest))
    if is_whole != (name == CHECKSUM) or (not is_whole and CHECKSUM in content):
        raise ValueError("its contents are damaged, or were changed after they had been written")
    return (dict(rest), True) if is_whole else (content, False)


def _hash_json(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, indent=1).encode()).hexdigest()[:32]


class SealedFile(io.RawIOBase):
    """The content of a sealed file, for random access with checks of each block.

    Args:
        path: The file.
        seal: Its seal.
    """

    def __init__(self, path: Path, seal: Seal) -> None:
        self._path, self._seal, self._place = path, seal, 0
        self._checked = bytearray(-(-seal.size // BLOCK))
        self._file = path.open("rb", buffering=0)

    def readable(self) -> bool:
        """Return True: it can be read."""
        return True

    def seekable(self) -> bool:
        """Return True: it can be read at random."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a position."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._seal.size}
        self._place = base[whence] + offset
        return self._place

    def tell(self) -> int:
        """Return the position."""
        return self._place

    def readinto(self, buffer: Any) -> int:
        """Read from the current position.

        Raises:
            ValueError: The content is not what was sealed.
        """
        view = memoryview(buffer).cast("B")
        n_bytes = max(0, min(len(view), self._seal.size - self._place))
        for number in range(self._place // BLOCK, -(-(self._place + n_bytes) // BLOCK)):
            self.check_block(number)
        self._file.seek(self._place)
        done = 0
        while done < n_bytes:
            done += self._file.readinto(view[done:n_bytes]) or self._refuse()
        self._place += done
        return done

    def check_block(self, number: int) -> None:
        """Check a block, once.

        Raises:
            ValueError: It is not what was sealed.
        """
        if not self._checked[number]:
            self._file.seek(number * BLOCK)
            size = min(BLOCK, self._seal.size - number * BLOCK)
            if not self._seal.has_block(number, self._file.read(size) or b""):
                self._refuse()
            self._checked[number] = True

    def check(self) -> None:
        """Check all blocks.

        Raises:
            ValueError: One is not what was sealed.
        """
        for number in range(len(self._checked)):
            self.check_block(number)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()

    def _refuse(self) -> int:
        raise ValueError(
            f"{self._path}: its contents are damaged, or were changed after its stage had written "
            f"it; {_CURE}"
        )


def _hash(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()[:_DIGEST]

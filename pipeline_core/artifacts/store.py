"""Artifacts: written atomically, checked when opened.

An artifact is written under a temporary name in the same folder, flushed to disk and renamed, so
that a killed job never leaves half a file under the real name. HDF5 files carry their schema and
its version as attributes, and end in a seal (`artifacts.seals`): checksums of all bytes, and
their provenance. JSON files have the key `checksum`. Artifacts are checked on reading; JSON
without a checksum, which anybody may write, is read as it is.
"""

import _thread
import io
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import h5py

from pipeline_core.artifacts import upgrades
from pipeline_core.artifacts.seals import (
    CHECKSUM,
    Seal,
    SealedFile,
    add_checksum,
    open_file,
    read_seal,
    take_checksum,
    write_seal,
)
from pipeline_core.system.processes import is_alive, name_host

_SILENCE: Final = 7 * 24 * 3600.0
"""Seconds without a write after which a temporary file of another host counts as abandoned."""
_REMIND_AFTER: Final = 0.05
"""Seconds after which an interrupt is raised again if it came in the middle of an HDF5 write."""


@contextmanager
def write_atomic(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`, renamed to `path` if the block succeeds.

    Files that killed writers have left in the folder are removed first.

    Raises:
        ValueError: The folder cannot be written, or the disk is full.
    """
    temporary = name_part(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_stale_parts(path.parent)
        yield temporary
        _flush_to_disk(temporary)
        os.replace(temporary, path)  # noqa: PTH105 - the one call that is atomic by contract
    except OSError as error:
        raise ValueError(
            f"{path}: cannot be written ({error.strerror or error}); free space on the disk or "
            "choose another folder (--results, or --output); no partial file was left"
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def name_part(path: Path) -> Path:
    """Return the temporary name of a file or folder, which names its writer."""
    return path.with_name(f".{path.name}.{name_host()}.{os.getpid()}.part")


def remove_stale_parts(folder: Path) -> None:
    """Remove temporary files and folders of writers that have been killed.

    Processes of other hosts cannot be seen from here: their files are removed after a week.
    """
    for path in folder.glob(".*.part"):
        owner, _, pid = path.stem.rpartition(".")
        is_ours = owner.endswith(f".{name_host()}") and pid.isdecimal()
        with suppress(OSError):  # another process may have removed it
            silence = time.time() - path.stat().st_mtime
            if not is_alive(int(pid)) if is_ours else silence > _SILENCE:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _flush_to_disk(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


@contextmanager
def create(path: Path, schema: str, provenance: Mapping[str, Any]) -> Iterator[h5py.File]:
    """Create an artifact atomically and yield it for writing.

    Write datasets by `create_dataset`: h5py records the time of those that are assigned, so that
    the same content made again would have another identity.

    Args:
        path: Final name of the artifact.
        schema: "data", "graph" and so on, or "plugin/<name>" for a plugin's own layout.
        provenance: JSON-able provenance record.

    Raises:
        ValueError: The file cannot be written.
    """
    with (
        write_sealed(path, provenance) as sink,
        h5py.File(sink, "w", libver="v110") as file,
    ):
        file.attrs["schema"] = schema
        file.attrs["schema_version"] = upgrades.find_store_versions(schema).current
        yield file


@contextmanager
def write_sealed(path: Path, provenance: Mapping[str, Any]) -> Iterator[io.FileIO]:
    """As `write_atomic`, for a library that does not survive or report a failed write.

    Args:
        path: The file, which gets a seal.
        provenance: JSON-able provenance record.

    Yields:
        The open file. It accepts all writes; its first error is raised when the block ends.
    """
    with write_atomic(path) as temporary, _Sink(temporary, "w+") as sink:
        try:
            yield sink
            if sink.error is None:
                write_seal(sink, provenance)
        finally:
            if sink.error is not None:
                raise sink.error


class _Sink(io.FileIO):
    """A file for writing that keeps its first error instead of raising it.

    The HDF5 library does not survive a failed write: on a full disk it crashes when the file is
    closed. torch replaces the error by one that does not mention the disk. So every write reports
    success, and the error is raised once the file is closed.
    """

    error: BaseException | None = None
    _reminder: threading.Timer | None = None

    def write(self, data: Any) -> int:
        """Write all of `data`, unless an earlier call has failed."""
        view = memoryview(data)
        written = 0
        try:
            while self.error is None and written < len(view):
                written += super().write(view[written:])
        except BaseException as error:  # noqa: BLE001 - not even an interrupt may reach HDF5
            self._keep(error)
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        """Set the length of the file, unless an earlier call has failed."""
        try:
            if self.error is None:
                return super().truncate(size)
        except BaseException as error:  # noqa: BLE001 - as above
            self._keep(error)
        return size or 0

    def close(self) -> None:
        """Close the file; a pending interrupt is raised as the error."""
        if self._reminder is not None:
            self._reminder.cancel()
        super().close()

    def _keep(self, error: BaseException) -> None:
        self.error = error
        if isinstance(error, KeyboardInterrupt):
            # The writer must be interrupted before the file is closed: again, outside of HDF5.
            self._reminder = threading.Timer(_REMIND_AFTER, _thread.interrupt_main)
            self._reminder.start()


@contextmanager
def open_artifact(path: Path, schema: str) -> Iterator[h5py.File]:
    """Open an artifact for reading, after a check of its schema.

    An artifact of an earlier version is yielded in the current version's layout.

    Raises:
        ValueError: The file is missing, damaged, of another schema, or of a later version.
    """
    with _open(path) as file:
        with explain_damage(path):
            actual = file.attrs.get("schema")
            version = int(file.attrs.get("schema_version", 0))
        if actual != schema:
            raise ValueError(
                f"{path}: holds {actual!r}, expected {schema!r}; the file was made by another "
                "stage: check the paths, or remove it and run the stage again"
            )
        if version < upgrades.find_store_versions(schema).current:
            check(path)  # what is upgraded is read through links, past the seal
        with upgrades.open_upgraded(file, path) as current:
            yield current


def has_schema(path: Path, schema: str) -> bool:
    """Return True if a file exists and has a schema, such as the engine's and not a plugin's own.

    Raises:
        ValueError: The file is damaged.
    """
    if not path.exists():
        return False
    with _open(path) as file, explain_damage(path):
        return bool(file.attrs.get("schema") == schema)


@contextmanager
def open_any(path: Path) -> Iterator[h5py.File]:
    """Open an HDF5 artifact of any schema and version, as it is.

    Raises:
        ValueError: The file is missing or damaged.
    """
    with _open(path) as file, explain_damage(path):
        yield file


@contextmanager
def _open(path: Path) -> Iterator[h5py.File]:
    if not path.exists():
        raise ValueError(f"{path}: no such file; run the stage that makes it first")
    with open_content(path) as source:
        try:
            file = h5py.File(source, "r")
        except (OSError, RuntimeError, KeyError) as error:
            raise ValueError(
                f"{path}: not a readable HDF5 file, truncated or damaged ({error}); remove it and "
                "run its stage again"
            ) from error
        with file:
            yield file


@contextmanager
def open_content(path: Path) -> Iterator[SealedFile]:
    """Open the content of an artifact, checked as it is read.

    Raises:
        ValueError: It has no seal, or the seal is damaged.
    """
    with SealedFile(path, _require_seal(path)) as file:
        yield file


def _require_seal(path: Path) -> Seal:
    seal = read_seal(path)
    if seal is None:
        raise ValueError(
            f"{path}: its contents are damaged: its end is missing, or another program has written "
            "it; remove the file and run its stage again"
        )
    return seal


def check(path: Path) -> bool:
    """Read a whole file; return True if it has a checksum, as all artifacts have.

    Raises:
        ValueError: The file is missing or damaged.
    """
    if path.suffix == ".json":
        return has_checksum(path)
    if read_seal(path) is None and _is_of_other_program(path):
        return False
    with open_content(path) as file:
        file.check()
    return True


def _is_of_other_program(path: Path) -> bool:
    """Return True for an HDF5 file that never was an artifact, such as an export."""
    try:
        with h5py.File(path, "r") as file:
            return "schema" not in file.attrs
    except (OSError, RuntimeError, KeyError):
        return False


def has_checksum(path: Path) -> bool:
    """Return True if a JSON file has a checksum.

    Raises:
        ValueError: The file is missing or damaged.
    """
    content = read_json(path, keep_checksum=True)
    return isinstance(content, dict) and CHECKSUM in content


@contextmanager
def explain_damage(path: Path) -> Iterator[None]:
    """Turn HDF5's error on damaged contents into one that names the file and the cure."""
    try:
        yield
    except (OSError, KeyError, RuntimeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(
            f"{path}: its contents are damaged ({error}); remove the file and run its stage again"
        ) from error


def read_provenance(path: Path) -> dict[str, Any]:
    """Return the provenance record of an artifact; empty if it has none, or for a missing model.

    Raises:
        ValueError: The file is missing or damaged.
    """
    if path.suffix == ".json":
        content = read_json(path)
        record = content.get("provenance") if isinstance(content, dict) else None
        return record if isinstance(record, dict) else {}
    if path.exists():
        seal = read_seal(path)
        # A plugin may write a file of its own; an artifact without its seal is refused on reading.
        return {} if seal is None else dict(seal.facts)
    if path.suffix == ".pt":
        return {}
    raise ValueError(f"{path}: no such file; run the stage that makes it first")


def write_json(path: Path, content: Any, provenance: Mapping[str, Any] | None = None) -> None:
    """Write JSON atomically, keys in the order given, floats as they are, NaN refused.

    Args:
        path: The file.
        content: The content.
        provenance: Provenance of an object, written as a key of its own; None to leave it out.
    """
    if provenance is not None:
        content = {**content, "provenance": provenance}
    if isinstance(content, Mapping):
        content = add_checksum(content)
    with write_atomic(path) as temporary:
        text = json.dumps(content, indent=1, allow_nan=False)
        temporary.write_text(text + "\n", encoding="utf-8")


def read_json(path: Path, *, keep_checksum: bool = False) -> Any:
    """Read JSON, and check and remove its checksum if it has one.

    Raises:
        ValueError: The file is missing, not JSON, or damaged.
    """
    if not path.exists():
        raise ValueError(f"{path}: no such file; run the stage that makes it first")
    with open_file(path) as file:
        text = file.read()
    try:
        content = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path}: not readable as JSON ({error}); remove it and run its stage again"
        ) from None
    if not isinstance(content, dict):
        return content
    try:
        rest, _ = take_checksum(content)
    except ValueError as error:
        raise ValueError(f"{path}: {error}; remove the file and run its stage again") from None
    return content if keep_checksum else rest

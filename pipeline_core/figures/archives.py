"""Archives of evidence: the inputs of figures, laid out like results, in one compressed file.

An archive has the same bytes for the same files.
"""

import atexit
import hashlib
import io
import lzma
import shutil
import tarfile
import tempfile
from functools import cache
from pathlib import Path

import h5py

from pipeline_core.artifacts import store
from pipeline_core.artifacts.extracts import BULK


def write_archive(folder: Path, archive: Path) -> None:
    """Write all files of a folder.

    Raises:
        ValueError: The archive cannot be written.
    """
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name, path in list_files(folder).items():
            entry = tarfile.TarInfo(name)  # of no owner and no time
            entry.size = path.stat().st_size
            with path.open("rb") as file:
                tar.addfile(entry, file)
    with store.write_atomic(archive) as temporary:
        temporary.write_bytes(lzma.compress(content.getvalue(), preset=9))


def list_files(folder: Path) -> dict[str, Path]:
    """Return the files of a folder by their paths in it, in order, without hidden ones.

    Hidden files are left by drawing, such as checksums of raw files.
    """
    files = (path for path in folder.rglob("[!.]*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path for path in sorted(files)}


def unpack_archive(archive: Path) -> Path:
    """Return a folder with the files of an archive, which is removed when the process ends.

    Raises:
        ValueError: The archive is missing or damaged.
    """
    if not archive.is_file():
        raise ValueError(f"{archive}: no such file")
    return _unpack(archive, hashlib.sha256(archive.read_bytes()).hexdigest())


@cache
def _unpack(archive: Path, _digest: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="evidence-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        with tarfile.open(archive, "r:xz") as tar:
            # Python 3.11 has filters from 3.11.4 on.
            tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
            tar.extractall(folder)  # noqa: S202 - the manifest has the hash of each file
    except (tarfile.TarError, lzma.LZMAError, EOFError, OSError) as error:
        raise ValueError(f"{archive}: damaged ({error}); restore it") from error
    return folder


def copy_artifact(source: Path, target: Path) -> None:
    """Copy an input of figures, HDF5 and JSON without the data marked as `extracts.BULK`.

    Raises:
        ValueError: A file is damaged, or cannot be written.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.suffix == ".h5":
        with store.open_any(source) as file, store.explain_damage(source):
            facts = store.read_provenance(source)
            with store.create(target, file.attrs["schema"], facts) as copy:
                _copy_group(file, copy)
        return
    content = store.read_json(source) if source.suffix == ".json" else {}
    if isinstance(content, dict) and BULK in content:
        left = {key: value for key, value in content.items() if key not in content[BULK]}
        store.write_json(target, left)
    else:
        shutil.copyfile(source, target)


def _copy_group(source: h5py.Group, target: h5py.Group) -> None:
    target.attrs.update(source.attrs)
    for name, item in source.items() if not source.attrs.get(BULK) else ():
        if isinstance(item, h5py.Group):
            ordered = item.id.get_create_plist().get_link_creation_order() != 0
            _copy_group(item, target.create_group(name, track_order=ordered))
        elif not item.attrs.get(BULK):
            # Shuffling bytes by significance compresses best.
            shuffle = item.shape != () and item.dtype.kind != "O"
            data = target.create_dataset(name, data=item[()], dtype=item.dtype, shuffle=shuffle)
            data.attrs.update(item.attrs)

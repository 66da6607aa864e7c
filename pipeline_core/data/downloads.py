"""Downloads of raw files that do not come with a dataset file."""

import hashlib
import http.client
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final
from urllib.request import urlopen

from pipeline_core.artifacts import provenance
from pipeline_core.artifacts.store import write_atomic
from pipeline_core.config.datasets import Download
from pipeline_core.project.dataset_run import DatasetRun

_BLOCK: Final = 1 << 20
_TIMEOUT: Final = 60.0  # s without a byte


def fetch(
    run: DatasetRun, names: Collection[str], report: Callable[[str], None] = lambda line: None
) -> int:
    """Fetch missing downloads of a dataset, or of all parts of a mixture.

    Files that are there already are left alone, but their hashes are checked.

    Args:
        run: The dataset.
        names: The files as the dataset files name them; all if empty.
        report: Function to call with one line per file.

    Returns:
        Number of files that were fetched.

    Raises:
        ValueError: A name is not declared, a file cannot be fetched, or it is not the declared one.
            No wrong file is left behind, unless it was there before.
    """
    declared = {
        name: (part, download)
        for part in run.parts
        for name, download in part.options.downloads.items()
    }
    unknown = sorted(set(names) - set(declared))
    if unknown:
        raise ValueError(
            f"{run.path}: {unknown[0]!r} is not under `downloads`; declared are "
            f"{', '.join(declared) or 'none'}"
        )
    n_fetched = 0
    for name in names or declared:
        part, download = declared[name]
        path = part.path.parent / name
        if path.exists():
            _require_hash(provenance.hash_file(path), path, download)
            report(f"{path}: is there")
        else:
            _fetch(download, path)
            n_fetched += 1
            report(f"{path}: fetched, {path.stat().st_size / 1e6:.1f} MB")
    return n_fetched


def _fetch(download: Download, path: Path) -> None:
    digest = hashlib.sha256()
    with write_atomic(path) as temporary:
        with temporary.open("wb") as file:
            for block in _read_blocks(download):
                digest.update(block)
                file.write(block)
        if digest.hexdigest() != download.sha256:
            raise ValueError(
                f"{path}: {download.url} gave another file than the dataset file declares: sha256 "
                f"{digest.hexdigest()} instead of {download.sha256}; it was not kept. Correct the "
                "url, or the hash if the new file is intended"
            )


def _read_blocks(download: Download) -> Iterator[bytes]:
    try:
        # The scheme is one of those that `Download.url` allows.
        with urlopen(download.url, timeout=_TIMEOUT) as response:  # noqa: S310
            n_bytes = 0
            while block := response.read(_BLOCK):
                n_bytes += len(block)
                if n_bytes > download.max_gb * 1e9:
                    raise ValueError(
                        f"{download.url}: gives more than {download.max_gb:g} GB; nothing was "
                        "kept. Correct the url, or set `max_gb` beside it in the dataset file"
                    )
                yield block
    except (OSError, http.client.HTTPException) as error:
        raise ValueError(
            f"{download.url}: cannot be fetched ({error}); check the network and the url, or put "
            f"the file with sha256 {download.sha256} into its place by hand"
        ) from error


def _require_hash(sha256: str, path: Path, download: Download) -> None:
    if sha256 != download.sha256:
        raise ValueError(
            f"{path}: is not the file of {download.url}: its sha256 is {sha256} instead of "
            f"{download.sha256}; remove it to fetch it again, or correct the hash in the dataset "
            "file if this file is intended"
        )

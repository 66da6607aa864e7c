"""Provenance of an artifact, as a JSON-able record."""

import hashlib
import platform
import subprocess
from collections.abc import Mapping
from contextvars import ContextVar
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import pipeline_kernels

PACKAGES: Final = (
    "pipeline-core",
    "torch",
    "numpy",
    "numba",
    "h5py",
    "ase",
    "pymatgen",
    "vesin",
    "snakemake",
)

AT_BEGIN: Final[ContextVar[Mapping[Path, str]]] = ContextVar(
    "identities", default=MappingProxyType({})
)
"""Files read by the running stage, as they were when it began (`lineage.keep_identities`):
identities of artifacts, sizes and times of raw files."""


def make_record(*, inputs: Mapping[str, str], **facts: Any) -> dict[str, Any]:
    """Return `facts`, identities of `inputs` by name, package versions and the source's commit."""
    return {
        **facts,
        "inputs": dict(inputs),
        "versions": read_versions(),
        "commit": read_commit(),
    }


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@lru_cache(maxsize=1)
def hash_source() -> str:
    """Return a digest of the engine's and the kernels' source, independent of their version."""
    digest = hashlib.sha256()
    for folder in (Path(__file__).parents[1], Path(pipeline_kernels.__file__).parent):
        for path in sorted([*folder.rglob("*.py"), *folder.rglob("*.c")]):
            digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


@lru_cache(maxsize=1)
def read_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that results depend on."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


@lru_cache(maxsize=1)
def read_commit() -> str | None:
    """Return the Git commit of the source, "+changes" if the tree differs; None outside Git."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    try:
        head = _call_git(root, "rev-parse", "HEAD")
        return (
            f"{head}+changes"
            if _call_git(root, "status", "--porcelain", "--untracked-files=no")
            else head
        )
    except (OSError, subprocess.CalledProcessError):
        return None


def _call_git(root: Path, *arguments: str) -> str:
    result = subprocess.run(
        ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True
    )
    return result.stdout.strip()

"""Working folders: everything that `snakemake` needs where there is no clone.

A working folder holds files of the engine (Snakefile, rules, profiles), which a newer package
replaces, and files of the user (configuration, datasets, experiments), which are never changed once
written. A note lists the files that the engine wrote, so that an edited one is never overwritten.
"""

import json
import shutil
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from pipeline_core import __version__
from pipeline_core.project.project import Project
from pipeline_core.registry import Registry

SCHEMA: Final = 1
"""Version of the engine's files in a folder: it rises when older ones no longer work."""

NOTE: Final = ".pipeline_core.json"

_ENGINE: Final = ("Snakefile", "workflows/rules/*", "workflows/report/*", "profiles/*/*")
_LINK: Final = ("slurm", "profiles/slurm")
"""`snakemake --profile slurm` looks for a folder of that name."""
CONFIG: Final = "workflows/config.yaml"


class Note(BaseModel):
    """Record of the files that the engine wrote into a folder.

    Attributes:
        schema_version: `SCHEMA` of the package.
        version: Version of the package.
        files: SHA-256 of the engine's files as they were written, by path in the folder.
    """

    model_config = ConfigDict(extra="forbid")

    schema_version: int
    version: str
    files: dict[str, str]


def find_template() -> Path:
    """Return the template of working folders: in a wheel, or the clone itself.

    Raises:
        ValueError: The package was built without it.
    """
    package = Path(__file__).parents[1]
    for folder in (package / "template", package.parent):
        if (folder / "Snakefile").exists():
            return folder
    raise ValueError(
        f"{package}: was installed without the files of a working folder; install a wheel that "
        "`make wheel` has built in a clone"
    )


def has_configuration(folder: Path) -> bool:
    """Return True if a folder has a configuration, as the repository of a plugin does."""
    return (folder / CONFIG).exists()


def make_folder(folder: Path, experiments: Iterable[str], registry: Registry) -> None:
    """Make a working folder.

    Args:
        folder: The folder; it may hold other files.
        experiments: Experiments of the template to copy, with their datasets; none to write only
            the engine's files beside an existing configuration.
        registry: The plugins.

    Raises:
        ValueError: A file is there already, or there is no such experiment.
    """
    template, experiments = find_template(), list(experiments)
    engine = list(_list_engine_files(template))
    files = {name: (template / name).read_bytes() for name in engine}
    if experiments:
        files[CONFIG] = _format_config(experiments).encode()
    for name in _list_user_files(template, experiments, registry):
        files[name] = (template / name).read_bytes()
    taken = [n for n, content in files.items() if _differs(folder / n, content)]
    if taken:
        raise ValueError(
            f"{folder / taken[0]}: exists already; choose another folder"
            + (", or `init --upgrade` for one made before" if (folder / NOTE).exists() else "")
        )
    for name, content in files.items():
        _write(folder / name, content)
    _link(folder)
    _write_note(folder, {name: _hash(files[name]) for name in engine})


def upgrade_folder(folder: Path) -> list[str]:
    """Upgrade the engine's files in a folder to this package.

    Args:
        folder: A working folder.

    Returns:
        The changes, one per line. A file that the user has edited stays; the new one is written
        beside it, with the suffix `.new`.

    Raises:
        ValueError: `init` has not made the folder, or a newer package has.
    """
    note = check_folder(folder)
    if note is None:
        raise ValueError(
            f"{folder / NOTE}: no such file; only folders that `pipeline-core init` has made can "
            "be upgraded, a clone is by git"
        )
    template = find_template()
    files = {name: (template / name).read_bytes() for name in _list_engine_files(template)}
    done = [line for n, content in files.items() if (line := _renew(folder, n, content, note))]
    done += [line for n in note.files if n not in files and (line := _remove(folder, n, note))]
    _link(folder)
    _write_note(folder, {name: _hash(content) for name, content in files.items()})
    return done


def check_folder(folder: Path) -> Note | None:
    """Return the record of the engine's files in a folder; None if `init` has not made it.

    Raises:
        ValueError: A newer package has made it, or its note is damaged.
    """
    path = folder / NOTE
    if not path.exists():
        return None
    try:
        note = Note.model_validate_json(path.read_bytes())
    except ValidationError:
        raise ValueError(
            f"{path}: damaged; make a folder with `pipeline-core init` elsewhere and copy the file"
        ) from None
    if note.schema_version > SCHEMA:
        raise ValueError(
            f"{path}: pipeline-core {note.version} has made this folder, which {__version__} is "
            f"too old for; pip install 'pipeline-core>={note.version}'"
        )
    return note


def _list_engine_files(template: Path) -> Iterator[str]:
    for pattern in _ENGINE:
        for path in sorted(template.glob(pattern)):
            yield str(path.relative_to(template))


def _list_user_files(
    template: Path, experiments: Iterable[str], registry: Registry
) -> Iterator[str]:
    """Yield the files of experiments, of their datasets, and the folders of their raw files.

    Whole folders, because readers also read files beside a raw file, such as a CP2K input.
    """
    project = Project(template / "workflows", template / "results", registry)
    for name in experiments:
        experiment = project.load_experiment(name)
        paths = {experiment.path}
        datasets = (d for run in experiment.runs.values() for d in run.datasets if not d.grows)
        for dataset in datasets:
            paths |= {part.path for part in (dataset, *dataset.mixed)}
            for raw in dataset.find_raw_files().values():
                paths |= _list_set(raw, dataset.path.parent)
        yield from sorted(str(path.relative_to(template)) for path in paths)


def _list_set(raw: Path, datasets: Path) -> set[Path]:
    """Return the files of the folder in `datasets` that a raw file is in, if it is there."""
    if not raw.exists():
        return set()
    top = datasets / raw.relative_to(datasets).parts[0]
    return {path for path in top.rglob("*") if path.is_file()} if top.is_dir() else {raw}


def _format_config(experiments: Iterable[str]) -> str:
    lines = [
        "# What `snakemake` computes; any key can be set for one call: "
        "snakemake --config scale=smoke",
        "experiments:",
        *(f"  - {name}" for name in experiments),
        "# Scale of the experiments behind the targets paper_<plugin>: smoke, laptop or paper.",
        "scale: laptop",
    ]
    return "\n".join(lines) + "\n"


def _renew(folder: Path, name: str, content: bytes, note: Note) -> str | None:
    """Write a file of the engine unless the user has edited it; return what was done."""
    path = folder / name
    if not _differs(path, content):
        _write(path, content)
        return None if name in note.files else f"new      {name}"
    if _hash(path.read_bytes()) == note.files.get(name):
        _write(path, content)
        return f"upgraded {name}"
    beside = path.with_name(path.name + ".new")
    _write(beside, content)
    return f"edited   {name}: kept; the new one is {beside.name}"


def _remove(folder: Path, name: str, note: Note) -> str | None:
    """Remove a file that the engine no longer has, unless the user has edited it."""
    path = folder / name
    if not path.exists() or _hash(path.read_bytes()) != note.files[name]:
        return None
    path.unlink()
    return f"removed  {name}"


def _differs(path: Path, content: bytes) -> bool:
    """Return True if a file exists with another content."""
    return path.exists() and (not path.is_file() or path.read_bytes() != content)


def _write(path: Path, content: bytes) -> None:
    from pipeline_core.artifacts.store import write_atomic  # not needed for a name alone

    path.parent.mkdir(parents=True, exist_ok=True)
    with write_atomic(path) as temporary:
        temporary.write_bytes(content)


def _link(folder: Path) -> None:
    name, target = _LINK
    path = folder / name
    if path.exists() or path.is_symlink():
        return
    try:
        path.symlink_to(target)
    except OSError:  # some file systems have no links
        shutil.copytree(folder / target, path)


def _write_note(folder: Path, files: dict[str, str]) -> None:
    note = Note(schema_version=SCHEMA, version=__version__, files=files)
    _write(folder / NOTE, json.dumps(note.model_dump(), indent=1).encode())


def _hash(content: bytes) -> str:
    return sha256(content).hexdigest()

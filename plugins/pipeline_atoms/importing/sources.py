"""Sources of a dataset: their raw files, readers and unit factors."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from pipeline_atoms.config.datasets import Dataset, Source
from pipeline_atoms.readers import Reader, Units
from pipeline_atoms.readers.catalogue import READERS, guess_reader
from pipeline_core.config.raw_files import drop_links, match_names
from pipeline_core.project.run import DatasetRun
from pipeline_core.registry import identify_plugin
from pipeline_core.suggestions import suggest
from pipeline_core.units import DIMENSION, find_factor, find_stress_factor


@dataclass(frozen=True)
class RawSource:
    """A source with the files that match its pattern.

    Attributes:
        name: Name in messages: the dataset file and the pattern.
        options: The source in the dataset file.
        keys: Field names to the names of the labels in the files, if declared.
        reader: Reader of all its files.
        units: Units of its numbers, from the dataset file, else from the format.
        factors: Field name to the factor that converts its values to the engine's unit and sign.
        files: Name relative to the dataset file to path, sorted by name.
        beside: Name of a file to names and paths of files read with it.
        root: The part of the pattern without wildcards; groups are named relative to it.
        dataset: The dataset file.
        links: Further names of files to the names in `files`.
    """

    name: str
    options: Source
    keys: Mapping[str, str]
    reader: Reader
    units: Units
    factors: Mapping[str, float]
    files: Mapping[str, Path]
    beside: Mapping[str, Mapping[str, Path]]
    root: PurePosixPath
    dataset: Path
    links: Mapping[str, str]


def require_dataset(run: DatasetRun) -> Dataset:
    """Return the options of a dataset, checked to be of structures in raw files.

    Raises:
        ValueError: A plugin has dataset files of its own but leaves the import to this one.
    """
    if not isinstance(run.options, Dataset):
        raise ValueError(
            f"{run.path}: plugin {run.options.plugin!r} has dataset files of its own but does not "
            "make the data: implement the hook data(run)"
        )
    return run.options


def find_dataset_sources(run: DatasetRun) -> list[RawSource]:
    """Find the files of all sources of a dataset, as `find_sources` does."""
    options, readers = require_dataset(run), run.registry.collect("readers")
    return find_sources(run.path, options.sources, readers, options.expected)


def find_sources(
    dataset: Path,
    sources: Sequence[Source],
    readers: Iterable[Reader],
    expected: Iterable[str] = (),
) -> list[RawSource]:
    """Find the files of all sources.

    Args:
        dataset: The dataset file; patterns are relative to its folder.
        sources: Its sources.
        readers: All available formats.
        expected: Names of files that count as found, since they can be downloaded.

    Raises:
        ValueError: A pattern matches no file, a reader or unit is unknown, no format or several
            fit a file, or two sources share a file without making different copies of its frames.
    """
    by_name = _index_readers(readers)
    raw_sources: list[RawSource] = []
    expected = list(expected)
    for number, source in enumerate(sources):
        where = f"{dataset}: sources.{number}"
        names = match_names(dataset, f"sources.{number}.path", source.path, expected)
        files, links = drop_links(names)
        reader = _choose_reader(source, files, by_name, where)
        units = replace(reader.units, **source.units.model_dump(exclude_none=True))
        factors = compute_factors(units, f"{where}.units")
        name, root = f"{dataset}: source {source.path!r}", _find_root(source.path)
        raw_sources.append(
            RawSource(
                name,
                source,
                dict(source.keys.items()),
                reader,
                units,
                factors,
                files,
                {file: _find_beside(file, path, reader) for file, path in files.items()},
                root,
                dataset,
                links,
            )
        )
    require_disjoint(raw_sources)
    return raw_sources


def identify_readers(run: DatasetRun) -> dict[str, dict[str, str]]:
    """Return reader to fingerprint and version of its plugin, for all sources of a dataset.

    Our own readers, and data that a plugin makes by itself, have none. Sources that cannot be read
    are left out: their import reports the error.
    """
    plugins, own = {}, {reader.name for reader in READERS}
    names = dict.fromkeys(source.reader.name for source in _find_readable(run))
    for name in (name for name in names if name not in own):
        plugin = run.registry.find_provider("readers", name)
        if plugin is not None:
            plugins[name] = identify_plugin(plugin)
    return plugins


def find_beside(run: DatasetRun) -> dict[str, Path]:
    """Return the files that are read beside the raw files of a dataset, by name.

    Sources that cannot be read are left out.
    """
    return {
        name: path
        for source in _find_readable(run)
        for files in source.beside.values()
        for name, path in files.items()
    }


def _find_readable(run: DatasetRun) -> Iterator[RawSource]:
    """Yield the sources of a dataset that the engine imports and that can be read."""
    for part in run.parts:
        if part.options.plugin is None:
            with suppress(ValueError):
                yield from find_dataset_sources(part)


def _find_beside(name: str, path: Path, reader: Reader) -> dict[str, Path]:
    """Return files that a reader reads with a file: name relative to the dataset file to path."""
    folder = path.parent
    files = sorted(p for pattern in reader.beside for p in folder.glob(pattern) if p.is_file())
    return {str(PurePosixPath(name).parent / p.relative_to(folder)): p for p in files}


def _find_root(pattern: str) -> PurePosixPath:
    """Return the folders of a pattern before the first one with a wildcard."""
    parts = PurePosixPath(pattern).parts[:-1]
    fixed = next((i for i, part in enumerate(parts) if re.search(r"[*?\[]", part)), len(parts))
    return PurePosixPath(*parts[:fixed])


def _index_readers(readers: Iterable[Reader]) -> dict[str, Reader]:
    by_name: dict[str, Reader] = {}
    for reader in readers:
        if reader.name in by_name:
            raise ValueError(
                f"two readers are called {reader.name!r}; uninstall one of the plugins that bring "
                "them"
            )
        by_name[reader.name] = reader
    return by_name


def _choose_reader(
    source: Source, files: Mapping[str, Path], readers: Mapping[str, Reader], where: str
) -> Reader:
    if source.reader is not None:
        if source.reader in readers:
            return readers[source.reader]
        raise ValueError(
            f"{where}.reader: no reader {source.reader!r}, only {', '.join(sorted(readers))}"
            f"{suggest(source.reader, readers)}"
        )
    chosen = {guess_reader(path, readers.values()).name: name for name, path in files.items()}
    if len(chosen) > 1:
        examples = ", ".join(f"{name} ({reader})" for reader, name in sorted(chosen.items()))
        raise ValueError(
            f"{where}.path: files of several formats match: {examples}; name one `reader`, or make "
            "a source of each format"
        )
    return readers[next(iter(chosen))]


def compute_factors(units: Units, place: str) -> dict[str, float]:
    """Return field name to the factor that converts its values to the engine's unit and sign.

    Args:
        units: Units of the values.
        place: Place of their declaration, for messages.

    Raises:
        ValueError: A unit or the sign is unknown.
    """
    try:
        factors = {
            name: find_factor(dimension, getattr(units, dimension))
            for name, dimension in DIMENSION.items()
            if hasattr(units, dimension)
        }
        return factors | {"stress": find_stress_factor(units.stress, units.stress_sign)}
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


def require_disjoint(sources: Sequence[RawSource]) -> None:
    """Check that no frame counts twice.

    Sources of one dataset file may share a file if they make different copies of its frames;
    sources of different dataset files may not, as each file splits its samples independently.

    Raises:
        ValueError: Two sources share a file.
    """
    owners: dict[Path, RawSource] = {}
    for source in sources:
        for name, path in source.files.items():
            owner = owners.setdefault(path.resolve(), source)
            if owner is not source and not _is_copy(owner, source):
                raise ValueError(
                    f"{source.name}: {name} also belongs to the source {owner.options.path!r}, so "
                    "that its frames would count twice; make the patterns disjoint"
                )


def _is_copy(one: RawSource, other: RawSource) -> bool:
    differ = (one.options.repeat, one.options.repeat_to) != (
        other.options.repeat,
        other.options.repeat_to,
    )
    return differ and one.dataset == other.dataset

"""Files of samples: flat arrays plus offsets, written as a stream and read at random.

Layout of a file, the same for data, graphs and predictions: one dataset `/<field>` per field with
the rows of all samples concatenated and the properties of its `Field` as attributes; one dataset
`/offsets/<kind>` of length n_samples + 1 per ragged kind.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

import h5py
import numpy as np
from numpy.typing import NDArray

from pipeline_core.artifacts import store
from pipeline_core.fields import FIELDS, RAGGED, Field, store_rows

Array = NDArray[Any]
Sample = Mapping[str, Array]

_FLUSH_BYTES = 8_000_000
_PRELOAD_BYTES = 256_000_000
_BLOCK = 512  # samples read at once when all are read in order


class SampleWriter:
    """Write samples one by one into a new artifact, which appears when all are written.

    Args:
        path: The artifact.
        schema: Its schema.
        provenance: Its provenance.
        fields: The fields that every sample carries.
    """

    def __init__(
        self, path: Path, schema: str, provenance: Mapping[str, Any], fields: Sequence[Field]
    ) -> None:
        self._fields = {field.name: field for field in fields}
        self._kinds = [kind for kind in RAGGED if any(f.kind == kind for f in fields)]
        self._context = store.create(path, schema, provenance)
        self._buffer: dict[str, list[Array]] = {name: [] for name in self._fields}
        self._counts = {kind: array("q", [0]) for kind in self._kinds}
        self._bytes = 0
        self.n_samples = 0

    def __enter__(self) -> Self:
        self._file = self._context.__enter__()
        for field in self._fields.values():
            _create_dataset(self._file, field)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            try:
                self._finish()
            except BaseException as failure:
                if not self._context.__exit__(type(failure), failure, failure.__traceback__):
                    raise
                return
        self._context.__exit__(kind, error, traceback)

    @property
    def names(self) -> Collection[str]:
        """Names of the fields that each sample has."""
        return self._fields.keys()

    @property
    def attributes(self) -> h5py.AttributeManager:
        """Attributes of the file, for what a schema holds about all samples."""
        return self._file.attrs

    def add(self, sample: Sample) -> None:
        """Append one sample: `(n_rows, *shape)` a field, without the row axis for kind `sample`."""
        self.add_in_parts([sample])

    def add_in_parts(self, parts: Iterable[Sample]) -> None:
        """Append one sample in parts, of which few are in memory at a time.

        Args:
            parts: The first one as for `add`, others with further rows of all fields of some kinds.
        """
        counts = dict.fromkeys(self._kinds, 0)
        for number, part in enumerate(parts):
            assert part.keys() <= self._fields.keys(), sorted(part)
            kinds = {self._fields[name].kind for name in part}
            expected = {n for n, f in self._fields.items() if f.kind in kinds or not number}
            assert part.keys() == expected, (sorted(part), sorted(expected))
            for kind in kinds & counts.keys():
                lengths = {len(part[n]) for n in part if self._fields[n].kind == kind}
                assert len(lengths) == 1, f"fields of kind {kind} differ in length: {lengths}"
                counts[kind] += lengths.pop()
            self._append(part)
        for kind, count in counts.items():
            self._counts[kind].append(count)
        self.n_samples += 1

    def _append(self, part: Sample) -> None:
        for name, values in part.items():
            field = self._fields[name]
            rows = np.asarray(values)[None] if field.kind == "sample" else values
            assert rows.shape[1:] == field.shape, (name, rows.shape, field.shape)
            rows = store_rows(field, rows)
            self._buffer[name].append(rows)
            self._bytes += rows.nbytes
        if self._bytes > _FLUSH_BYTES:
            self._flush()

    def add_column(self, name: str, rows: Array) -> None:
        """Write a further field of kind `sample` for all samples at once, after the last `add`.

        Args:
            name: A field that the writer does not have yet.
            rows: `(n_samples, *shape)`.
        """
        field = FIELDS[name]
        assert field.kind == "sample", name
        assert name not in self._fields, name
        assert rows.shape == (self.n_samples, *field.shape), (name, rows.shape)
        dataset = _create_dataset(self._file, field)
        dataset.resize(self.n_samples, axis=0)
        dataset[:] = rows

    def _flush(self) -> None:
        for name, parts in self._buffer.items():
            if parts:
                rows = np.concatenate(parts)
                dataset = self._file[name]
                start = len(dataset)
                dataset.resize(start + len(rows), axis=0)
                dataset[start:] = rows
                parts.clear()
        self._bytes = 0

    def _finish(self) -> None:
        self._flush()
        self._file.attrs["n_samples"] = self.n_samples
        for kind, counts in self._counts.items():
            offsets = np.cumsum(counts, dtype=np.int64)
            self._file.create_dataset(f"offsets/{kind}", data=offsets)


def _create_dataset(file: h5py.File, field: Field) -> h5py.Dataset:
    dtype = h5py.string_dtype() if field.dtype == "str" else np.dtype(field.dtype)
    row_bytes = 32 if field.dtype == "str" else dtype.itemsize * max(1, int(np.prod(field.shape)))
    dataset = file.create_dataset(
        field.name,
        shape=(0, *field.shape),
        maxshape=(None, *field.shape),
        chunks=(max(1, 65_536 // row_bytes), *field.shape),
        dtype=dtype,
    )
    dataset.attrs.update(
        unit=field.unit,
        kind=field.kind,
        indexes=field.indexes or "",
        label=field.label,
        exact=field.exact,
        doc=field.doc,
    )
    return dataset


class SampleFile:
    """Samples of an artifact, read at random; a small file is kept in memory.

    Args:
        path: The artifact.
        schema: The schema that it must have.
        fields: Names of the fields to read; all fields if None.
        preload: True to keep a small file in memory.
        beside: The file of the same samples with the kinds that this file only refers to.

    Raises:
        ValueError: The file is missing, damaged, lacks a field, or contradicts itself.
    """

    def __init__(
        self,
        path: Path,
        schema: str,
        fields: Iterable[str] | None = None,
        *,
        preload: bool = True,
        beside: SampleFile | None = None,
    ) -> None:
        self.path = path
        self._beside = {} if beside is None else beside.offsets
        self._most_bytes = _PRELOAD_BYTES if preload else 0
        self._context = store.open_artifact(path, schema)
        self._file = self._context.__enter__()
        try:
            with store.explain_damage(path):
                self._read_layout(fields)
        except ValueError:
            self.close()
            raise

    def _read_layout(self, fields: Iterable[str] | None) -> None:
        file = self._file
        names = [n for n in file if n != "offsets"] if fields is None else list(fields)
        self.fields = {name: self._find_field(name) for name in names}
        self.n_samples = int(file.attrs["n_samples"])
        self.offsets: dict[str, NDArray[np.int64]] = {
            kind: file[f"offsets/{kind}"][:] for kind in file.get("offsets", ())
        }
        self.attributes = dict(file.attrs)
        self._require_sound(names)
        size = sum(file[name].nbytes for name in names)
        self._arrays: dict[str, Any] = {
            name: self._load(name) if size < self._most_bytes else file[name] for name in names
        }

    def _require_sound(self, names: Iterable[str]) -> None:
        """Check that offsets rise and that fields have the number of rows that they give."""
        for kind, offsets in self.offsets.items():
            shaped = offsets.dtype.kind in "iu" and offsets.shape == (self.n_samples + 1,)
            if not shaped or offsets[0] != 0 or (np.diff(offsets) < 0).any():
                self._refuse(f"offsets/{kind}")
        for name in names:
            data, field = self._file[name], self.fields[name]
            if field.kind != "sample" and field.kind not in self.offsets:
                self._refuse(name)
            n_rows = self.n_samples if field.kind == "sample" else self.offsets[field.kind][-1]
            if data.shape != (n_rows, *field.shape):
                self._refuse(name)

    def _refuse(self, name: str) -> NoReturn:
        raise ValueError(
            f"{self.path}: {name} does not fit the rest of the file; run the stage that makes it "
            "again"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __len__(self) -> int:
        return self.n_samples

    def close(self) -> None:
        """Close the file; arrays already read stay valid."""
        self._context.__exit__(None, None, None)

    def read_column(self, name: str) -> Array:
        """Return all rows of one field."""
        with store.explain_damage(self.path):
            return self._load(name)

    def count_rows(self, kind: str) -> NDArray[np.int64]:
        """Return the number of rows of `kind` in each sample, (n_samples,)."""
        return np.diff(self.offsets[kind])

    def read(self, index: int) -> dict[str, Array]:
        """Return one sample: `(n_rows, *shape)` a field, without the row axis for kind `sample`."""
        assert 0 <= index < self.n_samples, (index, self.n_samples)
        return {name: self.read_field(name, index) for name in self.fields}

    def __iter__(self) -> Iterator[dict[str, Array]]:
        """Yield all samples in order, as `read` returns them; reads many of them at once."""
        return self.read_range(0, self.n_samples)

    def read_range(self, begin: int, end: int) -> Iterator[dict[str, Array]]:
        """Yield the samples from `begin` to before `end`, as `read` returns them."""
        for first in range(begin, end, _BLOCK):
            stop = min(first + _BLOCK, end)
            columns = {name: self._read_block(name, first, stop) for name in self.fields}
            for rows in zip(*columns.values(), strict=True):
                yield dict(zip(columns, rows, strict=True))

    def _read_block(self, name: str, first: int, stop: int) -> Iterator[Array]:
        """Yield the rows of a field for each of some consecutive samples."""
        field, data = self.fields[name], self._arrays[name]
        with store.explain_damage(self.path):
            if field.kind == "sample":
                rows = data[first:stop]
                return (np.asarray(_decode(row) if field.dtype == "str" else row) for row in rows)
            offsets = self.offsets[field.kind][first : stop + 1]
            parts = np.split(data[offsets[0] : offsets[-1]], offsets[1:-1] - offsets[0])
        for index, part in enumerate(parts, first):
            self._require_within(name, index, part)
        return iter(parts)

    def read_field(self, name: str, index: int) -> Array:
        """Return the rows of one field of one sample, as `read` does for all fields."""
        field, data = self.fields[name], self._arrays[name]
        if field.kind != "sample":
            return self.read_rows(name, index, slice(None))
        with store.explain_damage(self.path):
            row = data[index]
            return np.asarray(_decode(row) if field.dtype == "str" else row)

    def read_rows(self, name: str, index: int, rows: slice) -> Array:
        """Return some rows of a ragged field of one sample, `(n_rows, *shape)`."""
        first, stop = self.offsets[self.fields[name].kind][index : index + 2]
        begin, end, _ = rows.indices(int(stop - first))
        with store.explain_damage(self.path):
            values = np.asarray(self._arrays[name][first + begin : first + end])
        self._require_within(name, index, values)
        return values

    def _require_within(self, name: str, index: int, values: Array) -> None:
        """Check that row numbers of another kind refer to rows that the sample has."""
        kind = self.fields[name].indexes
        offsets = self.offsets.get(kind or "", self._beside.get(kind or ""))
        if offsets is not None and values.size:
            n_rows = offsets[index + 1] - offsets[index]
            if values.min() < 0 or values.max() >= n_rows:
                raise ValueError(
                    f"{self.path}: {name} of sample {index} refers to {kind} {values.max()} of "
                    f"{n_rows}; run the stage that makes the file again"
                )

    def _load(self, name: str) -> Array:
        data = self._file[name]
        return np.asarray(data.asstr()[:] if h5py.check_string_dtype(data.dtype) else data[:])

    def _find_field(self, name: str) -> Field:
        if name not in self._file:
            raise ValueError(
                f"{self.path}: has no field {name!r}, only {', '.join(sorted(self._file))}; "
                "run the stage that makes the file again"
            )
        data = self._file[name]
        if name in FIELDS:
            return FIELDS[name]
        dtype = "str" if h5py.check_string_dtype(data.dtype) else data.dtype.str[1:]
        facts = data.attrs
        return Field(
            name,
            data.shape[1:],
            facts["unit"],
            facts["kind"],
            dtype,
            facts["doc"],
            facts["indexes"] or None,
            label=bool(facts["label"]),
            exact=bool(facts["exact"]),
        )


def _decode(row: Any) -> str:
    return row.decode() if isinstance(row, bytes) else str(row)

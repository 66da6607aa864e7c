"""Split of samples into training, validation and test, the same for the same seed."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pipeline_core.config.datasets import Split
from pipeline_core.data.duplicates import Ints, find_first_rows, unite_splits
from pipeline_core.fields import SPLITS
from pipeline_core.suggestions import suggest

Codes = NDArray[np.int8]
Floats = NDArray[np.float64]
_TRAIN, _VAL, _TEST = range(len(SPLITS))
_LISTED_GROUPS: Final = 200


def count_splits(codes: Codes) -> dict[str, int]:
    """Return the number of samples in each split."""
    return {name: int(np.count_nonzero(codes == i)) for i, name in enumerate(SPLITS)}


def count_groups(names: Sequence[str], group: Ints, codes: Codes) -> dict[str, Any]:
    """Return the number of groups, and the samples of the largest groups in each split.

    Args:
        names: Names of the groups.
        group: Number of the group of each sample, (n_samples,).
        codes: Splits of the samples, (n_samples,).
    """
    table = np.zeros((len(names), len(SPLITS)), dtype=np.int64)
    np.add.at(table, (group, codes), 1)
    largest = np.argsort(-table.sum(axis=1), kind="stable")[:_LISTED_GROUPS]
    listed = {str(names[i]): dict(zip(SPLITS, table[i].tolist(), strict=True)) for i in largest}
    return {"count": len(names), "largest": listed}


def divide(
    groups: Sequence[str],
    options: Split,
    first: Ints | None = None,
    *,
    split: Codes | None = None,
    energy: Floats | None = None,
    formulas: tuple[Ints, Sequence[str]] | None = None,
) -> Codes:
    """Choose the split of every sample whose source does not name it.

    All methods put equal frames into one split. Where sources or lists of groups give them several,
    they are all held out.

    Args:
        groups: Name of the group of each sample, (n_samples,).
        options: Options of the split.
        first: For each sample the first one with an equal frame, (n_samples,); None if all frames
            differ.
        split: Code of the split that the source names, -1 if it names none, (n_samples,).
        energy: Energy per atom, for the method "energy", NaN if missing, (n_samples,).
        formulas: For the method "composition": the place of the formula of each sample,
            (n_samples,), and the formulas.

    Returns:
        Code of the split of each sample, (n_samples,).

    Raises:
        ValueError: Nothing is left for training, or lists of groups do not fit the groups.
    """
    n = len(groups)
    first = np.arange(n) if first is None else first
    codes = unite_splits(np.full(n, -1, np.int8) if split is None else split, first)
    free = np.flatnonzero(codes < 0)
    if len(free):
        match options.method:
            case "group" | "list":
                chosen = _choose_by_group(groups, options, free, first)
            case "energy":
                energy = np.full(n, np.nan) if energy is None else energy
                chosen = _split_by_energy(energy[free], options)
            case _:
                chosen = _choose_in_turn(options, free, first, formulas)
        codes[free] = chosen
        codes = unite_splits(codes, first)
    if not (codes == _TRAIN).any():
        counts = [f"{np.count_nonzero(codes == i)} {name}" for i, name in enumerate(SPLITS)]
        raise ValueError(
            f"the split leaves no sample for training ({', '.join(counts)}); lower split.val and "
            "split.test, or change the groups or the splits of the sources; equal frames are held "
            "out together"
        )
    return codes


def divide_rows(rows: Floats, energy: Floats, options: Split, groups: Sequence[str] = ()) -> Codes:
    """Choose the split of each row of a table, as `divide` does; equal rows get one split.

    Args:
        rows: Inputs of a model, (n_rows, n_columns).
        energy: First quantity to predict, (n_rows,), for the method "energy".
        options: Options of the split; not by composition, which rows do not have.
        groups: Name of the group of each row; none if rows are not grouped.

    Returns:
        (n_rows,)

    Raises:
        ValueError: As `divide`.
    """
    names = groups or [""] * len(rows)
    return divide(names, options, find_first_rows(rows), energy=energy)


def list_empty_splits(codes: Codes, options: Split) -> list[str]:
    """Return the splits that are to have samples and have none."""
    wanted, counts = {"val": options.val, "test": options.test}, count_splits(codes)
    return [name for name, fraction in wanted.items() if fraction > 0 and not counts[name]]


def _choose_by_group(groups: Sequence[str], options: Split, free: Ints, first: Ints) -> Codes:
    """Return the split of some samples, whole groups together, (n_free,)."""
    names = list(dict.fromkeys(groups))
    places = {name: place for place, name in enumerate(names)}
    group = np.array([places[groups[sample]] for sample in free])
    if options.method == "list":
        codes: Codes = _split_by_name(names, np.unique(group), options)[group]
        return codes
    group = _join_groups(group, np.searchsorted(free, first[free]))
    return _split_whole_groups(group, options, np.random.default_rng(options.seed))[group]


def _choose_in_turn(
    options: Split, free: Ints, first: Ints, formulas: tuple[Ints, Sequence[str]] | None
) -> Codes:
    """Return the split of some samples, at random or each composition divided alike, (n_free,)."""
    rng = np.random.default_rng(options.seed)
    leading = free[first[free] == free]  # one of each set of equal frames
    if options.method == "random":
        order = rng.permutation(len(leading))
    else:
        assert formulas is not None, "samples without compositions"
        composition, names = formulas
        order = _split_by_formula(composition[leading], names, rng)
    codes = np.full(len(first), _TRAIN, dtype=np.int8)
    codes[leading] = _take_in_turn(order, options)
    return codes[first[free]]


def _join_groups(group: Ints, first: Ints) -> Ints:
    """Merge groups that share equal frames, (n_samples,)."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n = int(group.max()) + 1
    links = coo_array((np.ones(len(group)), (group[first], group)), shape=(n, n))
    # Components are numbered in the order of their first members: without links nothing changes.
    return np.asarray(connected_components(links, directed=False)[1][group], dtype=np.int64)


def _take_in_turn(order: Ints, options: Split) -> Codes:
    """Hold out samples at equal distances along `order`, (n_samples,) sample numbers.

    Every stretch of the order is divided in the same proportions, to within one sample.
    """
    codes = np.full(len(order), _TRAIN, dtype=np.int8)
    fraction = options.val + options.test
    held = order[_mark_evenly(len(order), fraction)]
    codes[held] = _VAL
    if fraction > 0:
        codes[held[_mark_evenly(len(held), options.test / fraction)]] = _TEST
    return codes


def _mark_evenly(n: int, fraction: float) -> NDArray[np.bool_]:
    """Mark `fraction` of n places, evenly spread, (n,)."""
    # Rounding protects counts such as 0.1 * 30 from the last bit of a double.
    steps = np.floor(np.round(np.arange(n + 1) * fraction, 9) + 0.5)
    return np.diff(steps) > 0


def _split_by_energy(energy: Floats, options: Split) -> Codes:
    """Hold out the highest energies per atom, (n_samples,)."""
    if np.isnan(energy).any():
        raise ValueError(
            f"split.method 'energy': {np.isnan(energy).sum()} of {len(energy)} samples have no "
            "energy; choose another method"
        )
    n_test, n_val = (round(part * len(energy)) for part in (options.test, options.val))
    codes = np.full(len(energy), _TRAIN, dtype=np.int8)
    falling = np.argsort(-energy, kind="stable")
    codes[falling[:n_test]] = _TEST
    codes[falling[n_test : n_test + n_val]] = _VAL
    return codes


def _split_by_formula(composition: Ints, names: Sequence[str], rng: np.random.Generator) -> Ints:
    """Order samples so that equal formulas are adjacent, otherwise at random, (n_samples,)."""
    _, formula = np.unique(names, return_inverse=True)
    rank = rng.permutation(len(names))[formula[composition]]
    return np.lexsort([rng.permutation(len(composition)), rank])


def _split_whole_groups(group: Ints, options: Split, rng: np.random.Generator) -> Codes:
    """Return the split of each group, as close to the fractions as whole groups allow.

    A split that would stay empty gets the smallest group, unless none were left for training.
    """
    sizes = np.bincount(group)
    codes = np.full(len(sizes), _TRAIN, dtype=np.int8)
    order = rng.permutation(np.flatnonzero(sizes))
    for code, fraction in ((_TEST, options.test), (_VAL, options.val)):
        open_groups = order[codes[order] == _TRAIN]
        chosen = _find_nearest_subset(sizes[open_groups], round(fraction * len(group)))
        if fraction > 0 and not chosen and len(open_groups) > 1:
            chosen = [int(np.argmin(sizes[open_groups]))]
        codes[open_groups[chosen]] = code
    return codes


def _find_nearest_subset(sizes: Ints, target: int) -> list[int]:
    """Choose numbers with a sum closest to `target`, early ones first.

    Subset sum by dynamic programming: `last[s]` is the first number with which the sum s can be
    reached, so that going back from a sum never uses a number twice. New sums lie between the
    smallest unreached sum and the sum of all numbers so far: with small numbers that is a short
    range, and the time does not grow with the target.
    """
    last = np.full(2 * target + 1, -1)  # larger sums are worse than none
    reached = np.zeros(2 * target + 1, dtype=bool)
    reached[0] = True
    gap, total = 1, 0  # all sums below the gap have been reached
    for i, size in enumerate(sizes.tolist()):
        if reached[target]:
            break
        if size <= 2 * target:
            total += size
            low, high = max(gap, size), min(total, 2 * target) + 1
            new = np.flatnonzero(reached[low - size : high - size] & ~reached[low:high]) + low
            reached[new] = True
            last[new] = i
            gap = _find_gap(reached, gap)
    sums = np.flatnonzero(reached)
    rest = int(sums[np.argmin(np.abs(sums - target))])
    chosen = []
    while rest > 0:
        chosen.append(int(last[rest]))
        rest -= int(sizes[chosen[-1]])
    return chosen


def _find_gap(reached: NDArray[np.bool_], start: int) -> int:
    """Return the first unreached index from `start` on, or the end."""
    while start < len(reached):
        stretch = reached[start : start + 64]
        if not stretch.all():
            return start + int(np.argmin(stretch))
        start += len(stretch)
    return start


def _split_by_name(names: Sequence[str], numbers: Ints, options: Split) -> Codes:
    """Return the split of each group number from lists of patterns; `numbers` may be chosen."""
    codes = np.full(len(names), _TRAIN, dtype=np.int8)
    owner: dict[int, str] = {}
    lists = (("val_groups", _VAL, options.val_groups), ("test_groups", _TEST, options.test_groups))
    for key, code, patterns in lists:
        for pattern in patterns:
            matched = [n for n in numbers if fnmatchcase(names[n], pattern)]
            if not matched:
                raise ValueError(_explain_unmatched(key, pattern, [names[n] for n in numbers]))
            for n in matched:
                if owner.setdefault(n, key) != key:
                    raise ValueError(
                        f"split: group {names[n]!r} is in val_groups and in test_groups; a group "
                        "belongs to one split"
                    )
            codes[matched] = code
    return codes


def _explain_unmatched(key: str, pattern: str, names: Sequence[str]) -> str:
    shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    return f"split.{key}: no group matches {pattern!r}{suggest(pattern, names)} (groups: {shown})"

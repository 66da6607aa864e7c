"""Reference energies. Oracle: numpy.linalg.lstsq on the whole matrix, one row a sample."""

from __future__ import annotations

import numpy as np
import pytest
from ase.data import atomic_numbers, chemical_symbols
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_atoms.importing import reference_energies as module
from pipeline_atoms.importing.columns import Columns, count_elements
from pipeline_atoms.importing.reference_energies import fit_reference_energies

LARGE = 1e5


def make_columns(compositions, energies) -> Columns:
    """Samples of these compositions, dictionaries of symbol to count."""
    columns = Columns()
    for composition, energy in zip(compositions, energies, strict=True):
        z = np.repeat([atomic_numbers[s] for s in composition], list(composition.values()))
        number = columns.compositions.number(count_elements(z.astype(np.int32)))
        columns.add(number, "", len(z), energy, -1)
    return columns


def count_compositions(compositions, symbols):
    return np.array([[c.get(s, 0) for s in symbols] for c in compositions], float)


def fit_references(compositions, energies, training=None, choice="least_squares", largest=LARGE):
    training = np.ones(len(energies), bool) if training is None else training
    return fit_reference_energies(make_columns(compositions, energies), training, choice, largest)


def draw_compositions(rng, n, symbols=("H", "O", "Hf", "Cu")):
    actual = []
    while len(actual) < n:
        counts = rng.integers(0, 5, len(symbols)).tolist()
        if sum(counts):
            actual.append({s: c for s, c in zip(symbols, counts, strict=True) if c})
    return actual


@pytest.mark.parametrize("block", [1, 7, 8192])
def test_equals_least_squares_over_all_samples(block, monkeypatch):
    monkeypatch.setattr(module, "_BLOCK", block)
    rng = np.random.default_rng(0)
    compositions = draw_compositions(rng, 400)
    symbols = ["H", "O", "Cu", "Hf"]
    matrix = count_compositions(compositions, symbols)
    energies = matrix @ [-13.6, -432.0, -1640.0, -1330.0] + rng.normal(0, 0.3, 400)
    result = fit_references(compositions, energies)
    expected, *_ = np.linalg.lstsq(matrix, energies)
    assert list(result.energies) == symbols
    np.testing.assert_allclose(list(result.energies.values()), expected, rtol=1e-12)
    n_atoms = matrix.sum(axis=1)
    rest = (energies - matrix @ expected) / n_atoms
    assert result.rms_after == pytest.approx(np.sqrt(np.mean(rest**2)), rel=1e-9)
    assert result.rms_before == pytest.approx(np.sqrt(np.mean((energies / n_atoms) ** 2)))
    assert (result.rank, result.not_separable) == (4, [])
    assert result.n_samples == {s: int((matrix[:, i] > 0).sum()) for i, s in enumerate(symbols)}


@pytest.mark.slow
@given(seed=st.integers(0, 10_000), n=st.integers(1, 12))
@settings(max_examples=60, deadline=None)
def test_least_norm_where_elements_cannot_be_separated(seed, n):
    rng = np.random.default_rng(seed)
    compositions = draw_compositions(rng, n)
    symbols = sorted({s for c in compositions for s in c}, key=chemical_symbols.index)
    matrix = count_compositions(compositions, symbols)
    energies = rng.normal(-100, 30, n)
    result = fit_references(compositions, energies)
    expected, _, rank, _ = np.linalg.lstsq(matrix, energies)
    np.testing.assert_allclose([result.energies[s] for s in symbols], expected, atol=1e-7)
    assert result.rank == rank
    # An element is separable if its axis lies in the row space.
    inside = np.linalg.pinv(matrix) @ matrix
    open_ = [s for i, s in enumerate(symbols) if inside[i, i] < 1 - 1e-6]
    assert list(result.not_separable) == open_


def test_only_training_samples_with_an_energy_count():
    compositions = [{"H": 1}, {"H": 2}, {"H": 3}, {"O": 1}]
    result = fit_references(
        compositions, [-1.0, -2.0, np.nan, 500.0], training=np.array([True, True, True, False])
    )
    assert result.energies == {"H": pytest.approx(-1.0), "O": 0.0}
    assert result.n_samples == {"H": 2, "O": 0}
    assert result.rms_after == pytest.approx(0.0, abs=1e-12)


def test_given_energies_are_taken():
    result = fit_references([{"H": 2}, {"O": 1}], [-3.0, -5.0], choice={"H": -1.0, "O": -4.0})
    assert (result.method, result.energies) == ("given", {"H": -1.0, "O": -4.0})
    assert result.rms_after == pytest.approx(np.sqrt((0.5**2 + 1) / 2))
    with pytest.raises(ValueError, match="reference_energies: 'Hx' is not an element"):
        fit_references([{"H": 1}], [-13.0], choice={"H": -13.6, "Hx": -1.0})


@pytest.mark.parametrize(("choice", "energy"), [("none", -1.0), ("least_squares", np.nan)])
def test_none_wanted_or_none_possible(choice, energy):
    result = fit_references([{"H": 1}, {"H": 1}], [energy, energy], choice=choice)
    assert (result.method, result.energies, result.n_samples) == ("none", {}, {"H": 2})


def test_absurd_energies_stop():
    with pytest.raises(ValueError, match=r"absurd: O -2e\+06 eV.*units.energy"):
        fit_references([{"H": 1}, {"O": 1}], [-1.0, -2e6])

"""How `tests/benchmarks/large_structures.py` finds the largest structure that fits.

Oracle: processes whose memory and time are known for every size.
"""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from harness.crystals import make_crystal
from harness.largest import (
    WITHIN,
    Attempt,
    Limits,
    Watch,
    compare_largest,
    find_largest,
    split_attempts,
)
from large_structures import fit_exponent

BASE, FIRST = 5e8, 1000
"""Bytes without a structure, atoms to begin with."""
FOREVER = Limits(memory=2e10, seconds=1e9)


def make_trial(limits, bytes_per_atom, ms_per_atom, tried):
    """Return a process of so much memory and time an atom."""

    def attempt(n_atoms):
        tried.append(n_atoms)
        grown, seconds = round(n_atoms * bytes_per_atom), 1e-3 * n_atoms * ms_per_atom
        if seconds > limits.seconds:
            return Attempt(n_atoms, "time")
        if BASE + grown > limits.memory:
            return Attempt(n_atoms, "memory")
        return Attempt(n_atoms, None, seconds, round(BASE) + grown, grown)

    return attempt


@pytest.mark.parametrize("bytes_per_atom", [3e4, 4e5, 3e6, 1e7, 1e8])
def test_the_largest_is_found_to_a_tenth_in_few_attempts(bytes_per_atom):
    tried = []
    attempts = find_largest(make_trial(FOREVER, bytes_per_atom, 1, tried), FIRST, FOREVER)
    fitting, failing = split_attempts(attempts)
    assert fitting[-1].atoms <= (FOREVER.memory - BASE) / bytes_per_atom < failing[0].atoms
    assert failing[0].atoms <= WITHIN * fitting[-1].atoms
    assert failing[0].stopped_by == "memory"
    assert len(tried) <= 8


def test_sizes_that_are_not_fine_end_the_search():
    def attempt(n_atoms):
        return Attempt(200, "memory") if n_atoms > 150 else Attempt(100, None, 1.0, 10**9, 10**8)

    assert {one.atoms for one in find_largest(attempt, FIRST, FOREVER)} == {100, 200}


def test_time_is_not_taken_for_memory():
    limits = Limits(FOREVER.memory, seconds=50.0)
    slow = find_largest(make_trial(limits, 4e5, 5, []), FIRST, limits)
    assert 10_000 / WITHIN <= split_attempts(slow)[0][-1].atoms <= 10_000
    large = find_largest(make_trial(limits, 1e7, 5, []), FIRST, limits)
    assert compare_largest(large, large) == (1.0, "exact")
    assert compare_largest(slow, large)[1] == "at least"
    assert compare_largest(large, slow)[1] == "at most"
    assert compare_largest(slow, slow) == (None, "unknown")


@pytest.mark.slow
def test_a_process_that_takes_too_much_is_ended():
    program = "import sys; x = bytearray(3 * 10**8); print(len(x), flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", program]
    for limits, cause in ((Limits(1e8, 60), "memory"), (Limits(1e9, 0.3), "time")):
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
            with Watch(SimpleNamespace(process=process), limits) as watch:
                process.wait()
            assert watch.stopped_by == cause


@pytest.mark.parametrize("n_atoms", [12, 96, 132, 1000, 5000, 56_789])
def test_crystals_are_compact_and_of_the_size_asked_for(n_atoms):
    crystal = make_crystal(n_atoms)
    assert abs(len(crystal) - n_atoms) <= max(6, 0.02 * n_atoms)
    lengths = crystal.cell.lengths()
    assert n_atoms < 1000 or lengths.max() <= 3 * lengths.min()


def test_exponents_are_those_of_powers():
    sizes = (100, 1000, 4000, 16_000)
    attempts = [Attempt(n, None, 2e-3 * n**1.2) for n in sizes] + [Attempt(64_000, "memory")]
    assert fit_exponent(attempts) == pytest.approx(1.2)
    assert fit_exponent(attempts[:2]) is None

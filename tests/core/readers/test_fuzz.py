"""A few damaged files of every reader; `tests/benchmarks/fuzz.py` tries many more."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from _fuzz_subjects import make_subjects
from fuzz import FAILURES, fuzz, judge, mutate

LEFT_TO_OTHERS = ("ase_cif", "fitsnap_tar")
"""ASE drops lines of a CIF that it does not understand; members of a tar archive may be lost."""


@pytest.mark.slow
def test_damaged_files_are_refused_or_right(tmp_path):
    failed: list[str] = []
    for subject in make_subjects(tmp_path):
        if subject.name not in LEFT_TO_OTHERS:
            counts, examples = fuzz(subject, 15 if subject.name == "packed" else 40, seed=7)
            assert bool(examples) == any(counts[kind] for kind in FAILURES)
            failed += examples
    assert not failed


def test_the_judge_knows_labels_of_another_frame():
    rng = np.random.default_rng(0)
    sound = [{"energy": rng.random(1), "positions": rng.random((2, 3))} for _ in range(3)]
    shifted = [{**sound[0], "energy": sound[1]["energy"]}, *sound[1:]]
    assert judge(sound, sound, "flip") == "unchanged"
    assert judge(sound, shifted, "flip") == "structure"
    assert judge(sound, sound[:2], "cut") == "shorter"
    assert judge(sound, sound[1:], "cut") == "structure"
    assert judge(sound, [None, *sound[1:]], "flip") == "refused"
    assert judge(sound, [*sound[:2], {"energy": rng.random(2)}], "flip") == "structure"


def test_every_kind_of_damage_is_done():
    rng = np.random.default_rng(0)
    kinds = {mutate(b"1\n2\n3\n", rng)[0] for _ in range(200)}
    assert len(kinds) == 8

"""Damaged files of all readers. Oracle: what is read of the sound file."""

import numpy as np
import pytest

from core.fuzz.mutation import FAILURES, fuzz, judge, make_all_subjects, mutate
from tiers import run_first


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


@pytest.mark.slow
@pytest.mark.parametrize("n", run_first([4, 300]))
def test_damaged_files_of_every_reader_are_refused_or_read_right(tmp_path, n):
    subjects = make_all_subjects(tmp_path)
    failures = [
        f"{subject.name} {outcome} {what}"
        for subject in subjects
        for outcome, what in fuzz(subject, range(n), seed=1)
        if outcome in FAILURES
    ]
    assert len(subjects) > 55
    assert failures == []

"""What is said of a file, and of a label that it lacks. The oracle is the file by eye."""

import pytest

from pipeline_atoms.readers import extxyz, mptrj
from pipeline_atoms.readers.describe import Value, describe, explain_missing_label

FRAMES = """\
1
Properties=species:S:1:pos:R:3:dft_force:R:3 REF_Energy=-1 virial="1 0 0 0 1 0 0 0 1" config_type=a
H 0 0 0 0.5 0 -2
2
Properties=species:S:1:pos:R:3:dft_force:R:3 REF_Energy=-3 magmom_total=2
O 0 0 0 0 0 3
H 0 0 1 0 0 0
x=1
1
Properties=species:S:1:pos:R:3
Fe 0 0 0
"""


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "a.xyz"
    path.write_text(FRAMES)
    return path


def test_values_are_counted_with_shape_and_range(path):
    result = describe(path, extxyz.READER)
    assert result.n_frames == 3
    assert result.n_atoms == (1, 2)
    assert result.elements == (1, 8, 26)
    assert result.bad == {"line 8: expected the number of atoms, found 'x=1'": 1}
    assert result.values == {
        "REF_Energy": Value(2, "()", -3, -1),
        "dft_force": Value(2, "(n, 3)", -2, 3),
        "magmom_total": Value(1, "()", 2, 2),
        "virial": Value(1, "(9)", 0, 1),
    }
    first = describe(path, extxyz.READER, limit=1)
    assert (first.n_frames, first.values["REF_Energy"].n_frames) == (1, 1)
    with pytest.raises(ValueError, match="no such file"):
        describe(path.with_name("b.json"), mptrj.READER)


SHOWN = "the file has REF_Energy, dft_force, magmom_total, virial"


@pytest.mark.parametrize(
    ("label", "key", "message"),
    [
        (
            "energy",
            "REF_energy",
            f"energy was found under 'REF_energy' in 0 of 3 frames; {SHOWN}; "
            "did you mean 'REF_Energy'?",
        ),
        ("forces", "REF_forces", "did you mean 'dft_force'?"),
        ("stress", "stress", "a virial is there: write stress = -virial / volume into the file"),
        ("energy", "REF_Energy", f"energy was found under 'REF_Energy' in 2 of 3 frames; {SHOWN}"),
    ],
)
def test_a_missing_label_is_explained(path, label, key, message):
    assert message in explain_missing_label(describe(path, extxyz.READER), label, key)


def test_a_file_without_values_says_so(path):
    path.write_text("1\n\nH 0 0 0\n")
    result = describe(path, extxyz.READER)
    assert explain_missing_label(result, "energy", "energy").endswith(
        "the file has no numeric values"
    )

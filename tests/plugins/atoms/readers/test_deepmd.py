"""Systems of DeePMD-kit. Oracle: frames of ASE, written as the format's description says."""

import numpy as np
import pytest

from pipeline_atoms.readers import BadFrame
from pipeline_atoms.readers.catalogue import open_frames
from pipeline_atoms.readers.deepmd import READER
from plugins.atoms.readers.deepmd_systems import make_frames, write_system


@pytest.mark.parametrize("flat", [True, False])
def test_frames_are_those_of_ase(tmp_path, flat):
    expected = make_frames()
    frames = list(open_frames(write_system(tmp_path / "alloy", expected, flat=flat), READER, {}))
    assert [frame.index for frame in frames] == list(range(5))
    assert [frame.info["set"] for frame in frames] == ["set.000"] * 3 + ["set.001"] * 2
    for frame, atoms in zip(frames, expected, strict=True):
        assert frame.atomic_numbers.tolist() == [29, 13, 13, 29]
        np.testing.assert_array_equal(frame.positions, atoms.positions)
        np.testing.assert_array_equal(frame.cell, atoms.cell.array)
        assert frame.pbc.all()
        assert frame.labels["energy"] == atoms.get_potential_energy()
        np.testing.assert_array_equal(frame.labels["forces"], atoms.get_forces())
        np.testing.assert_allclose(frame.labels["stress"], atoms.get_stress(voigt=False), rtol=1e-9)


def test_single_precision_molecules_and_missing_labels(tmp_path):
    path = write_system(tmp_path / "cluster", make_frames(2, pbc=False), dtype=np.float32)
    (path.parent / "set.000/force.npy").unlink()
    for frame in open_frames(path, READER, {}):
        assert not frame.pbc.any()
        assert not frame.cell.any()
        assert set(frame.labels) == {"energy"}
        assert frame.positions.dtype == np.float64


def test_mixed_types_differ_from_frame_to_frame(tmp_path):
    path = write_system(tmp_path / "mixed", make_frames(3))
    types = np.array([[0, 0, 0, 0], [1, 0, 1, 0], [1, 1, 1, -1]])
    np.save(path.parent / "set.000/real_atom_types.npy", types)
    one, two, three = open_frames(path, READER, {})
    assert one.atomic_numbers.tolist() == [13] * 4
    assert two.atomic_numbers.tolist() == [29, 13, 29, 13]
    assert three == BadFrame(
        2, "set.000: an atom has the type -1, and type_map.raw has the types 0 to 1"
    )


def save(name, values, **options):
    return lambda folder: np.save(folder / f"set.000/{name}.npy", values, **options)


def change_end(change):
    """Damage the end of the coordinates."""

    def edit(folder):
        path = folder / "set.000/coord.npy"
        path.write_bytes(change(path.read_bytes()))

    return edit


def write(name, text):
    return lambda folder: (folder / name).write_text(text)


def keep_text_alone(folder):
    (folder / "set.000").rename(folder / "other")
    (folder / "coord.raw").write_text("0")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            save("box", np.zeros((2, 9))),
            r"set\.000/box\.npy: holds float64 of the shape \(2, 9\), expected .*\(3, 9\)",
        ),
        (
            save("force", np.zeros((3, 12), dtype=int)),
            r"force\.npy: holds int64 .*, expected floating-point numbers",
        ),
        (
            save("energy", np.array([{}], dtype=object), allow_pickle=True),
            r"set\.000/energy\.npy: is not a complete array of numbers",
        ),
        (change_end(lambda c: c[:-8]), r"set\.000/coord\.npy: is not a complete array of numbers"),
        (change_end(lambda c: c + bytes(8)), r"set\.000/coord\.npy: is longer than its array"),
        (
            write("type.raw", "1 0 0"),
            r"coord\.npy: .*shape \(3, 12\), expected .*\(3, 3, 3\) or \(3, 9\)",
        ),
        (lambda f: (f / "set.000/box.npy").unlink(), r"set\.000/box\.npy: no such file"),
        (lambda f: (f / "type_map.raw").unlink(), r"type_map\.raw, .*is missing beside it"),
        (write("type_map.raw", "Type_0 Cu"), "'Type_0' is not a chemical"),
        (write("type.raw", "H O"), "number of the type of each atom"),
        (lambda f: (f / "set.000").rename(f / "other"), r"no folder set\.\* lies beside it; copy"),
        (keep_text_alone, "turn the text files into arrays with dpdata"),
    ],
)
def test_what_does_not_fit_together_is_refused_by_file(tmp_path, damage, message):
    path = write_system(tmp_path / "alloy", make_frames(3))
    damage(path.parent)
    with pytest.raises(ValueError, match=rf"alloy/type\.raw: .*{message}"):
        list(open_frames(path, READER, {}))


def test_another_file_of_a_system_is_refused(tmp_path):
    path = write_system(tmp_path / "alloy", make_frames(1))
    with pytest.raises(ValueError, match=r"named by its file type\.raw"):
        list(open_frames(path.parent / "set.000/coord.npy", READER, {}))

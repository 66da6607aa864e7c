"""Oracles: ASE's calculators and its own reading of what is written, and ASE's units."""

from dataclasses import replace

import ase.build
import ase.io
import numpy as np
import pytest
from ase import units
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from ase.stress import full_3x3_to_voigt_6_stress

from pipeline_atoms.calculators.calculator import PotentialCalculator
from pipeline_atoms.calculators.committee import load_committee
from pipeline_atoms.calculators.predictions import predict_files
from pipeline_atoms.cli.predict import format_frames
from pipeline_atoms.readers import Frame, Reader, Units, extxyz
from pipeline_atoms.readers import ase as ase_reader
from pipeline_atoms.testing.example_data import make_alloys
from plugins.atoms.argon import make_structures
from plugins.atoms.calculators.test_committee import make_committee
from plugins.atoms.lennard_jones import GRAPH, LennardJones


def make_frames():
    """Two crystals, a slab and a cluster with their energies by EMT."""
    slab = ase.build.fcc111("Cu", (2, 2, 3), vacuum=8.0)
    slab.info = {}  # what ASE's builder keeps cannot be written
    cluster = ase.build.molecule("CO")
    frames = [*make_alloys(2), slab, cluster]
    for atoms in frames:
        atoms.calc = EMT()
        atoms.get_forces()
        if atoms.pbc.all():
            atoms.get_stress()
    return frames


def predict(folder, frames, calculator=None, reader=ase_reader.READER, keys=None):
    path = folder / "given.traj"
    ase.io.write(path, frames)
    output = folder / "out/predictions.xyz"
    summaries, errors = predict_files({path: reader}, keys or {}, calculator or EMT(), output)
    return ase.io.read(output, ":"), summaries, errors


def shift(atoms, per_atom, force):
    """The frame with other labels: a constant for each atom, and for each component of a force."""
    results = {**atoms.calc.results}
    labels = {
        "energy": results["energy"] + per_atom * len(atoms),
        "forces": results["forces"] + force,
    }
    moved = atoms.copy()
    moved.calc = SinglePointCalculator(moved, **labels)
    return moved


def test_frames_of_several_files_follow_each_other(tmp_path):
    frames, files = make_frames(), {}
    for number, name in enumerate(("b.traj", "a.xyz")):
        ase.io.write(tmp_path / name, frames[2 * number : 2 * number + 2])
        files[tmp_path / name] = (ase_reader.READER, extxyz.READER)[number]
    output = tmp_path / "predictions.xyz"
    summaries, errors = predict_files(files, {}, EMT(), output)
    names = [one.file.rpartition("/")[2] for one in summaries]
    assert list(zip(names, (one.frame for one in summaries), strict=True)) == [
        ("b.traj", 0), ("b.traj", 1), ("a.xyz", 0), ("a.xyz", 1),
    ]  # fmt: skip
    written = [atoms.get_chemical_formula() for atoms in ase.io.read(output, ":")]
    assert written == [atoms.get_chemical_formula() for atoms in frames]
    assert errors["energy_per_atom"]["count"] == 4


def test_what_is_written_is_what_the_calculator_says(tmp_path):
    frames = make_frames()
    written, summaries, errors = predict(tmp_path, frames)
    assert len(written) == len(summaries) == 4
    for number, (ours, theirs, summary) in enumerate(zip(written, frames, summaries, strict=True)):
        assert ours.symbols.get_chemical_formula() == theirs.symbols.get_chemical_formula()
        assert np.allclose(ours.positions, theirs.positions, atol=1e-7)
        assert np.allclose(ours.cell, theirs.cell, atol=1e-7)
        assert ours.get_potential_energy() == pytest.approx(theirs.get_potential_energy(), abs=1e-7)
        assert np.allclose(ours.get_forces(), theirs.get_forces(), atol=1e-7)
        assert ("stress" in ours.calc.results) == bool(theirs.pbc.all())
        if theirs.pbc.all():
            assert np.allclose(ours.get_stress(), theirs.get_stress(), atol=1e-7)
        assert summary.frame == number
        assert summary.n_atoms == len(theirs)
        assert summary.energy_per_atom == pytest.approx(theirs.get_potential_energy() / len(theirs))
        lengths = np.linalg.norm(theirs.get_forces(), axis=1)
        assert summary.largest_force == pytest.approx(lengths.max())
    for name in ("energy_per_atom", "forces", "stress"):
        assert errors[name]["mae"] == pytest.approx(0, abs=1e-12)
    assert errors["stress"]["count"] == 2 * 9


def test_a_constant_between_two_references_is_told_from_an_error(tmp_path):
    frames = [shift(atoms, 2.5, 0.25) for atoms in make_frames()]
    _, _, errors = predict(tmp_path, frames)
    energy = errors["energy_per_atom"]
    assert energy["mae"] == pytest.approx(2.5)
    assert energy["mean_difference"] == pytest.approx(-2.5)
    assert energy["mae_without_mean"] == pytest.approx(0, abs=1e-12)
    assert errors["forces"]["mae"] == pytest.approx(0.25)
    assert "stress" not in errors
    crystal, _, slab, _ = make_frames()  # of which each counts alike
    _, _, errors = predict(tmp_path, [shift(crystal, 1.0, 0.0), shift(slab, 4.0, 0.0)])
    energy = errors["energy_per_atom"]
    assert energy["mae"] == pytest.approx((1 + 4) / 2)
    assert energy["mae_without_mean"] == pytest.approx((4 - 1) / 2)
    _, _, errors = predict(tmp_path, [shift(crystal, 1.0, 0.0)])
    assert errors["energy_per_atom"]["mae"] == pytest.approx(1.0)
    assert "mean_difference" not in errors["energy_per_atom"]
    written, summaries, errors = predict(tmp_path, [ase.build.bulk("Cu")])  # has no labels
    assert errors == {}
    assert len(written) == len(summaries) == 1


def test_units_and_signs_of_a_format_are_converted(tmp_path):
    """A format in atomic units whose stress is a pressure, against ASE's units."""
    atoms = make_alloys(1)[0]

    def read(path, keys):
        yield Frame(
            atomic_numbers=atoms.numbers.astype(np.int32),
            positions=atoms.positions / units.Bohr,
            cell=np.array(atoms.cell) / units.Bohr,
            pbc=atoms.pbc,
            labels={
                "energy": np.array(atoms.get_potential_energy() / units.Hartree),
                "forces": atoms.get_forces() * units.Bohr / units.Hartree,
                "stress": -atoms.get_stress(voigt=False) / units.GPa,
            },
        )

    given = Units("bohr", "hartree", "hartree/bohr", "GPa", "pressure")
    reader = Reader(name="atomic", summary="s", suffixes=(), units=given, read=read)
    _, _, errors = predict(tmp_path, [atoms], reader=reader)
    for name in ("energy_per_atom", "forces", "stress"):
        assert errors[name]["mae"] == pytest.approx(0, abs=1e-7)


def test_magnetic_moments_are_written_where_the_model_has_them(tmp_path):
    module = LennardJones(("energy", "forces", "stress", "magmoms"))
    calculator = PotentialCalculator(module, GRAPH, ["Ar"])
    atoms = ase.build.bulk("Ar", "fcc", 5.3, cubic=True)
    (written,), _, _ = predict(tmp_path, [atoms], calculator)
    atoms.calc = calculator
    assert np.allclose(written.get_magnetic_moments(), calculator.results["magmoms"], atol=1e-7)
    assert np.allclose(
        written.calc.results["stress"],
        full_3x3_to_voigt_6_stress(atoms.get_stress(voigt=False)),
        atol=1e-7,
    )


def test_what_a_frame_says_of_itself_is_kept_but_for_other_predictions(tmp_path):
    atoms = ase.build.bulk("Cu")
    atoms.info = {"config_type": "hot one", "REF_energy": -1.5, "free_energy": 7.0, "a b": 1}
    (written,), _, errors = predict(tmp_path, [atoms], keys={"energy": "REF_energy"})
    assert written.info["config_type"] == "hot one"
    assert "free_energy" not in written.info
    assert "a b" not in written.info
    assert written.get_potential_energy() == pytest.approx(atoms_energy(atoms), abs=1e-7)
    assert errors["energy_per_atom"]["mae"] == pytest.approx(abs(atoms_energy(atoms) + 1.5))


def atoms_energy(atoms):
    fresh = atoms.copy()
    fresh.calc = EMT()
    return fresh.get_potential_energy()


def test_a_bad_frame_is_named_and_nothing_is_left(tmp_path):
    path, output = tmp_path / "given.xyz", tmp_path / "out/predictions.xyz"
    ase.io.write(path, make_alloys(3), format="extxyz")
    path.write_text(path.read_text() + "4\nProperties=species:S:1:pos:R:3\nCu 0 0 0\n")
    with pytest.raises(ValueError, match=r"given\.xyz: frame 3: truncated.*; repair or remove"):
        predict_files({path: extxyz.READER}, {}, EMT(), output)
    assert list(output.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a.symbols.__setitem__(0, "Fe"), r"not on Fe \(atom 0 of 4\)"),
        (lambda a: a.positions.__setitem__(1, a.positions[0]), r"atoms 0 and 1"),
    ],
)
def test_a_frame_without_an_answer_is_named_and_older_predictions_stay(tmp_path, change, message):
    good, bad = (ase.build.bulk("Ar", "fcc", 5.3, cubic=True) for _ in range(2))
    change(bad)
    path, output = tmp_path / "given.traj", tmp_path / "predictions.xyz"
    ase.io.write(path, [good, bad])
    output.write_text("older")
    calculator = PotentialCalculator(LennardJones(), GRAPH, ["Ar"])
    with pytest.raises(ValueError, match=rf"given\.traj: frame 1 \(.*Ar.*\): .*{message}"):
        predict_files({path: ase_reader.READER}, {}, calculator, output)
    assert output.read_text() == "older"
    assert {one.name for one in tmp_path.iterdir()} == {"given.traj", "predictions.xyz"}


def test_what_cannot_be_written_or_read_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    path = tmp_path / "given.traj"
    ase.io.write(path, ase.build.bulk("Cu"))
    with pytest.raises(ValueError, match=r"file/predictions\.xyz: cannot be written .*--output"):
        predict_files({path: ase_reader.READER}, {}, EMT(), tmp_path / "file/predictions.xyz")
    reader = replace(ase_reader.READER, units=Units(energy="ergs"))
    with pytest.raises(ValueError, match=r"reader 'ase': unknown unit of energy 'ergs'"):
        predict(tmp_path, [ase.build.bulk("Cu")], reader=reader)


def test_a_model_of_forces_alone_has_no_energy_to_show(tmp_path):
    class Forces(EMT):
        implemented_properties = ("forces",)

    (written,), (summary,), errors = predict(tmp_path, [make_frames()[0]], Forces())
    assert summary.energy_per_atom is None
    assert summary.largest_force is not None
    assert set(errors) == {"forces"}
    assert set(written.calc.results) == {"forces"}


@pytest.mark.slow
def test_predictions_of_a_committee_say_how_sure_they_are(tmp_path):
    run = make_committee(tmp_path)
    atoms = make_structures()[3]
    atoms.info = {}
    ase.io.write(tmp_path / "mine.traj", atoms)
    committee = load_committee(run.folder, "cpu", run.registry)
    files = {tmp_path / "mine.traj": ase_reader.READER}
    summaries, _ = predict_files(files, {}, committee, tmp_path / "o.xyz")

    frame = ase.io.read(tmp_path / "o.xyz")
    half = frame.arrays["forces_uncertainty"]
    assert half.shape == (len(atoms),)
    assert summaries[0].force_uncertainty == pytest.approx(half.max(), abs=1e-7)
    energy = frame.info["energy_uncertainty"] / len(atoms)
    assert summaries[0].energy_uncertainty == pytest.approx(energy, abs=1e-7)
    table = format_frames(summaries)
    assert f"± {energy:.6f}" in table
    assert "widest ± of a force (eV/Å)" in table

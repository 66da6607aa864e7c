"""The shipped HfO2 data agree with their card, with each other and with physics.

Oracles: finite strain for the stress, ASE's neighbour list for the pairs, positive definiteness and
decay of the overlap for the matrices, CP2K itself for the recomputed frame.
"""

from __future__ import annotations

import gzip
import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import ase
import h5py
import numpy as np
import pytest
import scipy.linalg
import scipy.stats
from ase.neighborlist import neighbor_list

DATA = Path(__file__).parents[2] / "workflows" / "datasets" / "hfo2"
RUNS = sorted(path.name for path in (DATA / "inputs").iterdir())
HARTREE, GPA = 27.211386245988, 1 / 160.2176634  # eV, eV/Å³
STRAINED = sorted(path.name for path in (DATA / "strain" / "outputs").iterdir())
WHOLE = "tetragonal-2000K"  # the run whose frame 000 has all pairs, and levels
YZ = np.array([[0, 0, 0], [0, 0, 1], [0, 1, 0]])


def read_text(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode()


def read_numbers(pattern: str, source: str) -> np.ndarray:
    """Return the numbers of all lines `pattern x y z`."""
    rows = re.findall(rf"^ *{pattern} +(-?\d\S+) +(-?\d\S+) +(-?\d\S+)$", source, re.MULTILINE)
    return np.array(rows, dtype=float)


def energy(log: str) -> float:
    return float(re.search(r"ENERGY\| .*: +(\S+)", log)[1])


def list_names(folder: Path, suffix: str) -> list[str]:
    return sorted(str(path.relative_to(folder)).removesuffix(suffix) for path in folder.glob("*/*"))


def import_real_space() -> ModuleType:
    """Import the module beside the data that reads and packs the matrices."""
    spec = importlib.util.spec_from_file_location("real_space", DATA / "real_space.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


REAL_SPACE = import_real_space()


def read_elements(frame: h5py.Group, name: str) -> np.ndarray:
    """Return the elements of H or S of a frame."""
    return REAL_SPACE.read(frame, name)


def generate(*arguments: str) -> None:
    command = [sys.executable, "-B", str(DATA / "generate.py"), *arguments]
    subprocess.run(command, check=True, capture_output=True)


def test_size():
    sizes = [path.stat().st_size for path in DATA.rglob("*") if path.is_file()]
    assert sum(sizes) <= 15e6
    assert max(sizes) < 3 * 2**20


@pytest.mark.parametrize("root", [DATA, DATA / "strain", DATA / "levels"])
def test_every_output_has_its_input(root):
    assert list_names(root / "outputs", ".log.gz") == list_names(root / "inputs", ".inp.gz")


def test_card_counts_frames_and_ranges():
    rows = re.findall(
        r"^\| (\w+-\d{4}K) \| (\d+) \| (\d+) \|.*?\| (-\d\S+) to (-\d\S+) \|",
        (DATA / "README.md").read_text(),
        re.MULTILINE,
    )
    assert sorted(row[0] for row in rows) == RUNS
    for run, n_outputs, n_matrices, low, high in rows:
        energies = [energy(read_text(path)) for path in (DATA / "outputs" / run).iterdir()]
        assert len(energies) == int(n_outputs)
        per_atom = np.array(energies) * HARTREE / 12
        assert (per_atom.min(), per_atom.max()) == pytest.approx(
            (float(low), float(high)), abs=6e-4
        )
        with h5py.File(DATA / "matrices" / f"{run}.h5") as file:
            assert len(file) == int(n_matrices)


def test_frames_are_unique_and_share_all_settings():
    inputs = [read_text(path) for path in DATA.glob("inputs/*/*.gz")]
    assert len(set(inputs)) == len(inputs) == 119
    assert (
        len({re.sub(r"&CELL.*&END COORD", "", source, flags=re.DOTALL) for source in inputs}) == 1
    )


def test_outputs_are_complete_converged_and_anonymous():
    for path in DATA.glob("**/outputs/*/*.gz"):
        log = read_text(path)
        assert "SCF run converged" in log, path
        assert "The number of warnings for this run is : 0" in log, path
        header = re.findall(r"PROGRAM (?:STARTED|RAN|STOPPED|PROCESS) (?:ON|BY|ID|IN) +(.*)", log)
        assert header == ["localhost", "<unknown>", "0", "."] * 2, path
        assert path.read_bytes()[3:8] == bytes(5), f"{path} carries a name or a time"


@pytest.mark.parametrize("group", STRAINED)
@pytest.mark.parametrize(
    ("name", "direction", "tolerance"), [("hydrostatic", np.eye(3), 0.01), ("yz", YZ, 0.001)]
)
def test_printed_stress_is_minus_the_energy_gradient_by_strain(group, name, direction, tolerance):
    folder, step = DATA / "strain" / "outputs" / group, 0.01
    cell = read_numbers(
        "[ABC]", read_text(DATA / "strain" / "inputs" / group / "unstrained.inp.gz")
    )
    minus, plus = (energy(read_text(folder / f"{name}{sign}0.0100.log.gz")) for sign in "-+")
    gradient = (plus - minus) * HARTREE / (2 * step * np.linalg.det(cell)) / GPA
    printed = read_numbers(r"STRESS\| +[xyz]", read_text(folder / "unstrained.log.gz"))[:3]
    assert gradient == pytest.approx(-np.sum(printed * direction), rel=tolerance)


@pytest.mark.parametrize("group", STRAINED)
def test_unstrained_copy_repeats_its_frame(group):
    run, frame = group.rsplit("-", 1)
    first = read_text(DATA / "outputs" / run / f"{frame}.log.gz")
    again = read_text(DATA / "strain" / "outputs" / group / "unstrained.log.gz")
    assert energy(again) == pytest.approx(energy(first), abs=1e-9)
    for pattern in (r"STRESS\| +[xyz]", r"\d+ +[12] +(?:Hf|O)"):
        np.testing.assert_allclose(
            read_numbers(pattern, again), read_numbers(pattern, first), atol=1e-7
        )


@pytest.mark.slow
def test_script_writes_the_shipped_strained_inputs(tmp_path):
    frames = ["/".join(group.rsplit("-", 1)) for group in STRAINED]
    generate("--frames", *frames, "--strain", "0.01", "--inputs-only", "--output", str(tmp_path))
    for path in (DATA / "strain" / "inputs").rglob("*.gz"):
        assert read_text(tmp_path / path.relative_to(DATA)) == read_text(path)


def test_script_writes_the_shipped_input_that_prints_levels(tmp_path):
    frame = f"{WHOLE}/000"
    generate("--frames", frame, "--reach", "14", "--inputs-only", "--output", str(tmp_path))
    (path,) = (DATA / "levels" / "inputs").rglob("*.gz")
    assert read_text(tmp_path / path.relative_to(DATA)) == read_text(path)


def test_levels_are_those_that_the_output_prints():
    log = read_text(DATA / "levels" / "outputs" / WHOLE / "000.log.gz")
    last = log[log.index("SCF run converged") :]
    rows = re.findall(r"^ MO\| +(\d+) +(-?\d+\.\d{12}) +-?\d+\.\d{12} +\d\.\d+$", last, re.M)
    assert [int(number) for number, _ in rows] == 27 * list(range(1, 73))
    points = re.findall(r"^ BRILLOUIN\| +\d+ +0.03704 +(\S+) +(\S+) +(\S+)$", log, re.M)
    with h5py.File(DATA / "levels" / "matrices" / f"{WHOLE}.h5") as file:
        printed = np.array([energy for _, energy in rows], dtype=float).reshape(27, 72)
        np.testing.assert_array_equal(file["000/levels"], printed)
        np.testing.assert_allclose(file["000/k_points"], np.array(points, dtype=float), atol=4e-6)
        assert np.ptp(file["000/k_points"][()] * 3 % 1) == 0
    shipped = read_text(DATA / "outputs" / WHOLE / "000.log.gz")
    assert energy(log) == pytest.approx(energy(shipped), abs=1e-11)


def test_packed_elements_are_rounded_to_their_steps():
    lengths = np.array([0, 5.9, 6.1, 7.5, 9.9])
    powers = REAL_SPACE.find_exponents(lengths, REAL_SPACE.STEPS["H"])
    assert powers.tolist() == [-20, -20, -21, -22, -24]
    values = np.array([-0.37, 3 * 2.0**-21, -(2.0**-21), 2.0**-22, -1e-6])
    numbers = REAL_SPACE.encode(values, powers)
    assert numbers[2:4].tolist() == [1, 2]  # -1 and 1 step
    back = REAL_SPACE.decode(numbers, powers)
    assert (np.abs(back - values) <= np.ldexp(0.5, powers)).all()
    np.testing.assert_array_equal(REAL_SPACE.encode(back, powers), numbers)


def test_all_pairs_are_whole_beyond_the_cutoff_of_the_set():
    """Blocks up to the cutoff are those of the set; the others end before the reach."""
    with (
        h5py.File(DATA / "levels" / "matrices" / f"{WHOLE}.h5") as whole,
        h5py.File(DATA / "matrices" / f"{WHOLE}.h5") as file,
    ):
        for name in ("positions", "cell"):
            np.testing.assert_allclose(whole["000"][name], file["000"][name], atol=1e-9)
        pairs = whole["000/atom_pairs"][()]
        shapes, values = (
            whole["000/chunk_shapes"][()].prod(axis=1),
            read_elements(whole["000"], "H"),
        )
        positions, cell = whole["000/positions"][()], whole["000/cell"][()]
        vectors = positions[pairs[:, 4]] - positions[pairs[:, 3]] + pairs[:, :3] @ cell
        lengths = np.linalg.norm(vectors, axis=1)
        near = lengths <= file.attrs["cutoff"]
        np.testing.assert_array_equal(pairs[near], file["000/atom_pairs"])
        steps = np.repeat(np.ldexp(1.0, file["000/H_powers"]), shapes[near])
        off = values[np.repeat(near, shapes)] - read_elements(file["000"], "H")
        # Half a step each, and twice the change in a shipped set that was in float32 before.
        assert (np.abs(off) <= steps / 2 + 1.8e-7).all()
        largest = np.array([abs(b).max() for b in np.split(values, np.cumsum(shapes)[:-1])])
        assert lengths[largest > 0].max() < whole.attrs["cutoff"] - 0.1


def sum_images(frame: h5py.Group, name: str, k: np.ndarray) -> np.ndarray:
    """Return the matrix `name` at the k-point `k`, hermitian partners added. (72, 72)"""
    pairs, shapes = frame["atom_pairs"][()], frame["chunk_shapes"][()]
    starts = np.concatenate([[0], np.cumsum(np.where(frame["atomic_numbers"][()] == 72, 10, 4))])
    matrix = np.zeros((starts[-1], starts[-1]), dtype=complex)
    blocks = np.split(read_elements(frame, name), np.cumsum(shapes.prod(axis=1))[:-1])
    for (*image, i, j), shape, values in zip(pairs.tolist(), shapes, blocks, strict=True):
        block = values.reshape(shape) * np.exp(2j * np.pi * np.dot(k, image))
        rows, columns = slice(starts[i], starts[i + 1]), slice(starts[j], starts[j + 1])
        matrix[rows, columns] += block
        if any(image) or i != j:
            matrix[columns, rows] += block.conj().T
    return matrix


def read_listed_images(log: str) -> set[tuple[int, ...]]:
    """Return the cells for which CP2K wrote a matrix; it leaves out those without any overlap."""
    rows = re.findall(r"^ +\d+ +(-?\d) +(-?\d) +(-?\d)$", log, re.MULTILINE)
    return {tuple(map(int, row)) for row in rows}


@pytest.mark.parametrize("run", RUNS)
def test_structures_are_those_of_the_inputs(run):
    with h5py.File(DATA / "matrices" / f"{run}.h5") as file:
        for name, frame in file.items():
            source = read_text(DATA / "inputs" / run / f"{name}.inp.gz")
            np.testing.assert_allclose(
                frame["positions"], read_numbers("(?:Hf|O)", source), atol=1e-9
            )
            np.testing.assert_allclose(frame["cell"], read_numbers("[ABC]", source), atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS)
def test_pairs_are_the_neighbours_in_the_listed_images(run):
    with h5py.File(DATA / "matrices" / f"{run}.h5") as file:
        cutoff = file.attrs["cutoff"]
        for name, frame in file.items():
            images = read_listed_images(read_text(DATA / "outputs" / run / f"{name}.log.gz"))
            species, cell = frame["atomic_numbers"][()], frame["cell"][()]
            atoms = ase.Atoms(species, frame["positions"][()], cell=cell, pbc=True)
            result = np.column_stack(neighbor_list("Sij", atoms, cutoff)).tolist()
            expected = {tuple(row) for row in result if tuple(row[:3]) in images}
            expected |= {(0, 0, 0, atom, atom) for atom in range(len(atoms))}
            pairs = frame["atom_pairs"][()]
            partners = np.column_stack([-pairs[:, :3], pairs[:, 4], pairs[:, 3]])
            kept, mirrored = set(map(tuple, pairs.tolist())), set(map(tuple, partners.tolist()))
            assert len(kept) == len(pairs)
            assert kept & mirrored == {(0, 0, 0, atom, atom) for atom in range(len(atoms))}
            assert kept | mirrored == expected


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS)
def test_matrices_are_hermitian_and_the_overlap_is_positive(run):
    with h5py.File(DATA / "matrices" / f"{run}.h5") as file:
        frame = file["010"]
        for k in (np.zeros(3), np.array([0.1, 0.2, 0.3])):
            h, s = sum_images(frame, "H", k), sum_images(frame, "S", k)
            np.testing.assert_allclose(h, h.conj().T, atol=1e-7)
            np.testing.assert_allclose(s, s.conj().T, atol=1e-7)
            levels = scipy.linalg.eigh(h, s, eigvals_only=True) * HARTREE
            assert levels[48] - levels[47] > 2, (
                "HfO2 is an insulator with 48 occupied levels a cell"
            )
        overlap, stops = (
            read_elements(frame, "S"),
            np.cumsum(frame["chunk_shapes"][()].prod(axis=1)),
        )
        for (*image, i, j), stop, shape in zip(
            frame["atom_pairs"][()].tolist(), stops, frame["chunk_shapes"][()], strict=True
        ):
            if not any(image) and i == j:
                block = overlap[stop - shape.prod() : stop].reshape(shape)
                assert np.linalg.eigvalsh(block).min() > 0


def test_overlap_decays_with_the_stated_displacement():
    with h5py.File(DATA / "matrices" / "cubic-2000K.h5") as file:
        frame = file["019"]
        pairs, positions = frame["atom_pairs"][()], frame["positions"][()]
        ends = np.cumsum(frame["chunk_shapes"][()].prod(axis=1))[:-1]
        largest = np.array(
            [np.abs(block).max() for block in np.split(read_elements(frame, "S"), ends)]
        )
        between = positions[pairs[:, 4]] - positions[pairs[:, 3]]
        shifts = pairs[:, :3] @ frame["cell"][()]
        oxygen = (frame["atomic_numbers"][()][pairs[:, 3:]] == 8).all(axis=1) & (largest > 0)
    right, wrong = (np.linalg.norm(between + sign * shifts, axis=1)[oxygen] for sign in (1, -1))
    assert scipy.stats.spearmanr(right, largest[oxygen]).statistic < -0.99
    assert scipy.stats.spearmanr(wrong, largest[oxygen]).statistic > -0.5


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cp2k.psmp") is None, reason="needs CP2K (Debian package cp2k)")
@pytest.mark.parametrize(
    ("run", "frame", "options", "folder"),
    [("cubic-2000K", "019", [], ""), (WHOLE, "000", ["--reach", "14"], "levels")],
)
def test_recomputed_frame_repeats_the_shipped_one(tmp_path, run, frame, options, folder):
    generate("--frames", f"{run}/{frame}", *options, "--output", str(tmp_path))
    roots = (DATA / folder, tmp_path / folder)
    old, new = (read_text(root / "outputs" / run / f"{frame}.log.gz") for root in roots)
    assert energy(new) == pytest.approx(energy(old), abs=1e-6)
    for pattern in (r"STRESS\| +[xyz]", r"\d+ +[12] +(?:Hf|O)"):
        np.testing.assert_allclose(
            read_numbers(pattern, new), read_numbers(pattern, old), atol=1e-4
        )
    places = (root / "matrices" / f"{run}.h5" for root in roots)
    a, b = (h5py.File(path) for path in places)
    with a, b:
        assert a[frame].keys() == b[frame].keys()
        for name in a[frame]:
            old, new = (file[frame][name][()] for file in (a, b))
            if name in {"H", "S"}:
                old, new = (read_elements(file[frame], name) for file in (a, b))
            np.testing.assert_allclose(new, old, atol=2e-6)

"""Diffusion; oracles: random walks, free flight and vibrations, of which all is known."""

import h5py
import numpy as np
import pytest

from pipeline_atoms.dynamics.diffusion import compute_msd, store_diffusion

STEP_FS = 10.0


def write_run(folder, paths, numbers, cells=None):
    """Write frames, of which the second half counts, as molecular dynamics stores them."""
    file = h5py.File(folder / "run.h5", "w")
    group = file.create_group("run")
    group["time"] = STEP_FS * np.arange(len(paths))
    group["positions"] = paths.astype("f4")
    cell = np.broadcast_to(10.0 * np.eye(3), (len(paths), 3, 3)) if cells is None else cells
    group["cell"] = cell.astype("f4")
    group["volume"] = abs(np.linalg.det(cell))
    group["atomic_numbers"] = numbers
    return group


def walk(coefficient, n_frames, n_atoms, rng):
    """Return random walks with a diffusion coefficient in Å²/ps."""
    width = np.sqrt(2 * coefficient * STEP_FS / 1000)
    return rng.normal(size=(n_frames, n_atoms, 3)).cumsum(axis=0) * width


@pytest.mark.slow
def test_random_walks_diffuse_as_they_must(tmp_path):
    rng = np.random.default_rng(0)
    fast, slow = (walk(d, 2000, 60, rng) for d in (0.5, 0.1))
    numbers = np.repeat([8, 72], 60)
    # The centre of mass drifts away: it is no diffusion.
    drift = 0.01 * np.arange(2000)[:, None, None]
    group = write_run(tmp_path, np.concatenate([fast, slow], axis=1) + drift, numbers)
    summary = store_diffusion(group)

    for symbol, exact in {"O": 0.5e-8, "Hf": 0.1e-8}.items():
        error = summary[f"diffusion_{symbol}_error_m2_per_s"]
        assert 0 < error < 0.1 * exact
        assert summary[f"diffusion_{symbol}_m2_per_s"] == pytest.approx(exact, abs=4 * error)
        assert summary[f"diffusion_{symbol}_exponent"] == pytest.approx(1, abs=0.05)
    assert group["diffusion/lag"].attrs["unit"] == "ps"
    assert group["diffusion/O"].shape == group["diffusion/lag"].shape


@pytest.mark.slow
def test_errors_are_as_large_as_results_scatter(tmp_path):
    rng = np.random.default_rng(1)
    found = []
    for number in range(24):
        (tmp_path / str(number)).mkdir()
        paths = np.concatenate([walk(1.0, 400, 8, rng), np.zeros((400, 1, 3))], axis=1)
        group = write_run(tmp_path / str(number), paths, np.array([1] * 8 + [92]))
        found.append(store_diffusion(group))
    values, errors = (
        np.array([one[f"diffusion_H_{key}"] for one in found])
        for key in ("m2_per_s", "error_m2_per_s")
    )
    assert np.sqrt((errors**2).mean()) == pytest.approx(values.std(ddof=1), rel=0.4)


@pytest.mark.slow
def test_free_flight_and_vibration_are_no_diffusion(tmp_path):
    rng = np.random.default_rng(2)
    time = STEP_FS / 1000 * np.arange(800)[:, None, None]
    velocities = rng.normal(size=(1, 30, 3))
    velocities -= velocities.mean(axis=1, keepdims=True)
    flying = store_diffusion(write_run(tmp_path, velocities * time, np.full(30, 18)))
    assert flying["diffusion_Ar_exponent"] == pytest.approx(2, abs=0.01)

    (tmp_path / "still").mkdir()
    phases, frequencies = rng.random((1, 200, 3)), 5 + 15 * rng.random((1, 200, 3))  # of a band
    paths = 0.1 * np.sin(2 * np.pi * (frequencies * time + phases))
    still = store_diffusion(write_run(tmp_path / "still", paths, np.full(200, 18)))
    assert still["diffusion_Ar_m2_per_s"] is None
    assert 0 < still["diffusion_Ar_displacement_A"] < 0.1 * 2 * 3**0.5  # of opposite ends of all


def test_a_cell_that_breathes_moves_no_atoms(tmp_path):
    rng = np.random.default_rng(3)
    places = rng.random((30, 3))
    lengths = 20 + np.sin(np.arange(800) / 7)
    cells = lengths[:, None, None] * np.eye(3)
    group = write_run(tmp_path, places @ cells, np.full(30, 18), cells)
    assert store_diffusion(group)["diffusion_Ar_displacement_A"] < 1e-4
    assert group["diffusion/Ar"][:].max() < 1e-8


def test_mean_square_displacements_average_over_origins(tmp_path):
    paths = np.array([0.0, 1.0, 3.0, 6.0])[:, None, None] * np.ones((1, 2, 3))
    assert compute_msd(paths, 2) == pytest.approx([3 * (1 + 4 + 9) / 3, 3 * (9 + 25) / 2])
    group = write_run(tmp_path, np.zeros((50, 3, 3)), np.full(3, 18))  # too short a run
    assert store_diffusion(group) == {}
    assert "diffusion" not in group

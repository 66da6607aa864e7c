"""Figure and table of diffusion; oracle: the numbers of the summary."""

import numpy as np

from pipeline_atoms.figures import diffusion
from pipeline_atoms.figures.dynamics import Trajectory
from pipeline_core.figures.style import apply_style

LAGS = np.linspace(0.1, 2.0, 20)


def make_trajectory(name, **arrays):
    numbers = {"m2_per_s": 1.234e-9, "error_m2_per_s": 5.6e-11, "exponent": 0.97}
    summary = {f"diffusion_O_{key}": value for key, value in numbers.items()}
    summary |= {"diffusion_O_displacement_A": 3.21, "diffusion_Hf_displacement_A": 0.12}
    nothing = np.zeros(2)
    return Trajectory(
        name=name,
        variant="base",
        time=nothing,
        conserved=nothing,
        temperature=nothing,
        rdf={},
        rdf_error={},
        diffusion=arrays,
        summary=summary | {"temperature_mean_K": 2300.4},
    )


def test_displacements_and_coefficients(monkeypatch, tmp_path):
    still = {"Hf": 0.01 + 0 * LAGS, "Hf_error": 0 * LAGS}
    moving = make_trajectory("melt", lag=LAGS, O=0.6 * LAGS, O_error=0.01 * LAGS, **still)
    runs = {"melt": [moving], "short": [make_trajectory("short")]}
    monkeypatch.setattr(diffusion, "read_trajectories", lambda _: runs)
    with apply_style():
        figure, rows = diffusion.draw_diffusion(None)
        figure.savefig(tmp_path / "diffusion.png")

    (axes,) = figure.axes  # one run is too short
    line, of_hafnium = axes.lines
    assert of_hafnium.get_label() == "Hf: no diffusion, 0.120 Å in all"
    assert np.array_equal(line.get_ydata(), 0.6 * LAGS)
    assert line.get_label() == "O: D = (1.23 ± 0.06)e−09 m²/s"
    assert rows[1] == ["melt", "base", "O", 1.234e-9, 5.6e-11, 0.97, 3.21]
    (table,) = diffusion.tabulate_diffusion(None)
    assert table.rows == [
        ["melt", "base", "O", "2300", "(1.23 ± 0.06)e−09", "0.97", "3.21"],
        ["melt", "base", "Hf", "2300", "–", "–", "0.120"],
    ]

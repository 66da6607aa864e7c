"""Figures of properties; oracle: the numbers that the stage has stored."""

import pytest

from pipeline_atoms.figures import barriers, glasses, materials, phonons, properties
from pipeline_atoms.simulations import simulate_run
from pipeline_core.figures.style import apply_style
from plugins.atoms.argon import make_run
from plugins.atoms.figures.test_uncertainty import load
from plugins.atoms.properties.test_catalogue import ALL, ask

DRAW = {
    "relax": materials.draw_relaxation,
    "eos": materials.draw_equations,
    "elastic": materials.draw_elasticity,
    "phonons": phonons.draw_phonons,
    "vacancies": materials.draw_vacancies,
    "surfaces": materials.draw_surfaces,
    "neb": barriers.draw_barriers,
    "melt_quench": glasses.draw_glasses,
}


@pytest.mark.slow
def test_figures_tables_and_warnings(tmp_path):
    pytest.importorskip("phonopy")
    run = make_run(tmp_path, infer=ask(tmp_path, *ALL))
    found = simulate_run(run)["properties"]
    experiment = load(run)

    for section, draw in DRAW.items():
        with apply_style():
            figure, rows = draw(experiment)
            figure.savefig(tmp_path / f"{section}.png")
        assert len(rows) == 2, "the dimer has no properties"
        for key, value in zip(rows[0][3:], rows[1][3:], strict=True):
            assert value == found[section]["cold"][rows[1][1]][key]

    tables = {table.title: table for table in properties.tabulate_properties(experiment)}
    assert len(tables) == len(ALL)
    volume = found["relax"]["cold"]["argon"]["volume_per_atom_A3"]
    shown = tables["Relaxed structures"]
    assert float(shown.rows[0][shown.header.index("Volume (Å³/atom)")]) == pytest.approx(
        volume, rel=1e-3
    )
    warnings = properties.list_warnings(experiment)
    assert sum("dimer of base" in line for line in warnings) == len(ALL)


def test_what_is_not_stable_is_said():
    summary = {
        "converged": False,
        "stable": False,
        "imaginary": True,
        "imaginary_share": 0.25,
        "lowest_frequency_THz": -2.5,
        "lowest_at": "X",
    }
    words = " ".join(properties._list_problems(summary))
    assert "not relaxed" in words
    assert "unstable crystal" in words
    assert "imaginary modes, 25 % of all, the lowest of −2.50 THz at X" in words

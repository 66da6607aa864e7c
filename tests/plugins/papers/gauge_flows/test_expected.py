"""The numbers of the paper. Oracle: its text."""

import pytest

from pipeline_core.figures.expected import read_expected
from plugins.gauge_flows import made_up
from real_data import read_paper

NUMBERS = {
    "layers": "= 192$ layers",
    "ess_learned": "almost 80% ESS",
    "ess_plaquette": "comparison to 20%",
    "ess_identity_quarks": "over the 94% ESS",
    "ess_marginal_quarks": "achieves 99.7% ESS",
    "ess_conditional_identity": "baseline 99.4% ESS",
    "ess_conditional": "achieves a 99.6% ESS",
    "ess_large_marginal": "noise shots is 53%",
    "ess_large": "raises to 58%",
    "error_ratio_low": "errors are 2-3 times",
    "configurations_ratio_low": "5-10 times fewer",
    "quenched_variance": "$>10\\times$ reduction of variance",
    "kappa": "\\kappa = 0.164111",
    "twisted_mass": "\\mu = 0.012",
    "beta": "\\beta = 3.8",
    "extent_space": "= 12^3 \\times 24",
    "extent_time": "12^3 \\times 24. \\quad (18)",
    "pion_mass": "aM_\\pi = 0.276(2)",
    "lattice_spacing": "spacing $a = 0.1$ fm",
    "pion_mass_mev": "M_\\pi \\simeq 540$ MeV",
    "pion_mass_box": "M_\\pi L \\sim 3.31",
    "layers_marginal": "It has 48 layers",
    "layers_conditional": "conditional model has 16 layers",
    "sources": "16 stochastic sources",
    "configurations": "We use 10k configurations",
    "step": "\\lambda = 0.005",
    "cost_generation": "per configuration are 0.17 GPU",
    "cost_flow": "accounts for 0.01 GPU",
    "cost_reweighting": "configuration is 0.04 GPU",
    "cost_ratio": "around 2× times more",
    "cost_training": "thus 4608 GPU",
    "training_days": "for 8 days on",
    "training_gpus": "on 16 A100s",
}
"""Where the text of the paper has a number of `expected.yaml`."""


def test_the_papers_numbers_are_in_its_text():
    text = read_paper("gauge_flows")
    entries = {entry.id: entry for entry in read_expected(made_up.EXPECTED).entries}
    for name, place in NUMBERS.items():
        assert place in text, name
        assert f"{entries[name].value:g}".replace("10000", "10k") in place, name
    assert "after 4k configurations" in text
    assert entries["break_even"].value == 4000
    assert "four pseudofermion noise shots" in text
    assert entries["noise_shots"].value == 4


def test_numbers_that_follow_from_others_do():
    """M_pi L from L and a M_pi, M_pi from a, and the ratio of the volumes that is named."""
    entries = {entry.id: entry for entry in read_expected(made_up.EXPECTED).entries}
    values = {name: entry.value for name, entry in entries.items()}
    box = values["extent_space"] * values["pion_mass"]
    assert box == pytest.approx(values["pion_mass_box"], abs=0.005)
    mass = values["pion_mass"] / values["lattice_spacing"] * 197.327  # hbar c in MeV fm
    assert f"{mass:.0f} MeV" in entries["pion_mass_mev"].differs
    assert mass == pytest.approx(values["pion_mass_mev"], rel=0.01)
    sites = values["extent_space"] ** 3 * values["extent_time"] / 4**4
    assert f"not {sites:.0f} times as many" in entries["ess_large_marginal"].differs

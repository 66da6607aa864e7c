"""Variants that are compared, and seeds that are averaged: against numbers worked out by hand."""

import json
from dataclasses import replace

import pytest

from core.figures import synthetic
from pipeline_core.artifacts.store import read_json
from pipeline_core.report import story, variants


def write_errors(folder, more, errors):
    """Return the experiment with more variants, and force errors (eV/Å) written to all of them."""
    path = folder / "workflows" / "experiments" / "toy" / "alloy.yaml"
    path.write_text(f"{synthetic.EXPERIMENT}{more}")
    experiment = synthetic.load(folder)
    content = read_json(experiment.runs["base"].metrics)
    content.pop("checksum", None)
    for variant, mae in errors.items():
        run = experiment.runs[variant]
        content["splits"]["test"]["quantities"]["forces"]["mae"] = mae
        run.folder.mkdir(exist_ok=True)
        run.metrics.write_text(json.dumps(content))
    return experiment


SEEDS = "  again: {seed: 8}\n  and_again: {seed: 9}\n"


def test_seeds_are_one_row_with_mean_and_standard_deviation(folder):
    errors = {"base": 0.1, "again": 0.2, "and_again": 0.3, "wide": 0.35}
    table = variants.tabulate_variants(write_errors(folder, SEEDS, errors))
    names, seeds, forces = (table.header.index(t) for t in ("Variant", "Seed", "Force error"))
    rows = [[row[names], row[seeds], row[forces]] for row in table.rows]
    # By hand: the mean of 100, 200 and 300 is 200, the standard deviation of a sample 100.
    assert rows == [
        ["base, again, and_again", "7, 8, 9", "200 ± 100 meV/Å"],
        ["wide", "7", "350 meV/Å"],
    ]
    assert table.note == "Means ± standard deviations over seeds."


@pytest.mark.parametrize(
    ("wide", "best", "words"),
    [
        (0.05, 1, "Best of 2 variants by force error: wide with 50.0 meV/Å, base, again, "),
        (0.5, 0, "base, again, and_again with 200 ± 100 meV/Å, next wide with 500 meV/Å."),
        (0.25, 0, "next wide with 250 meV/Å; seeds scatter by as much."),
    ],
)
def test_the_best_is_named_and_marked(folder, wide, best, words):
    errors = {"base": 0.1, "again": 0.2, "and_again": 0.3, "wide": wide}
    experiment = write_errors(folder, SEEDS, errors)
    assert words in story.judge(experiment)[0]
    assert variants.tabulate_variants(experiment).marked == best


def test_the_one_number_is_that_of_the_base_with_the_best_beside_it(folder):
    headline = story.choose_headline(write_errors(folder, "", {"base": 0.2, "wide": 0.1}))
    assert (headline.title, headline.value) == ("Force error", "200 meV/Å")
    assert headline.note.startswith("100 meV/Å with wide; ")
    assert not story.choose_headline(write_errors(folder, "", {"base": 0.05})).note.startswith("1")
    # Of one seed that has ended no deviation is told.
    experiment = write_errors(folder, "  again: {seed: 8}\n", {"base": 0.2, "wide": 0.1})
    assert story.choose_headline(experiment).value == "200 meV/Å"


def test_errors_on_other_data_are_not_compared(folder):
    datasets = folder / "workflows" / "datasets"
    (datasets / "other.yaml").write_text((datasets / "alloy.yaml").read_text())
    errors = {"base": 0.2, "wide": 0.1, "elsewhere": 0.01}
    experiment = write_errors(folder, "  elsewhere: {dataset: other}\n", errors)
    assert [result.group.name for result in variants.rank_groups(experiment)] == ["wide", "base"]


def test_what_has_no_influence_on_a_training_makes_no_group(folder, experiment):
    more = "  no_dynamics: {seed: 8, infer: {md: []}}\n  same: {figures: {formats: [png]}}\n"
    changed = write_errors(folder, more, {})
    names = [group.name for group in variants.group_by_seed(changed)]
    assert names == ["base, no_dynamics", "wide", "same"]
    runs = [replace(experiment.runs["base"], label=f"seed_{n}") for n in range(5)]
    assert variants.Group(tuple(runs)).name == "seed_0 and 4 other seeds"


def test_numbers_of_a_plugin_are_compared_as_it_says(folder):
    experiment = write_errors(folder, "", {})
    for run, size in zip(experiment.runs.values(), (0.4, 0.6), strict=True):
        number = {"title": "Sample size", "value": f"{size}", "amount": size, "better": "more"}
        told = {"headline": {"verdict": "Fine.", "numbers": [number]}}
        run.metrics.write_text(json.dumps(read_json(run.metrics) | told))
    text, _ = story.judge(experiment)
    assert text == "Fine. Best of 2 variants by sample size: wide with 0.6, base with 0.4."


def test_one_variant_is_no_comparison(folder):
    path = folder / "workflows" / "experiments" / "toy" / "alloy.yaml"
    path.write_text(synthetic.EXPERIMENT.partition("variants:")[0])
    experiment = synthetic.load(folder)
    assert variants.tabulate_variants(experiment) is None
    assert variants.name_best(experiment) == ""


@pytest.mark.parametrize(
    ("mean", "deviation", "text"),
    [
        (21.34, 0.42, "21.34 ± 0.42"),
        (1234.6, 56.7, "1235 ± 57"),
        (3.5e-6, 2e-7, "(3.50 ± 0.20)e−6"),
        (2.5e7, 3e6, "(2.50 ± 0.30)e7"),
        (-0.679, 0.021, "−0.679 ± 0.021"),
        (0.5, 0.0, "0.500 ± 0"),
    ],
)
def test_a_deviation_has_two_digits_and_the_mean_as_many_decimals(mean, deviation, text):
    assert variants.format_with_deviation(mean, deviation) == text

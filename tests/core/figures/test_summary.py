"""The page: right numbers, plain words, one file, nothing fetched."""

import json
import re
from html.parser import HTMLParser
from typing import get_args

import pytest
import yaml
from docutils.core import publish_string
from docutils.writers.html5_polyglot import Writer

from core.figures import synthetic
from pipeline_core.config.datasets import Split
from pipeline_core.figures import results, story, style, summary
from pipeline_core.figures.drawing import choose_figures
from pipeline_core.figures.savers import encode_image
from pipeline_core.store import read_json

VOID = {"meta", "img"}


class Page(HTMLParser):
    """Reads a page and checks that every element is closed in turn."""

    def __init__(self, text):
        super().__init__()
        self.open, self.attributes, self.words = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def scale_errors(folder, factor):
    """Return the experiment with all force errors of the base variant multiplied."""
    experiment = synthetic.load(folder)
    path = experiment.runs["base"].metrics
    content = read_json(path)
    forces = content["splits"]["test"]["quantities"]["forces"]
    forces["mae"] = factor * forces["label_mean_absolute"]
    path.write_text(json.dumps(content))
    return experiment


@pytest.mark.parametrize(
    ("steps", "value"),
    [([None] * 3, "3 epochs"), (["fit"] * 3, "3 fits"), (["fit", "polish"], "2 steps")],
)
def test_steps_of_a_training_have_the_name_that_the_plugin_gives_them(folder, steps, value):
    experiment = synthetic.load(folder)
    records = [{"epoch": n} | ({"step": s} if s else {}) for n, s in enumerate(steps, 1)]
    lines = [json.dumps(record) for record in records]
    experiment.runs["base"].history.write_text("\n".join(lines) + "\n")
    (number,) = (n for n in story.collect_numbers(experiment) if n.title == "Training")
    assert number.value == value


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ratio", "words", "grade"),
    [
        (0.042, "4.2 % of the mean absolute force: small.", "small"),
        (0.31, "31 % of the mean absolute force: large.", "large"),
        (0.2, "20 % of the mean absolute force: moderate.", "moderate"),
        (1.4, "140 % of the mean absolute force: no better than predicting no force", "large"),
    ],
)
def test_the_verdict_is_the_error_over_the_mean_size_of_the_forces(folder, ratio, words, grade):
    text, result = story.judge(scale_errors(folder, ratio))
    assert text.startswith("The force error on 72 test frames is ")
    assert words in text
    assert result == grade


@pytest.mark.parametrize("method", get_args(Split.model_fields["method"].annotation))
def test_each_way_to_split_is_told(folder, method):
    experiment = synthetic.load(folder)
    path = experiment.runs["base"].dataset.path
    content = yaml.safe_load(path.read_text())
    content["split"] = {"method": method, "test_groups": ["*"] if method == "list" else []}
    path.write_text(yaml.safe_dump(content))
    (data,) = (n for n in story.collect_numbers(synthetic.load(folder)) if n.title == "Data")
    assert any(word in data.note for word in ("held", "drawn at random", "divided"))


def test_a_model_without_forces_is_told_by_what_it_predicts(folder):
    experiment = synthetic.load(folder)
    path = experiment.runs["base"].metrics
    content = read_json(path)
    values = content["splits"]["test"]["quantities"]["energy"] | {"unit": "1"}
    content["splits"]["test"]["quantities"] = {"action_density": values}
    path.write_text(json.dumps(content))
    text, grade = story.judge(experiment)
    assert text.startswith("Action density error on 72 test frames: ")
    assert f"R² {values['r2']:.3f}" in text
    assert grade == "unknown"


def set_headline(folder, headline):
    """Let the plugin speak for itself in the metrics of the base variant."""
    experiment = synthetic.load(folder)
    path = experiment.runs["base"].metrics
    path.write_text(json.dumps(read_json(path) | {"headline": headline}))
    return experiment


TOLD = {
    "verdict": "It samples well.",
    "numbers": [{"title": "Acceptance", "value": "61 %", "note": "of 4,096"}],
}


def test_what_a_plugin_says_of_itself_goes_before_errors(folder):
    experiment = set_headline(folder, TOLD)
    assert story.judge(experiment) == ("It samples well.", "unknown")
    result = {number.title: number for number in story.collect_numbers(experiment)}
    assert result["Acceptance"] == story.Number("Acceptance", "61 %", "of 4,096")
    assert "Force error" not in result
    assert {"Data", "Training", "Wall time"} <= result.keys()
    assert story.write_sentences(experiment)[-1] == "It samples well."
    header, base, wide = story.tabulate_variants(experiment)
    # The other variant says nothing, so that its errors stand.
    assert (base[header.index("Acceptance")], wide[header.index("Acceptance")]) == ("61 %", "–")
    assert base[header.index("Force error")] == "–"
    text = summary.make_page(experiment, [], None)
    assert "It samples well." in text
    assert story.GRADES_EXPLAINED not in text


@pytest.mark.slow
def test_what_a_plugin_says_wrongly_is_refused_with_its_place(folder):
    experiment = set_headline(folder, {"verdict": "Good.", "numbers": [{"titel": "Acceptance"}]})
    with pytest.raises(ValueError, match=r"metrics\.json.*headline\.numbers"):
        story.judge(experiment)


def test_predicting_no_force_at_all_is_an_error_of_100_percent(experiment):
    # By definition: the error of zero is the label itself.
    import numpy as np

    forces = next(
        c for c in results.read_comparisons(experiment.runs["base"]) if c.quantity.name == "forces"
    )
    assert np.abs(0 - forces.label).mean() == pytest.approx(
        forces.errors.label_mean_absolute, rel=1e-6
    )


def test_the_key_numbers_are_those_of_the_files(experiment):
    result = {number.title: number for number in story.collect_numbers(experiment)}
    assert result["Data"].value == "1,080 frames"
    assert result["Data"].note == "960 training, 48 validation, 72 test; frames drawn at random"
    assert result["Model"].note == "411,200 parameters"
    assert result["Training"].value == "40 epochs"
    assert result["Training"].note == "2.0 min on A processor, 2 cores, 2 ranks"
    assert result["Force error"].value.endswith(" meV/Å")
    assert result["Dynamics, NVE"].value == "100 steps"
    # Two variants of 4 + 0.7 + 754 + 6.3 + 22 s: of two trainings the later one counts.
    assert result["Wall time"].value == "26.2 min"


def test_the_limits_name_scale_size_seed_and_warnings(experiment):
    text = " ".join(story.list_limits(experiment))
    assert "scale is laptop" in text
    assert "72 test frames only" in text
    assert "seed 7" in text
    assert "The split is random" in text
    assert "Cu, Au occur only in fixed proportions." in text


@pytest.mark.parametrize(
    ("left", "limit"),
    [("val", "that the best epoch was chosen by"), ("train", "that the model was trained on")],
)
def test_errors_on_samples_that_were_used_are_a_limit(folder, left, limit):
    experiment = synthetic.load(folder)
    path = experiment.runs["base"].metrics
    content = read_json(path)
    content["splits"] = {left: content["splits"]["test"]}
    path.write_text(json.dumps(content))
    assert limit in " ".join(story.list_limits(experiment))


def test_the_page_is_well_formed_and_fetches_nothing(experiment):
    figure = next(f for f in choose_figures(experiment) if f.name == "balance")
    with style.apply_style():
        picture = summary.Picture(figure, encode_image(figure.draw(experiment)[0], "png"))
    text = summary.make_page(experiment, [picture], None)
    page = Page(text)
    assert page.open == []
    sources = [value for name, value in page.attributes if name in ("src", "href")]
    assert len(sources) == 1
    assert sources[0].startswith("data:image/png;base64,")
    assert "http" not in text
    assert "Load balance" in page.words
    assert """snakemake --config experiments='["toy/alloy"]'""" in " ".join(page.words)


def test_what_people_wrote_is_escaped(folder):
    path = folder / "workflows" / "experiments" / "toy" / "alloy.yaml"
    path.write_text(path.read_text().replace("made up", "<b>made & up</b>"))
    text = summary.make_page(synthetic.load(folder), [], None)
    assert "&lt;b&gt;made &amp; up&lt;/b&gt;" in text


def test_the_gist_is_what_docutils_takes_for_clean_text(experiment):
    # Oracle: docutils, halting at the first warning.
    html = publish_string(
        summary.make_gist(experiment),
        writer=Writer(),
        settings_overrides={"halt_level": 2, "report_level": 2},
    ).decode()
    assert "moderate" in html
    assert len(re.findall("<li>", html)) == len(story.collect_numbers(experiment))


def test_all_variants_stand_in_one_table(experiment):
    header, base, wide = story.tabulate_variants(experiment)
    assert header == ["Variant", "Training", "Force error", "Energy error", "Stress error"]
    assert (base[0], wide[0]) == ("base", "wide")
    assert float(wide[2].split()[0]) < float(base[2].split()[0])


@pytest.mark.slow
def test_several_models_and_seeds_are_named_wherever_runs_are(folder):
    experiment = synthetic.add_rival(folder)
    header, base, _, rival = story.tabulate_variants(experiment)
    assert header[:4] == ["Variant", "Model", "Seed", "Training"]
    assert base[1:3] == ["toy, 411,200 parameters", "7"]
    assert rival[1:3] == ["other, 411,200 parameters", "8"]
    assert "Beside it: other (variant rival)." in story.write_sentences(experiment)
    text = summary.make_page(experiment, [], None)
    assert "toy: A test model (Nobody, J. Irrepr. Res. 1, 1 (1955))." in text
    assert "other: Its rival (Nobody, J. Irrepr. Res. 1, 1 (1955))." in text
    assert "One training a variant (seeds 7, 8)" in " ".join(story.list_limits(experiment))


def test_trainings_that_differ_in_the_seed_alone_are_told_apart_from_single_ones(folder):
    path = folder / "workflows" / "experiments" / "toy" / "alloy.yaml"
    path.write_text(f"{synthetic.EXPERIMENT}  again: {{seed: 8}}\n  and_again: {{seed: 9}}\n")
    text = " ".join(story.list_limits(synthetic.load(folder)))
    assert "The spread over seeds is that of base, again, and_again." in text
    assert "One training" not in text


def test_numbers_that_were_not_attempted_are_counted_by_their_reasons(experiment):
    row = {"where": "Table 1", "quantity": "forces", "unit": "1", "paper": 1.0, "ours": 2.0}
    here = row | {"status": "measured", "differs": "the scale"}
    left = [
        row | {"ours": None, "status": "not attempted", "differs": why}
        for why in ("no data", "no GPU", "no GPU")
    ]
    text = summary.make_page(experiment, [], {"paper": "Them", "entries": [here, *left]})
    assert "3 of its 4 numbers have no counterpart here." in text
    words = Page(text).words
    at = words.index("Not attempted")
    assert words[at + 1 : at + 7] == ["numbers", "why not", "2", "no GPU", "1", "no data"]

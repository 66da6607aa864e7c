"""What the report says of an experiment: right numbers, plain words."""

import base64
import json
from io import BytesIO
from typing import get_args

import pytest
import yaml
from PIL import Image

from core.figures import synthetic
from core.figures.synthetic import list_numbers, list_warnings
from pipeline_core.artifacts.store import read_json, write_sealed
from pipeline_core.config.datasets import Split
from pipeline_core.figures import results, savers, style
from pipeline_core.figures.drawing import choose_figures
from pipeline_core.figures.findings import Number
from pipeline_core.report import story, summary, variants


def change_metrics(folder, change):
    """Return the experiment with other metrics of the base variant."""
    experiment = synthetic.load(folder)
    path = experiment.runs["base"].metrics
    content = read_json(path)
    change(content)
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
    (number,) = (n for n in list_numbers(experiment) if n.title == "Training")
    assert number.value == value


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
    """Predicting no force at all is an error of 100 %: the error of zero is the label itself."""

    def scale_errors(content):
        forces = content["splits"]["test"]["quantities"]["forces"]
        forces["mae"] = ratio * forces["label_mean_absolute"]

    text, result = story.judge(change_metrics(folder, scale_errors))
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
    (data,) = (n for n in list_numbers(synthetic.load(folder)) if n.title == "Data")
    assert any(word in data.note for word in ("held", "drawn at random", "divided"))


def test_a_model_without_forces_is_told_by_what_it_predicts(folder):
    def rename(content):
        split = content["splits"]["test"]
        split["quantities"] = {"action_density": split["quantities"]["energy"] | {"unit": "1"}}

    experiment = change_metrics(folder, rename)
    metrics = results.read_metrics(experiment.runs["base"])
    text, grade = story.judge(experiment)
    assert text.startswith("Action density error on 72 test frames: ")
    assert f"R² {metrics.splits['test'].quantities['action_density'].r2:.3f}" in text
    assert grade == "unknown"


TOLD = {
    "verdict": "It samples well.",
    "numbers": [{"title": "Acceptance", "value": "61 %", "note": "of 4,096"}],
}


def test_what_a_plugin_says_of_itself_goes_before_errors(folder):
    experiment = change_metrics(folder, lambda content: content.update(headline=TOLD))
    assert story.judge(experiment) == ("It samples well.", "unknown")
    result = {number.title: number for number in list_numbers(experiment)}
    assert result["Acceptance"] == Number(title="Acceptance", value="61 %", note="of 4,096")
    assert "Force error" not in result
    assert {"Data", "Training", "Wall time"} <= result.keys()
    table = variants.tabulate_variants(experiment)
    base, wide = (dict(zip(table.header, row, strict=True)) for row in table.rows)
    # The other variant says nothing, so that its errors stand.
    assert (base["Acceptance"], wide["Acceptance"]) == ("61 %", "–")
    assert base["Force error"] == "–"
    assert table.marked is None
    chapter = summary.make_chapter(experiment, [], None)
    assert (chapter.verdict, chapter.grades) == ("It samples well.", "")
    assert chapter.headline == result["Acceptance"]


def test_the_key_numbers_are_those_of_the_files(experiment):
    result = {number.title: number for number in list_numbers(experiment)}
    assert result["Data"].value == "1,080 frames"
    assert result["Data"].note == "960 training, 48 validation, 72 test; frames drawn at random"
    assert result["Model"].note == "411,200 parameters"
    assert result["Training"].value == "40 epochs"
    assert result["Training"].note == "2.0 min on A processor, 2 cores, 2 ranks"
    assert result["Force error"].value.endswith(" meV/Å")
    assert result["Dynamics, NVE"].value == "100 steps"
    # Two variants of 4 + 0.7 + 754 + 6.3 + 22 s: of two trainings the later one counts.
    assert result["Wall time"].value == "26.2 min"


def test_the_limits_name_scale_size_and_seed(experiment):
    text = " ".join(story.list_limits(experiment))
    assert "scale is laptop" in text
    assert "72 test frames only" in text
    assert "seed 7" in text
    assert "The split is random" in text
    assert list_warnings(experiment) == ["Cu, Au occur only in fixed proportions."]


@pytest.mark.parametrize(
    ("left", "limit"),
    [("val", "that the best epoch was chosen by"), ("train", "that the model was trained on")],
)
def test_errors_on_samples_that_were_used_are_a_limit(folder, left, limit):
    def rename(content):
        content["splits"] = {left: content["splits"]["test"]}

    assert limit in " ".join(story.list_limits(change_metrics(folder, rename)))


def test_a_training_without_an_end_is_a_warning(folder):
    experiment = synthetic.load(folder)
    base, wide = experiment.runs.values()
    wide.state.mkdir()
    (wide.state / "diverged.json").write_text("{}")
    with write_sealed(base.model, {"unfinished": "epoch 3 of 40"}) as file:
        file.write(b"weights")
    assert list_warnings(experiment)[:2] == [
        "The training of base is unfinished: epoch 3 of 40.",
        "The training of wide has diverged.",
    ]


def draw_picture(experiment, name):
    figure = next(f for f in choose_figures(experiment) if f.name == name)
    with style.apply_style():
        pictures = savers.encode_pictures(figure.draw(experiment)[0], ["webp"])
    return summary.illustrate(figure, pictures["webp"], [f"{name}.pdf", f"{name}.csv"])


def open_picture(address):
    head, _, data = address.partition(",")
    assert head == "data:image/webp;base64"
    return Image.open(BytesIO(base64.b64decode(data)))


@pytest.mark.slow
def test_the_chapter_holds_its_pictures_and_a_small_one_of_the_first(experiment):
    pictures = [draw_picture(experiment, name) for name in ("balance", "errors_by_element")]
    chapter = summary.make_chapter(experiment, pictures, None)
    assert [one.name for one in chapter.illustrations] == ["balance", "errors_by_element"]
    balance = chapter.illustrations[0]
    assert (balance.title, balance.category) == ("Load balance", "Balance")
    assert balance.files == ["balance.pdf", "balance.csv"]
    image = open_picture(balance.picture)
    assert image.size == (balance.width, balance.height)
    assert balance.width == round(style.COLUMN * 220)
    # Accuracy matters more than balance, so its picture is the small one.
    small, large = open_picture(chapter.thumbnail), open_picture(chapter.illustrations[1].picture)
    assert max(small.size) == 480
    assert small.width / small.height == pytest.approx(large.width / large.height, rel=0.01)


@pytest.mark.slow
def test_what_another_figure_or_a_table_shows_is_left_out(experiment):
    chapter = summary.make_chapter(experiment, [draw_picture(experiment, "parity_forces")], None)
    assert chapter.illustrations == []
    assert ["citation", "Nobody, J. Irrepr. Res. 1, 1 (1955)"] in chapter.provenance.rows
    assert chapter.snippets[-1].code.startswith("snakemake --config experiments=toy/alloy\n")
    # Nor is a paper without a counterpart here.
    entry = {"status": "not attempted", "ours": None, "differs": "elsewhere"}
    report = {"paper": "Them", "entries": [entry]}
    titles = [table.title for table in summary.make_chapter(experiment, [], report).tables]
    assert not {"The paper's numbers beside ours", "Not attempted"} & set(titles)


@pytest.mark.slow
def test_several_models_and_seeds_are_named_wherever_runs_are(folder):
    experiment = synthetic.add_rival(folder)
    table = variants.tabulate_variants(experiment)
    assert table.header[:3] == ["Variant", "Model", "Seed"]
    assert table.rows[0][1:3] == ["toy, 411,200 parameters", "7"]
    assert table.rows[2][1:3] == ["other, 411,200 parameters", "8"]
    lead = summary.make_chapter(experiment, [], None).lead
    assert "toy: A test model (Nobody, J. Irrepr. Res. 1, 1 (1955))." in lead
    assert "other: Its rival (Nobody, J. Irrepr. Res. 1, 1 (1955))." in lead
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
    report = {"paper": "Them", "entries": [here, *left]}
    tables = {t.title: t for t in summary.make_chapter(experiment, [], report).tables}
    ours = tables["The paper's numbers beside ours"]
    assert ours.note == "Them. 1 of its 4 numbers have ours beside them."
    assert ours.rows == [["Table 1", "forces", "1", "2.00", "measured", "the scale"]]
    assert tables["Not attempted"].rows == [["2", "no GPU"], ["1", "no data"]]

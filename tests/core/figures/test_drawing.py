"""What lies in the folder afterwards, and what happens when something is missing or wrong."""

import csv
import json
import re
from types import ModuleType

import pytest

from core.figures import synthetic
from core.figures.test_reproduction import FORCES, HEAD
from pipeline_atoms.active_learning.learning_curve import FIGURE
from pipeline_atoms.figures.catalogue import FIGURES
from pipeline_core import hookimpl
from pipeline_core.figures import Figure
from pipeline_core.figures.catalogue import ENGINE_FIGURES
from pipeline_core.figures.drawing import choose_figures
from pipeline_core.report.chapter import read_chapter
from pipeline_core.report.experiment import draw_experiment

OF_ATOMS = [figure for figure in [*FIGURES, FIGURE] if figure.name != "dataset"]
"""Without the one that takes the place of the engine's."""
SHOWN = [*ENGINE_FIGURES, *OF_ATOMS]
PROPERTIES = [figure.name for figure in SHOWN if figure.category == "Properties"]
NOTHING = [
    "errors_by_head",
    "uncertainty",
    "md_diffusion",
    "md_uncertainty",
    *PROPERTIES,
    "rounds",
]
"""Of heads, of committees and what they learn, and of longer dynamics."""
ALL = [figure.name for figure in SHOWN if figure.name not in NOTHING]


def make_plugin(*brought):
    """Return a plugin with figures and without a model."""
    module = ModuleType("more_figures")

    @hookimpl
    def figures():
        return list(brought)

    module.figures = figures
    return "more", module


def make_figure(name, draw=lambda run: None, **facts):
    return Figure(name=name, title="T", caption="C", category="Accuracy", draw=draw, **facts)


def ask_for(folder, figures, *brought, experiment=synthetic.EXPERIMENT):
    """Write what an experiment says of figures and load it, with figures of a plugin."""
    path = folder / "workflows" / "experiments" / "toy" / "alloy.yaml"
    path.write_text(f"{experiment}figures: {figures}\n")
    return synthetic.load(folder, make_plugin(*brought))


@pytest.mark.slow
def test_every_figure_has_its_files_and_an_entry_in_the_index(folder):
    """In which variants of several plugins stand side by side; the formats are tested with one."""
    synthetic.add_rival(folder)
    experiment = ask_for(folder, "{formats: [png]}", experiment=synthetic.MIXED)
    summary = draw_experiment(experiment)
    assert summary == {"drawn": ALL, "nothing_to_draw": NOTHING}
    for name in ("parity", "errors_by_element", "errors_by_group", "learning", "md_rdf"):
        with (experiment.folder / f"{name}.csv").open() as file:
            assert {row["variant"] for row in csv.DictReader(file)} == {"base", "wide", "rival"}
    index = json.loads((experiment.folder / "index.json").read_text())
    assert [entry["name"] for entry in index] == ["summary", *ALL]
    for entry in index[1:]:
        name = entry["name"]
        assert entry["files"] == [f"{name}.{k}" for k in ("png", "csv", "rst")]
        assert entry.keys() == {"name", "title", "caption", "category", "files"}
    listed = {name for entry in index for name in entry["files"]}
    assert {p.name for p in experiment.folder.iterdir()} == listed | {"index.json"}
    assert (experiment.folder / "parity.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_experiment_chooses_names_and_formats(folder):
    """What is no longer asked for is removed; other files stay."""
    experiment = ask_for(folder, "{names: [balance, errors_by_group], formats: [svg]}")
    assert draw_experiment(experiment)["drawn"] == ["errors_by_group", "balance"]
    assert not list(experiment.folder.glob("*.png"))
    assert (experiment.folder / "balance.svg").exists()
    (experiment.folder / "records.jsonl").write_text("{}\n")
    draw_experiment(ask_for(folder, "{names: [dataset], formats: [svg]}"))
    names = {path.name for path in experiment.folder.iterdir()}
    assert names == {
        *("index.json", "summary.html", "summary.json", "summary.rst", "records.jsonl"),
        "provenance.csv",
        *("dataset.svg", "dataset.csv", "dataset.rst"),
    }
    experiment = ask_for(folder, "{names: [balance]}")
    draw_experiment(experiment)
    kinds = {path.suffix for path in experiment.folder.glob("balance.*")}
    assert kinds == {".png", ".svg", ".pdf", ".csv", ".rst"}
    assert (experiment.folder / "balance.pdf").read_bytes().startswith(b"%PDF")
    # Who names a figure of a paper gets it.
    experiment = ask_for(folder, "{names: [of_toy]}", make_figure("of_toy", paper=True))
    assert [figure.name for figure in choose_figures(experiment)] == ["of_toy"]


@pytest.mark.slow
def test_a_figure_without_a_picture_is_a_table_of_the_page(folder):
    rows = [["variant", "rmse_cm-1", "points"], ["base", 12.34567, 4100], ["wide", None, 0.25]]
    numbers = make_figure("numbers", lambda experiment: (None, rows))
    experiment = ask_for(folder, "{names: [numbers], formats: [png]}", numbers)
    assert draw_experiment(experiment)["drawn"] == ["numbers"]
    assert {path.suffix for path in experiment.folder.glob("numbers.*")} == {".csv", ".rst"}
    chapter = read_chapter(experiment.folder, experiment.experiment)
    assert chapter.illustrations == []
    (table,) = [one for one in chapter.results if one.title == numbers.title]
    assert table.header == ["variant", "rmse (cm⁻¹)", "points"]
    assert table.rows == [["base", "12.35", "4,100"], ["wide", "–", "0.25"]]
    assert 'href="numbers.csv"' in (experiment.folder / "summary.html").read_text()


def test_an_experiment_without_any_result_has_a_summary_alone(folder):
    experiment = synthetic.load(folder)
    for run in experiment.runs.values():
        for path in run.folder.rglob("*.*"):
            path.unlink()
    experiment.runs["base"].dataset.report.unlink()
    assert draw_experiment(experiment)["drawn"] == []
    page = (experiment.folder / "summary.html").read_text()
    assert "No predictions have been compared with labels" in page


@pytest.mark.parametrize(
    ("artifact", "name"),
    [
        ("predictions", "parity"),
        ("metrics", "errors_by_element"),
        ("history", "learning"),
        ("inference", "md_rdf"),
        ("partition", "balance"),
    ],
)
def test_a_damaged_file_is_named_with_the_figure(folder, artifact, name):
    experiment = ask_for(folder, f"{{names: [{name}], formats: [png]}}")
    path = getattr(experiment.runs["base"], artifact)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=re.escape(str(path))) as error:
        draw_experiment(experiment)
    assert str(error.value).startswith(f"figure {name!r} of toy/alloy: ")


def test_a_failing_figure_of_a_plugin_is_named_and_nothing_is_changed(folder):
    def draw(run):
        raise KeyError("no such thing")

    experiment = ask_for(
        folder, "{names: [balance, broken], formats: [png]}", make_figure("broken", draw)
    )
    experiment.folder.mkdir()
    with pytest.raises(ValueError, match="figure 'broken' of toy/alloy: KeyError: 'no such thing'"):
        draw_experiment(experiment)
    assert list(experiment.folder.iterdir()) == []


def test_figures_of_plugins_are_found_and_those_of_other_models_are_not(results):
    more = make_plugin(
        make_figure("mine", plugin="toy"),
        make_figure("another", plugin="other"),
        make_figure("parity"),
    )
    result = {f.name: f for f in choose_figures(synthetic.load(results, more))}
    assert list(result) == [
        *(f.name for f in ENGINE_FIGURES), "mine", *(f.name for f in OF_ATOMS)
    ]  # fmt: skip
    assert result["parity"].title == "T"  # a plugin's figure replaces the engine's


@pytest.mark.parametrize(
    ("paper", "shown"),
    [
        (None, []),
        (HEAD + FORCES.replace("toy/alloy", "toy/theirs"), []),
        (HEAD + FORCES, ["of_toy"]),
        (HEAD.replace("entries:", "also_of: [toy/alloy]\nentries: []"), ["of_toy"]),
    ],
)
def test_figures_of_a_paper_belong_to_its_experiments_alone(folder, paper, shown):
    brought = [make_figure(f"of_{name}", plugin=name, paper=True) for name in ("toy", "other")]
    path = folder / "workflows" / "experiments" / "toy" / "alloy.yaml"
    path.write_text(synthetic.MIXED)
    if paper is not None:
        path.with_name("expected.yaml").write_text(paper)
    experiment = synthetic.load(folder, make_plugin(*brought))
    names = [figure.name for figure in choose_figures(experiment)]
    # The variant of another plugin never shows figures of that plugin's paper.
    assert [name for name in names if name.startswith("of_")] == shown


@pytest.mark.slow
def test_figures_of_all_plugins_of_an_experiment_are_drawn_for_their_own_variants(folder):
    seen = {}

    def note(name):
        return lambda experiment: seen.update({name: list(experiment.runs)})

    brought = [
        make_figure("of_all", note("of_all")),
        make_figure("of_toy", note("of_toy"), plugin="toy"),
        make_figure("of_other", note("of_other"), plugin="other"),
        make_figure("balance", note("balance_other"), plugin="other"),
        make_figure("of_third", note("of_third"), plugin="third"),
    ]
    synthetic.add_rival(folder)
    experiment = synthetic.load(folder, make_plugin(*brought))
    own = ["of_toy", "of_other", "balance_other"]
    assert [f.name for f in choose_figures(experiment)] == [
        *(f.name for f in ENGINE_FIGURES), "of_all", "of_toy", *(f.name for f in OF_ATOMS), *own[1:]
    ]  # fmt: skip
    names = f"{{names: [of_all, {', '.join(own)}]}}"
    experiment = ask_for(folder, names, *brought, experiment=synthetic.MIXED)
    assert draw_experiment(experiment)["nothing_to_draw"] == ["of_all", *own]
    assert seen == {
        "of_all": ["base", "wide", "rival"],
        "of_toy": ["base", "wide"],
        "of_other": ["rival"],
        "balance_other": ["rival"],
    }

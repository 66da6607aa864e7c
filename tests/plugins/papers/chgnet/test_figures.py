"""Tables and figures of FastCHGNet: the numbers that they show, and those of the paper."""

import json

import ase.io
import numpy as np
import pytest

from pipeline_atoms.config.inference import InferOptions
from pipeline_atoms.graphs import build_graph
from pipeline_chgnet.options import CHGNetGraphOptions
from pipeline_chgnet.plugin import count_features
from pipeline_core.config.sections import TrainOptions
from pipeline_core.figures import reproduction, savers
from pipeline_papers.chgnet.figures import ablation, accuracy, loads, scaling, sizes
from plugins.drawn import ROOT, find_row, select_rows
from plugins.papers.chgnet import made_up

WHOSE = ("paper", "ours")
pytestmark = pytest.mark.usefixtures("figure_style")


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    """Return an experiment that tests leave as it is."""
    return made_up.write(tmp_path_factory.mktemp("chgnet"))


@pytest.fixture(scope="module")
def report(experiment):
    content = reproduction.compare(experiment)
    return {row["id"]: row for row in content["entries"]} | {"counts": content["counts"]}


def test_more_than_40_of_65_numbers_have_one_of_ours(report):
    counts = report["counts"]
    assert sum(counts.values()) == 65
    assert counts["measured"] + counts["projected"] >= 40
    left = [row for name, row in report.items() if name != "counts" and row["ours"] is None]
    assert len(left) == 65 - counts["measured"] - counts["projected"]
    assert all(row["differs"] for row in left)
    assert {row["status"] for row in left} == {"not attempted", "of another experiment"}


def test_measures_lead_to_the_numbers_that_they_say(report):
    ours = {name: row["ours"] for name, row in report.items() if name != "counts"}
    assert ours["chgnet_energy"] == pytest.approx(1.0)
    assert ours["heads_force"] == pytest.approx(4.0)
    assert ours["no_head_stress"] == pytest.approx(6e-3 * 160.21766208)
    for batch in ("least", "most"):  # of samples of one size
        assert ours[f"iteration_{batch}"] == pytest.approx(16)
        assert ours[f"basis_{batch}"] == ours[f"fusion_{batch}"] == pytest.approx(2)
        assert ours[f"decoupling_{batch}"] == pytest.approx(4)
        assert ours[f"fusion_memory_{batch}"] == pytest.approx(4)
        assert ours[f"heads_memory_{batch}"] == pytest.approx(3)
    assert ours["memory"] == pytest.approx(12)
    epoch = 30 * 1_422_355 * made_up.SECONDS["serial"]
    assert ours["reference_days"] == pytest.approx(30 * epoch / 86400)
    assert ours["training_speedup"] == pytest.approx(16 * 32 * 0.9**5)
    assert ours["strong_32"] == pytest.approx(8 * 0.9**3)
    assert ours["strong_16_efficiency"] == pytest.approx(81)
    assert ours["weak_second"] == pytest.approx(81, rel=1e-5)  # four times the samples, and two
    assert ours["variation_default"] == 0.2
    assert ours["variation_balanced"] == 0.06
    assert ours["limno2_speedup"] == pytest.approx(16)
    assert ours["li9co7o16_fast"] == pytest.approx(2 * made_up.SECONDS["heads"])


def test_the_first_row_is_that_of_the_published_weights(experiment):
    train = experiment.runs["base"].get_section("train", TrainOptions)
    assert (train.epochs, train.start_from) == (0, "published:0.3.0")


@pytest.mark.parametrize(
    ("number", "counted"), [(0, (8, 336, 744)), (1, (32, 1780, 8376))], ids=["limno2", "li9co7o16"]
)
def test_the_crystals_are_those_of_table_2(experiment, number, counted):
    # Oracle: atoms, bonds and angles in the paper.
    md = experiment.runs["base"].get_section("infer", InferOptions).md[number]
    atoms = ase.io.read(ROOT / md.start)
    sample = {"atomic_numbers": atoms.numbers, "positions": atoms.positions}
    sample |= {"cell": np.array(atoms.cell), "pbc": np.array(atoms.pbc)}
    graph = build_graph(sample, CHGNetGraphOptions())
    assert (len(atoms), len(graph["bond_edge"]), len(graph["angle_edges"])) == counted
    n_atoms, n_bonds, n_angles = map(np.atleast_1d, counted)
    cost = count_features({"atom": n_atoms, "edge": 2 * n_bonds, "angle": n_angles})
    assert cost.tolist() == [sum(counted)]


def test_table_1_has_ours_below_the_paper(experiment):
    _, table = accuracy.draw_table_1(experiment)
    paper, ours = (find_row(table, whose=whose, network="FastCHGNet with heads") for whose in WHOSE)
    assert (paper["parameters"], paper["force MAE (meV/Å)"]) == (429_100, 73)
    assert ours["energy MAE (meV/atom)"] == pytest.approx(2.0)
    assert ours["moment MAE (mµB)"] is None


def test_table_2_has_all_three_crystals(experiment):
    _, table = accuracy.draw_table_2(experiment)
    assert find_row(table, whose="ours", crystal="LiMnO2, 8 atoms")["speed-up"] == pytest.approx(16)
    assert find_row(table, whose="paper", crystal="LiTiPO5, 32 atoms")["speed-up"] == 2.63
    assert find_row(table, whose="ours", crystal="LiTiPO5, 32 atoms")["speed-up"] is None


def test_figure_5_counts_each_sample_and_each_bond_once(experiment):
    _, table = sizes.draw(experiment)
    counted = {row["kind"]: row for row in select_rows(table)}
    assert {row["samples"] for row in counted.values()} == {100}
    assert counted["bonds"]["mean"] == pytest.approx(31 * counted["atoms"]["mean"])
    assert counted["angles"]["quantile_1"] == 54 * counted["atoms"]["quantile_1"]


def test_figure_8_compares_steps_of_the_same_samples(experiment):
    figure, table = ablation.draw(experiment)
    assert {row["class_atoms"] for row in select_rows(table)} == {24}
    last = find_row(table, configuration="+ heads", samples=16)
    assert last["seconds"] == pytest.approx(16 * 24 * made_up.SECONDS["heads"])
    seconds, memory = figure.axes
    assert len(seconds.patches) == len(memory.patches) == 4 * 2
    gains = [text.get_text() for text in seconds.texts]
    assert gains == [gain for gain in ("1.0", "2.0", "4.0", "16.0") for _ in range(2)]


@pytest.mark.slow
def test_figure_8_where_the_system_tells_no_memory(tmp_path):
    changed = made_up.write(tmp_path)
    for run in changed.runs.values():
        if run.profile.exists():
            content = made_up.profile(run)
            for step in content["steps"]:
                step["memory"] = None
            run.profile.write_text(json.dumps(content))
    figure, _ = ablation.draw(changed)
    assert {bar.get_height() for bar in figure.axes[1].patches} == {0}
    savers.encode_image(figure, "png")


def test_figure_9_draws_from_the_least_to_the_largest_load(experiment):
    figure, table = loads.draw(experiment)
    mine = [row["load"] for row in select_rows(table, sharing="random", step=3)]
    assert mine == [800, 1000, 1000, 1200]
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert [label.split()[-1] for label in labels] == ["0.200", "0.060", "0.000"]
    band = figure.axes[0].collections[0].get_paths()[0].get_extents()
    assert tuple(band.intervalx) == (0.5, 6.5)  # each of six steps has its width
    assert tuple(band.intervaly) == (800, 1200)


def test_figure_10_has_the_efficiencies_of_the_paper_beside_ours(experiment):
    figure, table = scaling.draw(experiment)
    paper = {
        row["ranks"]: row["efficiency"] for row in select_rows(table, mode="weak", variant="paper")
    }
    assert paper == {8: 91.5, 16: 84.6, 32: 74.6}
    ours = select_rows(table, mode="strong", variant="heads", strategy="pairing")
    assert {row["ranks"]: row["efficiency"] for row in ours} == pytest.approx(
        {4: 100, 8: 90, 16: 81, 32: 72.9}
    )
    assert not select_rows(table, variant="serial")  # on one rank there is nothing to compare
    assert len(figure.axes) == 2

"""Tables and figures of the paper: its numbers, and ours below."""

import re

import numpy as np
import pytest

from pipeline_core.figures import reproduction
from pipeline_core.figures.expected import read_expected
from pipeline_papers.htfbr.figures import tables, training
from plugins.drawn import select_rows
from plugins.htfbr import made_up
from real_data import read_paper

EXPECTED = made_up.ROOT / "workflows" / "experiments" / "htfbr" / "expected.yaml"


pytestmark = pytest.mark.usefixtures("figure_style")


def read_paper_table(number, n_columns):
    """Return the rows of a table in the text of the paper."""
    lines = read_paper("htfbr").split(f"Table {number}:")[0].splitlines()
    pattern = re.compile(r"^\|?\s*(.+?)\s*\|?$")
    result = []
    for line in reversed(lines):
        cells = re.split(r"\s*\|\s*|\t", pattern.sub(r"\1", line)) if line.strip() else []
        if len(cells) == n_columns:
            result.append(cells)
        elif result:
            break
    return result[::-1]


def number(text):
    """Return a number of the paper: $3.7e-4$, 88,999, 100k."""
    text = text.strip("$ ").replace(" ", "").replace(",", "")
    return float(text.removesuffix("k")) * (1000 if text.endswith("k") else 1)


def parse_minutes(text):
    """Return a time of the paper, such as 5h57m or 47m18s, to the minute."""
    parts = {unit: int(n) for n, unit in re.findall(r"(\d+)([hms])", text)}
    return 60 * parts.get("h", 0) + parts.get("m", 0) + parts.get("s", 0) / 60


@pytest.mark.parametrize(
    ("table", "surface", "keys"),
    [(2, "hono", ("train", "test", "time")), (4, "ethene", ("train", "epochs", "time"))],
)
def test_the_entries_are_those_of_tables_2_and_4(table, surface, keys):
    # Oracle: the text of the paper itself.
    entries = {entry.id: entry for entry in read_expected(EXPECTED).entries}
    result = [row for row in read_paper_table(table, 5) if row[0][0].isdigit()]
    assert len(result) == 9
    for device, framework, *cells in result:
        count, kind = device.split()
        name = f"{surface}_{kind.lower()}{count}_{framework}"
        for key, cell in zip(keys, cells, strict=True):
            entry = entries[f"{name}_{key}"]
            if key == "time":
                ours = entry.value * tables.SECONDS[entry.unit] / 60
                assert ours == pytest.approx(parse_minutes(cell), abs=0.03), (name, cell)
            else:
                assert entry.value == number(cell), (name, key)


def test_the_entries_are_those_of_table_3():
    entries = {entry.id: entry.value for entry in read_expected(EXPECTED).entries}
    result = [row for row in read_paper_table(3, 3) if row[0].isdigit()]
    assert [row[0] for row in result] == ["1", "2", "4", "8"]
    for count, nuwa, benchmark in result:
        assert entries[f"gap_{count}_nuwa"] == number(nuwa)
        assert entries[f"gap_{count}_benchmark"] == number(benchmark)


def test_our_numbers_follow_from_the_results(hono):
    # A second an epoch over the number of the variant: 3 for resident, 4 for dataloader.
    report = {row["id"]: row for row in reproduction.compare(hono)["entries"]}
    assert report["speedup_1_gpu"]["ours"] == pytest.approx(3 / 4)
    assert report["hono_cpu1_nuwa_time"]["ours"] == pytest.approx(100_000 / 60 / 3)
    assert report["hono_cpu1_nuwa_time"]["our_hardware"] == "A processor, 2 cores"
    assert report["direct_decomposition"]["ours"] == pytest.approx(1.1 * 6e-4)
    # Eight devices: 40 / 8 + 1 s by torch, 8 / 8 + 1 s by ours.
    assert report["speedup_8_gpu"]["ours"] == pytest.approx(6 / 2)
    row = report["hono_gpu4_nuwa_time"]
    assert (row["ours"], row["status"]) == (pytest.approx(100_000 * 3 / 60), "projected")


def test_most_numbers_of_the_paper_have_one_of_ours():
    entries = read_expected(EXPECTED).entries
    assert len(entries) == 70
    assert sum(entry.measure is not None for entry in entries) >= 55
    left = [entry for entry in entries if entry.measure is None]
    assert all("Not trained" in entry.differs for entry in left)


@pytest.mark.parametrize("name", ["hono_paper", "ethene_paper"])
def test_what_is_measured_at_the_scale_of_the_paper_can_be_found(tmp_path, name):
    exact = "hono" if name == "hono_paper" else "ethene_xtb"
    experiment = made_up.write(tmp_path, f"htfbr/{name}", exact)
    report = reproduction.compare(experiment)
    assert sum(row["ours"] is not None for row in report["entries"]) >= 3


def test_table_2_has_the_papers_rows_and_ours(hono):
    _, table = tables.draw_fits(hono, "hono", "hono", "train", "test", "grid")
    (row,) = select_rows(table, whose="paper", device="8 GPU", fit="nuwa")
    assert (row["train"], row["test"], row["points"], row["epochs"]) == (5.3e-4, 6.1e-4, 1e4, 1e5)
    ours = select_rows(table, whose="ours")
    fits = [row["fit"] for row in ours]
    assert fits[:4] == ["solver", "adaptive (solver)", "resident", "dataloader"]
    assert ours[0]["grid"] == pytest.approx(6.6e-4)
    assert ours[0]["seconds"] == 100.0


def test_table_3_compares_equal_trainings_with_the_batch_in_shares(hono):
    _, table = tables.draw_table3(hono)
    assert [row[0] for row in table[1:]] == [1, 2, 4, 8]
    for number_of_shares, nuwa, _, ours, deviation, rival in table[1:]:
        variant = list(hono.runs).index(f"shares_{number_of_shares}")
        first = list(hono.runs).index("shares_1")
        expected = (1 + 1e-9 * variant) / (1 + 1e-9 * first) - 1
        assert deviation == pytest.approx(expected, abs=1e-15)
        assert (ours, nuwa > 0) == (3e-4, True)
        assert rival == (None if number_of_shares == 4 else 3e-4)


def test_table_4_has_the_papers_rows_and_ours(ethene):
    _, table = tables.draw_fits(ethene, "ethene", "ethene_xtb", "train", "test")
    (row,) = select_rows(table, whose="paper", device="1 GPU", fit="benchmark")
    assert (row["train"], row["test"], row["epochs"]) == (3.3e-4, None, 88_999)
    assert len(select_rows(table, whose="ours")) == 4


@pytest.mark.slow
def test_figure_3_projects_the_measured_time_of_an_epoch(hono):
    figure, table = training.draw_time(hono)
    (paper,) = select_rows(table, device="1 GPU", implementation="benchmark")
    assert paper["hours"] == pytest.approx(7 + 51 / 60)
    (ours,) = select_rows(table, implementation="resident", device="A processor, 2 cores")
    assert ours["hours"] == pytest.approx(100_000 / 3 / 3600)
    assert (ours["device"], ours["status"]) == ("A processor, 2 cores", "projected")
    assert figure.axes[0].get_yscale() == "log"
    shared = {row["device"]: row for row in select_rows(table, implementation="dataloader")}
    assert list(shared) == ["A processor, 2 cores", "2 like ours", "4 like ours", "8 like ours"]
    assert shared["8 like ours"]["hours"] == pytest.approx(100_000 * 6 / 3600)
    assert shared["8 like ours"]["status"] == "projected"


def test_figure_4_lays_the_curves_of_two_implementations_over_each_other(ethene):
    figure, table = training.draw_curves(ethene)
    assert [line.get_label() for line in figure.axes[0].lines] == ["short", "dataloader"]
    assert np.allclose(figure.axes[0].lines[0].get_ydata(), 1 / np.arange(10, 110, 10))
    assert len(table) == 1 + 2 * 10

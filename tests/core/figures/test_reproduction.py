"""The paper's numbers beside ours, and the numbers of the paper that ships with the project."""

import json
import re
from pathlib import Path

import pytest

from core.figures import synthetic
from pipeline_core.artifacts import store
from pipeline_core.figures import reproduction, results
from pipeline_core.figures.expected import read_expected
from real_data import read_paper

ROOT = Path(__file__).parents[3]
CHGNET = ROOT / "workflows" / "experiments" / "chgnet" / "expected.yaml"

HEAD = """\
paper: A paper
citation: Nobody 1955
scale: a million structures
hardware: one accelerator
entries:
"""
FORCES = """\
  - id: forces
    where: Table I
    quantity: force MAE
    value: 62
    unit: meV/Å
    measure:
      experiment: toy/alloy
      of: base/metrics/splits/test/quantities/forces/mae
      factor: 1000
    differs: another material
"""
OTHERS = """\
  - {id: ratio, where: Fig. 1, quantity: speed-up, value: 2, unit: times, differs: a CPU,
     measure: {experiment: toy/alloy, of: wide/history/-1/seconds, over: base/history/-1/seconds}}
  - {id: load, where: Fig. 2, quantity: variation, value: 0.064, unit: "1", differs: a forecast,
     measure: {experiment: toy/alloy, of: base/balance/4/balanced/variation, status: projected}}
  - {id: step, where: Table II, quantity: MD step, value: 0.02, unit: s, differs: a CPU,
     measure: {experiment: toy/alloy, of: base/inference/nve/seconds_per_step}}
  - {id: hours, where: Abstract, quantity: training, value: 1.5, unit: h, differs: too large}
  - {id: elsewhere, where: Table I, quantity: energy MAE, value: 1, unit: eV, differs: little,
     measure: {experiment: toy/other, of: base/metrics/n_parameters}}
"""


def compare(folder, text):
    experiment = synthetic.load(folder)
    (experiment.path.parent / "expected.yaml").write_text(HEAD + text)
    return reproduction.compare(experiment)


def list_rows(folder, text):
    return {row["id"]: row for row in compare(folder, text)["entries"]}


def test_our_number_stands_beside_the_papers(folder):
    report = compare(folder, FORCES)
    (row,) = report["entries"]
    metrics = results.read_metrics(synthetic.load(folder).runs["base"])
    assert row["ours"] == 1000 * metrics.splits["test"].quantities["forces"].mae
    assert row["ratio"] == row["ours"] / 62
    assert row["status"] == "measured"
    assert row["paper_hardware"] == "one accelerator"
    assert row["our_hardware"] == "A processor, 2 cores"
    assert report["counts"] == {"measured": 1}
    # The machine of a time is that of the stage it was taken in.
    row = list_rows(folder, FORCES.replace("factor: 1000", "stage: train"))["forces"]
    assert row["our_hardware"] == "A processor, 2 cores, 2 ranks"


def test_each_artifact_can_be_pointed_to(folder):
    rows = list_rows(folder, OTHERS)
    assert rows["ratio"]["ours"] == 4.0 / 3.0
    assert rows["ratio"]["our_hardware"] == "A processor, 2 cores, 2 ranks"
    assert (rows["load"]["ours"], rows["load"]["status"]) == (0.01, "projected")
    assert 0 < rows["step"]["ours"] < 10
    assert (rows["hours"]["ours"], rows["hours"]["status"]) == (None, "not attempted")
    row = rows["elsewhere"]
    assert (row["ours"], row["status"]) == (None, "of another experiment")
    assert row["experiment"] == "toy/other"
    synthetic.load(folder).runs["base"].inference.unlink()
    row = list_rows(folder, OTHERS)["step"]
    assert (row["ours"], row["status"]) == (None, "not computed yet")


PROFILE = """\
  - {id: epoch, where: Fig. 7, quantity: epoch, value: 2, unit: s, differs: a CPU,
     measure: {experiment: toy/alloy, of: base/epoch/seconds}}
  - {id: full, where: Fig. 11, quantity: saturation, value: 800, unit: "1", differs: a CPU,
     measure: {experiment: toy/alloy, of: base/profile/saturation/atoms}}
  - {id: many, where: Fig. 7, quantity: epoch, value: 2, unit: min, differs: a CPU,
     measure: {experiment: toy/alloy, of: base/profile/projection/strong/random/64/seconds,
               over: base/profile/projection/strong/balanced/64/seconds, status: projected}}
"""


def test_a_profile_can_be_pointed_to(folder):
    rows = list_rows(folder, PROFILE)
    assert (rows["full"]["ours"], rows["many"]["status"]) == (None, "not computed yet")
    run = synthetic.load(folder).runs["base"]
    projection = [
        {"mode": mode, "strategy": strategy, "ranks": ranks, "seconds": seconds}
        for mode, strategy, ranks, seconds in (
            ("strong", "random", 64, 30.0),
            ("strong", "balanced", 64, 20.0),
            ("strong", "balanced", 128, 10.0),
            ("weak", "balanced", 64, 7.0),
        )
    ]
    content = {"saturation": {"atoms": 96.0}, "projection": projection}
    run.profile.write_text(json.dumps(content))
    record = {"stage": "profile", "seconds": 1.0, "cpu": "A processor", "cores": 2, "ranks": 1}
    with (run.folder / "records.jsonl").open("a") as file:
        file.write(json.dumps(record) + "\n")
    # The first epoch is no measure of the others.
    lines = [json.dumps({"epoch": n, "seconds": s}) for n, s in ((1, 90.0), (2, 3.0), (3, 5.0))]
    run.history.write_text("\n".join(lines))
    rows = list_rows(folder, PROFILE)
    assert (rows["full"]["ours"], rows["full"]["our_hardware"]) == (96.0, "A processor, 2 cores")
    assert (rows["many"]["ours"], rows["many"]["status"]) == (1.5, "projected")
    row = rows["epoch"]
    assert (row["ours"], row["our_hardware"]) == (4.0, "A processor, 2 cores, 2 ranks")
    run.history.write_text(lines[0])
    assert list_rows(folder, PROFILE)["epoch"]["ours"] == 90.0


ATTRIBUTES = """\
  - {id: slope, where: Sec. 3, quantity: derivative, value: 2, unit: "1", differs: a CPU,
     measure: {experiment: toy/alloy, of: base/inference/derivatives/report/by_name/x/1}}
  - {id: count, where: Sec. 3, quantity: number, value: 8, unit: "1", differs: a CPU,
     measure: {experiment: toy/alloy, of: base/inference/derivatives/count}}
"""


def test_attributes_of_a_plugins_own_layout_can_be_pointed_to(folder):
    run = synthetic.load(folder).runs["base"]
    with store.create(run.inference, "plugin/toy/inference", {}) as file:
        group = file.create_group("derivatives")
        group.attrs["report"] = json.dumps({"by_name": {"x": [1.0, 3.0]}})
        group.attrs["count"] = 4
        group.attrs["note"] = "no JSON"
    rows = {row["id"]: row for row in compare(folder, ATTRIBUTES)["entries"]}
    assert (rows["slope"]["ours"], rows["slope"]["ratio"]) == (3.0, 1.5)
    assert (rows["count"]["ours"], rows["count"]["our_hardware"]) == (4.0, "A processor, 2 cores")
    with pytest.raises(ValueError, match=r"'nothing_such' is not there, only count, note, report"):
        compare(folder, ATTRIBUTES.replace("derivatives/count", "derivatives/nothing_such"))
    run.inference.unlink()
    assert compare(folder, ATTRIBUTES)["counts"] == {"not computed yet": 2}


def test_all_numbers_of_the_paper_are_listed_in_their_order(folder):
    ids = ["forces", "ratio", "load", "step", "hours", "elsewhere"]
    assert list(list_rows(folder, FORCES + OTHERS)) == ids


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("base/metrics", "bse/metrics", "has no variant 'bse', only base, wide"),
        ("forces/mae", "force/mae", "'force' is not there, only energy, energy_per_atom, forces"),
        ("forces/mae", "forces/unit", "is not a number but str"),
        ("base/metrics", "base/metric", "expected.yaml:13: entries.0.measure.of"),
        ("differs", "difers", "did you mean 'differs'"),
        ("value: 62", "value: many", "entries.0.value"),
        (FORCES, FORCES + FORCES, "two entries have the id 'forces'"),
    ],
)
def test_a_mistake_is_named_with_its_file(folder, old, new, message):
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        compare(folder, FORCES.replace(old, new))
    assert "expected.yaml" in str(error.value)


def test_the_chgnet_file_holds_the_tables_of_the_paper():
    # Oracle: the text of the paper itself.
    entries = {entry.id: entry.value for entry in read_expected(CHGNET).entries}
    table1 = re.findall(
        r"^(?:Fast)?CHGNet\t(\S+ ?\S*)\t([\d.]+)[Kk]\t(\d+)\t(\d+)\t([\d.]+)\t(\d+)$",
        read_paper("chgnet"),
        re.MULTILINE,
    )
    assert len(table1) == 3
    for (_, *numbers), name in zip(table1, ("chgnet", "no_head", "heads"), strict=True):
        quantities = ("parameters", "energy", "force", "stress", "magmom")
        expected = [float(numbers[0]) * 1000, *map(float, numbers[1:])]
        assert [entries[f"{name}_{quantity}"] for quantity in quantities] == expected
    table2 = re.findall(
        r"</sub>\t\d+\t\d+\t\d+\t([\d.]+)\t([\d.]+)\t([\d.]+)$", read_paper("chgnet"), re.M
    )
    assert len(table2) == 3
    for numbers, name in zip(table2, ("limno2", "litipo5", "li9co7o16"), strict=True):
        result = [entries[f"{name}_{kind}"] for kind in ("chgnet", "fast", "speedup")]
        assert result == [float(number) for number in numbers]

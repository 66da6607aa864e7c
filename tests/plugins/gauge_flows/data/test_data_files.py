"""Ensembles of files.

Oracles: files that were written from known links; an identity that tells the coupling of an
ensemble from its links.
"""

import numpy as np
import pytest

from pipeline_core.artifacts.samples import SampleFile
from pipeline_core.artifacts.store import read_provenance
from pipeline_gauge_flows.data.actions import ActionOptions
from pipeline_gauge_flows.data.ensembles.storage import Ensemble
from pipeline_gauge_flows.data.formats import Configuration, write_nersc
from pipeline_gauge_flows.data.lattice import Lattice
from pipeline_gauge_flows.data.stage import make_data
from plugins.gauge_flows.theories import FILES, read_report, run_chain, write_files


@pytest.mark.slow
def test_files_are_read(dataset, tmp_path):
    write_files(tmp_path / "raw", 4.0, action=ActionOptions(beta=4.0))
    sources = [
        {"reader": "ildg", "path": "../../raw/*.ildg"},
        {"reader": "nersc", "path": "../../raw/*.nersc", "group": "file"},
    ]
    run = dataset(**FILES, sources=sources)
    assert run.options.raw_patterns == {
        f"sources.{i}.path": source["path"] for i, source in enumerate(sources)
    }
    summary = make_data(run)
    assert summary["samples"] == 20
    expected = run_chain(4.0, 20)
    with Ensemble(run.data) as ensemble:
        links = ensemble.read_links(range(20)).numpy()
        np.testing.assert_allclose(links, expected[::2] + expected[1::2], rtol=0, atol=1e-14)
        assert ensemble.chain.tolist() == [0] * 10 + [1] * 10
    with SampleFile(run.data, "data") as file:
        groups = file.read_column("group").tolist()
    assert groups[:10] == ["source-0"] * 10
    assert groups[10] == "../../raw/001.nersc"
    inputs = read_provenance(run.data)["inputs"]
    assert len(inputs) == 20
    assert all(len(value) == 64 for value in inputs.values())
    assert read_report(run)["statistics"]["origin"] == {"files": [10, 10]}


@pytest.mark.slow
@pytest.mark.parametrize("method", ["random", "group"])
def test_equal_configurations_are_in_one_split(dataset, tmp_path, method):
    write_files(tmp_path / "raw", 4.0)
    (tmp_path / "copies").mkdir()
    for path in sorted((tmp_path / "raw").glob("*.nersc")):
        (tmp_path / "copies" / path.name).write_bytes(path.read_bytes())
    sources = [
        {"reader": "nersc", "path": f"../../{folder}/*.nersc", "group": "file"}
        for folder in ("raw", "copies")
    ]
    split = {"method": method, "val": 0.2, "test": 0.2}
    run = dataset(**FILES, sources=sources, split=split, check_action=False)
    summary = make_data(run)
    with Ensemble(run.data) as ensemble:
        assert np.array_equal(ensemble.split[:10], ensemble.split[10:])
        assert set(ensemble.split) == {0, 1, 2}
    assert "10 samples have the links of an earlier one" in summary["warnings"][-1]
    assert read_report(run)["duplicates"]["samples"] == 10


def test_files_are_in_the_order_of_their_numbers(dataset, tmp_path):
    folder = tmp_path / "raw"
    folder.mkdir()
    expected = run_chain(4.0, 3)
    for number, links in zip((90, 95, 100), expected, strict=True):
        lattice = Lattice((2, 3, 2, 3), 3)
        write_nersc(folder / f"lat.{number}", Configuration(lattice, links, None))
    sources = [{"reader": "nersc", "path": "../../raw/lat.*"}]
    make_data(run := dataset(**FILES, sources=sources, check_action=False))
    with Ensemble(run.data) as ensemble:
        in_order = ensemble.read_links(range(3)).numpy()
    np.testing.assert_allclose(in_order, expected, rtol=0, atol=1e-14)


@pytest.mark.slow
def test_ensemble_of_another_action_is_found_out(dataset, tmp_path):
    """Files without a word on their action: the links themselves tell it."""
    write_files(tmp_path / "raw", 4.0, 40)
    sources = [{"reader": "ildg", "path": "../../raw/*.ildg"}]
    content = {**FILES, "action": {"beta": 6.0}, "sources": sources}
    with pytest.raises(ValueError, match=r"not of the action .*look like beta = [34]\.") as error:
        make_data(run := dataset(**content))
    assert not run.data.exists()
    assert "theory.yaml: sources: " in str(error.value)
    make_data(dataset(**content, check_action=False))
    # Right for those of the same plaquette coupling.
    make_data(dataset(**FILES, sources=sources))


def test_files_of_another_theory_are_refused(dataset, tmp_path):
    write_files(tmp_path / "raw", 4.0, 1, ActionOptions(beta=4.0))
    sources = [{"reader": "ildg", "path": "../../raw/000.ildg"}]
    with pytest.raises(ValueError, match=r"000.ildg: was drawn from .*beta=4.0"):
        make_data(dataset(**{**FILES, "action": {"beta": 4.5}}, sources=sources))
    with pytest.raises(ValueError, match=r"000.ildg: SU\(3\) on \[2, 3, 2, 3\] sites"):
        make_data(dataset(**{**FILES, "lattice": {"extents": [2, 2, 2, 3]}}, sources=sources))


def test_damaged_and_missing_files_are_refused(dataset, tmp_path):
    write_files(tmp_path / "raw", 4.0, 1)
    path = tmp_path / "raw/000.ildg"
    path.write_bytes(path.read_bytes()[:-3000])
    sources = [{"reader": "ildg", "path": "../../raw/*.ildg"}]
    run = dataset(**FILES, sources=sources)
    with pytest.raises(ValueError, match=r"theory.yaml: .*000.ildg: .*truncated"):
        make_data(run)
    assert not run.data.exists()
    with pytest.raises(ValueError, match=r"theory.yaml:\d+: sources.0.path: no file matches"):
        make_data(dataset(**FILES, sources=[{"reader": "nersc", "path": "*.nersc"}]))

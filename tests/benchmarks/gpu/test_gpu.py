"""The command that measures on a GPU: its dry run, its limits, and what it leaves out of a pack."""

import json
import subprocess
import sys
import zipfile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from processes import make_environment
from tiers import exhaustive

HERE = Path(__file__).parent


def load(name, monkeypatch):
    """Import a module of this folder as when the folder is run."""
    monkeypatch.syspath_prepend(str(HERE))
    spec = spec_from_file_location(f"gpu_{name}", HERE / f"{name}.py")
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def gpu(monkeypatch):
    return load("__main__", monkeypatch)


@pytest.fixture
def sections(gpu):
    return sys.modules["sections"]


def run(gpu, sections, out, code, seconds=60):
    """Run a section that is a line of Python."""
    section = sections.Section("trial", "trial", (), seconds)
    facts = {"gpu": None, "device": "cpu"}
    command = [sys.executable, "-c", code]
    end = gpu.run_section(section, command, make_environment(), facts, out)
    return end, json.loads((out / "trial_cpu.json").read_text())


def test_a_report_is_written_with_how_it_was_measured(gpu, sections, tmp_path):
    end, report = run(gpu, sections, tmp_path, "print('...'); print('{\"ours_s\": 1}')")
    assert end["status"] == "measured"
    assert report["ours_s"] == 1
    assert report["run"]["device"] == "cpu"
    assert report["run"]["exit"] == 0


@pytest.mark.parametrize(
    ("code", "seconds", "status"),
    [
        ("print('{\"ours_s\": 1}'); exit(3)", 60, "failed"),
        ("print('no report')", 60, "failed"),
        ("import time; print('one', flush=True); time.sleep(600)", 3, "too slow"),
    ],
)
@pytest.mark.slow
def test_a_section_that_fails_or_is_slow_ends(gpu, sections, tmp_path, code, seconds, status):
    end, _ = run(gpu, sections, tmp_path, code, seconds)
    assert end["status"] == status


def test_all_kernels_are_among_the_tests(sections):
    names = sections.list_tests()
    assert names[0].startswith("tests/kernels/")
    assert "tests/plugins/mace/test_gpu.py" in names


def test_files_are_named_after_the_gpu(gpu):
    names = ["NVIDIA H100 80GB HBM3, 580.1", "NVIDIA A100-SXM4-80GB, 550.2"]
    assert [gpu.name_machine({"gpu": one, "device": "cuda"}) for one in names] == ["h100", "a100"]


def test_a_pack_has_no_file_that_nothing_reads(monkeypatch, tmp_path):
    pack = load("pack", monkeypatch)
    kept = ["ase/io/vasp.py", "cuequivariance_ops/lib/libcue_ops.so"]
    left = ["ase/test/a.py", "include/gtest.h", "cuequivariance_ops/triton/cache/f.9.0.json"]
    with zipfile.ZipFile(tmp_path / "some.whl", "w") as archive:
        for name in (*kept, *left):
            archive.writestr(name, "")
    pack.unpack_wheel(tmp_path / "some.whl", tmp_path / "site")
    found = [p.relative_to(tmp_path / "site") for p in (tmp_path / "site").rglob("*.*")]
    assert sorted(map(str, found)) == kept


@exhaustive
@pytest.mark.slow
def test_the_dry_run_measures_every_section(tmp_path):
    done = subprocess.run(
        [sys.executable, HERE, "--device", "cpu"],
        env=make_environment(OUT=str(tmp_path)),
        capture_output=True,
        text=True,
        check=False,
    )
    report = json.loads(done.stdout.splitlines()[-1])
    assert {end["status"] for end in report["sections"].values()} == {"measured"}
    assert done.returncode == 0
    assert report["commit"]
    written = {path.stem for path in tmp_path.glob("*.json")}
    assert written == {f"{name}_cpu" for name in report["sections"]}

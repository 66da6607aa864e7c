"""A wheel of the engine, the kernels and HT-FBR alone runs where no package for atoms is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tiers import exhaustive

ROOT = Path(__file__).parents[2]
PACKAGES = ("pipeline_core", "kernels", "plugins/pipeline_htfbr")
BESIDE = (
    "Snakefile",
    "workflows",
    "profiles",
    "pyproject.toml",
    "setup.py",
    "README.md",
    "LICENSE",
)
ABSENT = ("ase", "pymatgen", "vesin", "spglib", "phonopy", "pipeline_atoms", "pipeline_mace")
HIDE = f"""
import sys

class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {ABSENT}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hide())
"""


def copy_sources(target: Path) -> None:
    """Copy what belongs to the three packages; no other plugin is in their project."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", *PACKAGES, *BESIDE],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.split("\0")):
        if not name.startswith("workflows/evidence/"):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target / name)
    project = target / "pyproject.toml"
    text = project.read_text()
    others = "atoms|chgnet|egnn_esp|gauge_flows|mace|papers"
    text = re.sub(rf'^({others}) = "pipeline_.*\n', "", text, flags=re.MULTILINE)
    text = re.sub(
        r"^(pipeline|snakemake)_\w+ = \"plugins/(?!pipeline_htfbr).*\n", "", text, flags=re.M
    )
    project.write_text(text)


@exhaustive
@pytest.mark.slow
def test_a_wheel_without_atoms_runs_the_smoke_experiment(tmp_path):
    sources, site, folder = tmp_path / "sources", tmp_path / "site", tmp_path / "work"
    copy_sources(sources)
    site.mkdir()
    (site / "sitecustomize.py").write_text(HIDE)

    def run(*words: str | Path, cwd: Path = tmp_path, **extra: str) -> str:
        environment = os.environ | {"OMP_NUM_THREADS": "1"} | extra
        command = [sys.executable, "-m", *map(str, words)]
        done = subprocess.run(
            command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    plain = ("--quiet", "--no-deps", "--no-index")
    # Kernels are compiled where they are used, not for each kind of processor.
    run("pip", "wheel", *plain, "--no-build-isolation", "--wheel-dir", "dist", sources, CC="false")
    run("pip", "install", *plain, "--target", site, *(tmp_path / "dist").glob("*.whl"))
    hidden = {"PYTHONPATH": str(site)}
    said = run("pipeline_core.cli", "plugins", **hidden)
    assert [line.split()[0] for line in said.splitlines()[1:]] == ["htfbr"]
    run("pipeline_core.cli", "init", "--experiment", "htfbr/smoke", folder, **hidden)
    run("snakemake", "--cores", "2", cwd=folder, **hidden)
    assert (folder / "results/htfbr/smoke/base/metrics.json").is_file()
    assert (folder / "results/htfbr/smoke/figures/summary.html").is_file()

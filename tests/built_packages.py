"""Packages that are built and installed as by their users, beside the environment of the tests."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pipeline_atoms
import pipeline_core
import pipeline_kernels
from forked_programs import start_programs

PYTHON = sys.executable
FORKED = {
    "pipeline_core.cli": ["pipeline-core"],
    "snakemake": ["snakemake"],
    "pytest": ["forked-python", "-m", "pytest"],
}
# Types are read from sources, which mypy does not find behind an editable installation.
PACKAGES = (pipeline_core, pipeline_kernels, pipeline_atoms)
SOURCES = [str(Path(package.__path__[0]).parent) for package in PACKAGES]


@dataclass(frozen=True)
class Package:
    """A package with a plugin.

    Attributes:
        folder: Its sources; what is called runs there.
        site: Where it is installed.
    """

    folder: Path
    site: Path

    def install(self) -> str:
        """Build a wheel and install it; return its name."""
        dist = self.site.with_name("dist")
        options = ["--quiet", "--no-deps", "--no-index"]
        build = ["--no-build-isolation", "--wheel-dir", str(dist), str(self.folder)]
        self.run("pip", "wheel", *options, *build, folder=dist.parent)
        (wheel,) = dist.glob("*.whl")
        self.run("pip", "install", *options, "--target", str(self.site), str(wheel))
        return wheel.name

    def run(self, *words: str, folder: Path | None = None) -> str:
        """Run a module that has to succeed; return what it says.

        Args:
            words: Its name and arguments.
            folder: Where; that of the package if None.
        """
        before = filter(None, [os.environ.get("PYTHONPATH")])
        path = os.pathsep.join([str(self.site), *SOURCES, *before])
        name, *arguments = words
        program, *options = FORKED.get(name, [PYTHON, "-m", name])
        variables = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        # Packages that bring plugins of pytest are imported in the process that forks.
        variables["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        done = subprocess.run(
            [start_programs() / program, *options, *arguments],
            cwd=folder or self.folder,
            env=os.environ | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

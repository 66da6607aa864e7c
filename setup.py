"""Contents of a wheel besides Python: the kernels in C, and the files of `pipeline-core init`.

Kernels are compiled when the package is built, for each level of processors. An editable install
has none: it compiles kernels at first use. Without a compiler the package is built without them,
with a warning.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

sys.path.insert(0, str(Path(__file__).parent / "kernels"))
from pipeline_kernels.compiler import LEVELS, keep_library, name_library
from pipeline_kernels.sources import SOURCES, write_source

TEMPLATE = ("Snakefile", "workflows", "profiles")
EVIDENCE = "workflows/evidence/"
"""Data behind the papers' figures; left out of working folders, so that wheels stay small."""


def list_template() -> list[str]:
    """Return the files of a working folder; in a clone, without raw data that were fetched."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z", *TEMPLATE], capture_output=True, check=True, text=True
        )
    except (OSError, subprocess.CalledProcessError):  # not a clone, or no git
        found = [path for name in TEMPLATE for path in (Path(name), *Path(name).rglob("*"))]
        names = [path.as_posix() for path in found if path.is_file()]
    else:
        names = listed.stdout.split("\0")
    return [name for name in names if name and not name.startswith(EVIDENCE)]


class Build(build_py):
    """Copies the modules, then the files that they look for beside themselves."""

    def run(self) -> None:
        """Build."""
        super().run()
        if not self.editable_mode:
            self._copy_template()
            self._compile_libraries()

    def _copy_template(self) -> None:
        """Copy the template of working folders."""
        for name in list_template():
            path = Path(self.build_lib) / "pipeline_core" / "template" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(name, path)

    def _compile_libraries(self) -> None:
        """Compile the kernels into the folder where `native.py` looks for them."""
        folder = Path(self.build_lib) / "pipeline_kernels" / "prebuilt"
        folder.mkdir(parents=True, exist_ok=True)
        jobs = list(self._list_jobs())
        self.announce(f"compiling {len(jobs)} libraries for {', '.join(LEVELS)}", level=2)
        try:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                # A run from the clone has compiled some of them: nothing is compiled twice.
                for path in pool.map(keep_library, *zip(*jobs, strict=True)):
                    shutil.copy(path, folder)
        except (OSError, subprocess.SubprocessError) as error:
            reason = getattr(error, "stderr", None) or error
            print(  # noqa: T201
                "WARNING: the kernels in C are not compiled: the package calculates with plain "
                "PyTorch, many times slower, unless a compiler is found where it runs. "
                f"Install a C compiler (cc, or name it by CC) and build again. {reason}",
                file=sys.stderr,
            )

    def _list_jobs(self) -> Iterator[tuple[str, str, Mapping[str, str], str]]:
        """Yield the arguments of `keep_library` for each library."""
        for name, source in SOURCES.items():
            texts = [write_source(name, prelude) for prelude in source.preludes()]
            for text, macros, level in product(texts, source.variants, LEVELS):
                yield name_library(name, text, macros, level), text, macros, level


class PlatformWheel(bdist_wheel):
    """A wheel for any Python, and for one platform if it holds libraries."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tags of interpreter, its binary interface, and platform."""
        libraries = Path(self.bdist_dir).rglob("pipeline_kernels/prebuilt/*.so")
        return "py3", "none", super().get_tag()[2] if any(libraries) else "any"


class PlatformDistribution(Distribution):
    """A package for one platform, though it has no extension modules."""

    def has_ext_modules(self) -> bool:
        """Return True: it depends on the platform."""
        return True


setup(
    cmdclass={"build_py": Build, "bdist_wheel": PlatformWheel},
    distclass=PlatformDistribution,
)

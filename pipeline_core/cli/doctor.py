"""`pipeline-core doctor`: a check of this machine, with cures for what is missing."""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import typer

import pipeline_kernels
from pipeline_core.artifacts.provenance import PACKAGES
from pipeline_core.cli import options
from pipeline_core.cli.findings import Finding, print_findings
from pipeline_core.cli.slurm import examine_cluster
from pipeline_core.config.variables import find_misspelled
from pipeline_core.distributed.world import find_world
from pipeline_core.stages.builtin import load_registry
from pipeline_core.system.memory import find_total_memory
from pipeline_kernels.cache import find_cache, find_numba_cache

MORE_PACKAGES = ("mpi4py", "pymetis", "snakemake-executor-plugin-slurm")


def diagnose(
    results: options.Results = options.RESULTS,
    slurm: Annotated[
        bool, typer.Option("--slurm", help="Check the Slurm cluster for `--profile slurm` instead.")
    ] = False,
) -> None:
    """Report what this machine has and lacks; exit with 1 if something needed is missing."""
    print_findings(examine_cluster(results) if slurm else examine(results))


def examine(results: Path) -> Iterator[Finding]:
    """Yield all findings, from the interpreter to the plugins."""
    yield _check_python()
    yield Finding("cores", str(len(os.sched_getaffinity(0))))
    yield Finding("memory", f"{find_total_memory() / 2**30:.1f} GiB")
    yield _find_ranks()
    yield from map(_find_package, (*PACKAGES, *MORE_PACKAGES))
    yield _find_gpus()
    yield _find_mpi()
    yield _find_program(
        "C compiler", ("cc", "gcc", "clang"), "some kernels fall back to slower code; install gcc"
    )
    yield _find_program(
        "Slurm", ("sbatch",), "only for --profile slurm: call it where sbatch is on the PATH"
    )
    yield _check_folder(results)
    yield from _check_caches()
    for sentence in find_misspelled():
        yield Finding("variable", "", sentence, needed=False)
    for plugin in load_registry().plugins:
        installed = "" if plugin.error else f"{plugin.distribution} {plugin.version}"
        yield Finding(f"plugin {plugin.name}", installed, plugin.error or "", needed=False)


def _check_python() -> Finding:
    python = platform.python_version() if sys.version_info >= (3, 11) else ""
    return Finding("Python", python, "install Python 3.11 or newer and make the environment again")


def _find_ranks() -> Finding:
    world = find_world()
    launcher = f"started by {world.launcher}" if world.size > 1 else "no launcher"
    return Finding("ranks", f"{world.size}, {launcher}")


def _find_package(name: str) -> Finding:
    try:
        return Finding(name, version(name))
    except PackageNotFoundError:
        return Finding(name, "", f"pip install {name}")


def _find_gpus() -> Finding:
    import torch

    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    cure = (
        "training and inference run on the CPU; install an NVIDIA driver and a CUDA build of torch"
    )
    return Finding("GPUs", ", ".join(names), cure, needed=False)


def _find_mpi() -> Finding:
    cure = "only to start ranks with mpiexec: pip install mpich, or load your cluster's MPI module"
    program = shutil.which("mpiexec")
    if program is None:
        return Finding("MPI", "", cure, needed=False)
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        return Finding("MPI", "", f"{cure} ({error})", needed=False)
    vendor, number = MPI.get_vendor()
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    if ("open-mpi" in done.stdout) != (vendor == "Open MPI"):
        problem = (
            f"{program} does not belong to {vendor}, which mpi4py loads: put its own first on PATH"
        )
        return Finding("MPI", "", problem, needed=False)
    return Finding("MPI", f"{vendor} {'.'.join(map(str, number))}, {program}")


def _find_program(what: str, names: tuple[str, ...], cure: str) -> Finding:
    program = next((path for path in map(shutil.which, names) if path), "")
    return Finding(what, program, cure, needed=False)


def _check_folder(results: Path) -> Finding:
    """Check whether artifacts can be written, and the free space."""
    there = next(p for p in (results.absolute(), *results.absolute().parents) if p.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            free = shutil.disk_usage(there).free
    except OSError as error:
        return Finding(
            "results",
            "",
            f"{results} cannot be written ({error.strerror}): choose another with --results",
        )
    return Finding("results", f"{results} can be written, {free / 2**30:.0f} GiB free")


def _check_caches() -> Iterator[Finding]:
    """Check whether compiled code and Snakemake's cache outlive a process."""
    kernels = Path(pipeline_kernels.__file__).parent
    finders: dict[str, Callable[[], Path]] = {
        "cache of kernels in C": find_cache,
        "cache of numba": partial(find_numba_cache, kernels / "packing"),
        "cache of Triton": partial(find_cache, "triton", "TRITON_CACHE_DIR"),
    }
    for name, find in finders.items():
        try:
            yield Finding(name, str(find()))
        except OSError as error:
            yield Finding(name, "", f"compiled anew by each process: {error}", needed=False)
    yield _check_snakemake_cache()


def _check_snakemake_cache() -> Finding:
    name = "cache of Snakemake"
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "snakemake")
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return Finding(name, str(folder))
    except (OSError, RuntimeError) as error:  # the latter without any home
        cure = (
            f"{error}; set XDG_CACHE_HOME to a folder of yours. Until then it lies in the folder "
            ".snakemake/cache of each working folder"
        )
        return Finding(name, "", cure, needed=False)


COMMANDS = {"doctor": diagnose}

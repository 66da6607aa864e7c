"""`pipeline-core doctor --slurm`: a check of a cluster against `profiles/slurm`.

All facts come from Slurm's own commands; one job of seconds checks what only a node can show.
"""

from __future__ import annotations

import getpass
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pipeline_core.cli.findings import Finding

PATIENCE = 120
"""Seconds to wait for a command, and for the start of the job."""


@dataclass(frozen=True)
class Site:
    """Settings in the variables PIPELINE_*, read as in `profiles/slurm/profile.yaml`.

    Attributes:
        partition: Partition of jobs; the cluster's default if None.
        gpu_partition: Partition of jobs that use a GPU.
        account: Account that pays; the user's default if None.
        gpus: GPUs of each node of a training.
        nodes: Nodes of a training.
        ranks: Processes of a node.
        threads: Cores of a process.
        hours: Time limit of a training.
    """

    partition: str | None
    gpu_partition: str | None
    account: str | None
    gpus: int
    nodes: int
    ranks: int
    threads: int
    hours: int

    @classmethod
    def read(cls, variables: Mapping[str, str]) -> Site:
        """Read it from the environment.

        Raises:
            ValueError: A number is not a whole number.
        """

        def read_number(name: str, default: int) -> int:
            text = variables.get(name, str(default))
            if not text.isdigit():
                raise ValueError(f"{name}={text}: expected a whole number; correct or unset it")
            return int(text)

        partition = variables.get("PIPELINE_PARTITION")
        gpus = read_number("PIPELINE_GPUS", int("PIPELINE_GPU_PARTITION" in variables))
        return cls(
            partition,
            variables.get("PIPELINE_GPU_PARTITION", partition),
            variables.get("PIPELINE_ACCOUNT"),
            gpus,
            read_number("PIPELINE_NODES", 1),
            read_number("PIPELINE_RANKS", max(gpus, 1)),
            read_number("PIPELINE_THREADS", 8),
            read_number("PIPELINE_HOURS", 12),
        )


def examine_cluster(results: Path) -> Iterator[Finding]:
    """Yield findings about the cluster, from its commands to a file that a node reads."""
    site = Site.read(os.environ)
    answer, problem = _call("scontrol", "ping")
    if "UP" not in answer:
        cure = f"{problem or answer.strip()}: load the module of Slurm, or call it on a login node"
        yield Finding("controller", "", cure)
        return
    yield Finding("controller", answer.strip().splitlines()[0])
    yield _check_accounting()
    yield _check_account(site)
    names = {"partition": site.partition} | (
        {"GPU partition": site.gpu_partition} if site.gpus else {}
    )
    for what, name in names.items():
        yield from _check_partition(what, name, site)
    yield _check_mpi(site)
    yield from _check_node(site, results)


def _call(*command: str) -> tuple[str, str]:
    """Return the output of a command, and the error if it fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=2 * PATIENCE
        )
    except OSError:
        return "", f"no command {command[0]}"
    except subprocess.TimeoutExpired:
        return "", f"{command[0]} does not answer within {2 * PATIENCE} s"
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return done.stdout, lines[-1] if lines else f"{command[0]} fails ({done.returncode})"
    return done.stdout, ""


def _check_accounting() -> Finding:
    configuration, _ = _call("scontrol", "show", "config")
    kind = re.search(r"AccountingStorageType\s*=\s*(\S+)", configuration)
    _, problem = _call("sacct", "--noheader", "--allocations")
    if kind and kind[1].endswith("slurmdbd") and not problem:
        return Finding("accounting", "on: states by sacct, efficiency report after each run")
    cure = (
        f"{problem or 'no accounting storage'}: jobs are watched by squeue, without efficiency "
        "report; nothing to change, or have slurmdbd installed"
    )
    return Finding("accounting", "", cure, needed=False)


def _check_account(site: Site) -> Finding:
    query = ("show", "associations", f"user={getpass.getuser()}", "format=account")
    text, problem = _call("sacctmgr", "--noheader", "--parsable2", *query)
    accounts = sorted({line.strip() for line in text.splitlines()} - {""})
    if problem or not accounts:
        name = site.account or "none set"
        return Finding("account", f"{name} (no list of accounts to compare with)")
    if site.account is None:
        return Finding("account", f"your default of {', '.join(accounts)}")
    if site.account.lower() in map(str.lower, accounts):
        return Finding("account", site.account)
    cure = f"you have no account {site.account!r}: export PIPELINE_ACCOUNT={accounts[0]}"
    return Finding("account", "", f"{cure} (of {', '.join(accounts)})")


def _check_partition(what: str, name: str | None, site: Site) -> Iterator[Finding]:
    """Check that a partition exists, and that its limits suffice for the profile."""
    text, _ = _call("sinfo", "--noheader", "--format=%P|%a|%l|%m|%c|%G|%D")
    rows = [line.strip().split("|") for line in text.splitlines()]
    default = next((row[0] for row in rows if row[0].endswith("*")), None)
    mine = [row for row in rows if row[0].rstrip("*") == name or (not name and row[0] == default)]
    listed = ", ".join(dict.fromkeys(row[0].rstrip("*") for row in rows))
    variable = "PIPELINE_GPU_PARTITION" if what.startswith("GPU") else "PIPELINE_PARTITION"
    if not mine:
        problem = f"no partition {name!r}" if name else "no default partition"
        yield Finding(what, "", f"{problem}: export {variable}= one of {listed}")
        return
    if mine[0][1] != "up":
        yield Finding(what, "", f"{mine[0][0]} is {mine[0][1]}: export {variable}= one of {listed}")
        return
    yield Finding(what, f"{mine[0][0].rstrip('*')}, {sum(int(r[6]) for r in mine)} nodes")
    trains = what.startswith("GPU") or not site.gpus
    limit = parse_time(mine[0][2])
    hours = site.hours if trains else 1
    fits = limit is None or limit >= hours * 3600
    cure = (
        f"at most {mine[0][2]}, less than {hours} h: export PIPELINE_HOURS={(limit or 0) // 3600}"
    )
    yield Finding("  time limit", mine[0][2] if fits else "", cure)
    memory, cores = 8000 * (site.ranks if trains else 1), site.threads * site.ranks
    fitting = [r for r in mine if _count(r[3]) >= memory and (not trains or _count(r[4]) >= cores)]
    largest = max(mine, key=lambda row: _count(row[3]))
    found = f"{_count(largest[3])} MB and {_count(largest[4])} cores a node"
    needed = f"less than {memory} MB and {cores} cores"
    cure = f"{found}, {needed}: lower PIPELINE_RANKS or PIPELINE_THREADS"
    yield Finding("  nodes", found if fitting else "", cure)
    if trains and site.gpus:
        most = max(count_gpus(row[5]) for row in mine)
        cure = f"{most} GPUs a node, less than {site.gpus}: export PIPELINE_GPUS={most}"
        yield Finding("  GPUs", f"{most} a node" if most >= site.gpus else "", cure)
    if trains and (there := sum(int(row[6]) for row in mine)) < site.nodes:
        yield Finding("  training", "", f"{there} nodes only: export PIPELINE_NODES={there}")


def _count(text: str) -> int:
    """Return a number of sinfo, which appends + where nodes differ."""
    return int(text.rstrip("+"))


def parse_time(text: str) -> int | None:
    """Return the seconds of a time limit in Slurm's format; None if there is none."""
    if text in {"infinite", "UNLIMITED"}:
        return None
    days, _, clock = text.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    parts = [0] * (3 - len(parts)) + parts
    return int(days or 0) * 86400 + parts[0] * 3600 + parts[1] * 60 + parts[2]


def count_gpus(gres: str) -> int:
    """Return the GPUs among the generic resources of a node, such as gpu:a100:4(S:0-1)."""
    plain = re.sub(r"\([^)]*\)", "", gres)
    words = [word.split(":") for word in plain.split(",") if word.split(":")[0] == "gpu"]
    return sum(int(word[-1]) if word[-1].isdigit() else 1 for word in words)


def _check_mpi(site: Site) -> Finding:
    if site.nodes * site.ranks == 1:
        return Finding("ranks", "one: no launcher is needed")
    text, problem = _call("srun", "--mpi=list")
    kinds = re.findall(r"^\s*(none|pmi2|pmix\w*|cray_shasta)\b", text, re.MULTILINE)
    if problem:
        return Finding("ranks", "", f"{problem}: trainings on several ranks are started by srun")
    return Finding("ranks", f"srun, without need of MPI (it offers {', '.join(kinds) or 'none'})")


def _check_node(site: Site, results: Path) -> Iterator[Finding]:
    """Run one small job to check that a node sees the results folder and this Python."""
    results.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=results.absolute(), suffix=".doctor") as file:
        file.write("seen")
        file.flush()
        python = f"{shlex.quote(sys.executable)} -c 'import pipeline_core; print(\"imported\")'"
        script = f"hostname; cat {shlex.quote(file.name)}; echo; {python}"
        words = ["--ntasks=1", "--time=5", f"--immediate={PATIENCE}", "--job-name=pipeline-doctor"]
        words += [f"--partition={site.partition}"] if site.partition else []
        words += [f"--account={site.account}"] if site.account else []
        text, problem = _call("srun", *words, "sh", "-c", script)
    lines = text.splitlines()
    if not lines:
        cure = f"{problem}: no node was free within {PATIENCE} s, or the job was refused; try again"
        yield Finding("job", "", cure)
        return
    yield Finding("job", f"ran on {lines[0]}")
    seen = f"{results} is seen by the node" if "seen" in lines else ""
    cure = f"{results.absolute()} is not there on {lines[0]}: choose a shared folder with --results"
    yield Finding("results", seen, cure)
    cure = (
        f"{sys.executable} does not work on {lines[0]}"
        f"{f' ({problem})' if problem else ''}: put the environment on a shared file system"
    )
    yield Finding("Python", sys.executable if "imported" in lines else "", cure)

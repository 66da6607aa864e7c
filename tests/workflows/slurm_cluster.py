"""A private Slurm cluster on this machine: two virtual nodes, pretended GPUs, accounting.

Debian's slurm-wlm, munge, slurmdbd and mariadb-server are needed, and root. All files live in one
folder, all daemons are children of this process and end with it; nothing of the system's own
configuration is read or changed.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from workflows.slurm_files import NODES, make_munge_key, write_accounting, write_configuration

PROGRAMS = ("munged", "slurmctld", "slurmd", "slurmdbd", "mariadbd", "sbatch", "srun", "sacct")
CLIENTS = (
    "sacct",
    "sacctmgr",
    "sbatch",
    "scancel",
    "scontrol",
    "sinfo",
    "squeue",
    "srun",
    "sshare",
)
ACCOUNT = "science"
"""The one account that root has."""


def explain_missing() -> str | None:
    """Return why no cluster can be started here, or None."""
    lacking = [name for name in PROGRAMS if shutil.which(name) is None]
    if lacking:
        packages = "slurm-wlm munge slurmdbd mariadb-server"
        return f"no {', '.join(lacking)} here: apt-get install {packages}"
    return None if os.geteuid() == 0 else "munged and slurmd want to be started by root"


@contextmanager
def start_slurm_cluster(folder: Path) -> Iterator[dict[str, str]]:
    """Run a cluster in `folder`; yield the variables that make sbatch and srun talk to it.

    Raises:
        TimeoutError: A daemon does not come up; the message holds the logs.
    """
    for name in ("munge", "state", "spool", "log", "bin", "sql"):
        (folder / name).mkdir(parents=True)
    host = socket.gethostname().partition(".")[0]
    accounting, controller, *ports = _find_free_ports(NODES + 2)
    write_accounting(folder, host, accounting)
    write_configuration(folder, host, accounting, controller, ports)
    _write_clients(folder)
    variables = {
        "SLURM_CONF": str(folder / "slurm.conf"),
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
    }
    with ExitStack() as daemons:

        def start(*command: str) -> None:
            daemon = subprocess.Popen(
                command,
                env=os.environ | variables | {"MYSQL_UNIX_PORT": f"{folder}/sql/socket"},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            daemons.callback(daemon.wait, timeout=30)
            daemons.callback(daemon.terminate)

        start(*_make_munge_command(folder / "munge"))
        start(*_make_sql_command(folder))
        _wait_until((folder / "munge/socket").exists, folder)
        _wait_until((folder / "sql/socket").exists, folder)
        start("slurmdbd", "-D")
        _wait_until(lambda: ask(variables, "sacctmgr", "-n", "show", "cluster") is not None, folder)
        _add_account(variables)
        start("slurmctld", "-D")
        for number in range(NODES):
            start("slurmd", "-D", "-N", f"n{number}")
        idle = ("sinfo", "--noheader", "--partition=debug", "--Node", "--format=%t")
        _wait_until(lambda: (ask(variables, *idle) or "").split() == ["idle"] * NODES, folder)
        yield variables


def ask(variables: Mapping[str, str], *command: str) -> str | None:
    """Return what a command of the cluster says; None if it fails."""
    environment = os.environ | dict(variables)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return None if done.returncode else done.stdout


def list_submissions(variables: Mapping[str, str], *fields: str) -> list[list[str]]:
    """Return what the accounting says of each job: one row a job, one column a field."""
    words = ("--noheader", "--parsable2", "--allocations", "--duplicates", "--starttime=now-1day")
    text = ask(variables, "sacct", *words, f"--format={','.join(('JobID', *fields))}")
    assert text is not None
    return [line.split("|") for line in text.splitlines()]


def _make_munge_command(folder: Path) -> list[str]:
    make_munge_key(folder)
    files = [f"--{name}-file={folder / name}" for name in ("key", "pid", "seed", "log")]
    return ["munged", "--foreground", "--force", f"--socket={folder / 'socket'}", *files]


def _make_sql_command(folder: Path) -> list[str]:
    """Make an empty database; return what serves it, by a socket alone, to whoever may open it."""
    place = ["--no-defaults", f"--datadir={folder / 'sql/data'}", "--innodb-log-file-size=8M"]
    subprocess.run(
        ["mariadb-install-db", *place, "--user=root", "--skip-test-db"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    free = ["--skip-grant-tables", "--skip-networking", "--user=root"]
    fast = ["--innodb-flush-log-at-trx-commit=0", "--innodb-lock-wait-timeout=900"]
    files = {"socket": "sql/socket", "pid-file": "sql/pid", "log-error": "log/sql.log"}
    named = [f"--{option}={folder / path}" for option, path in files.items()]
    return ["mariadbd", *place, *free, *fast, *named]


def _add_account(variables: Mapping[str, str]) -> None:
    for words in (
        ("cluster", "test"),
        ("account", ACCOUNT, "Cluster=test"),
        ("user", "root", f"Account={ACCOUNT}", "Cluster=test"),
    ):
        # It fails for what is there already, as the user root.
        ask(variables, "sacctmgr", "--immediate", "--quiet", "add", *words)


def _write_clients(folder: Path) -> None:
    """Commands that have SLURM_CONF: Snakemake's job steps drop it before they call them."""
    for name in CLIENTS:
        path = folder / "bin" / name
        program = shutil.which(name)
        path.write_text(f'#!/bin/sh\nSLURM_CONF={folder}/slurm.conf exec {program} "$@"\n')
        path.chmod(0o755)


def _find_free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("", 0))) for _ in range(count)]
        return [s.getsockname()[1] for s in sockets]


def _wait_until(ready: Callable[[], bool], folder: Path, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            logs = [f"{p.name}:\n{p.read_text()[-2000:]}" for p in (folder / "log").iterdir()]
            raise TimeoutError(f"Slurm does not come up within {seconds:g} s\n" + "\n".join(logs))
        time.sleep(0.1)

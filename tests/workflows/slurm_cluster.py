"""A private Slurm cluster on this machine: two virtual nodes, pretended GPUs, no accounting.

Debian's slurm-wlm and munge are needed, and root. All files live in one folder, all daemons are
children of this process and end with it; nothing of the system's own configuration is read or
changed. Options are those of slurm.conf(5); each line that is not obvious says what for.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "sinfo")
NODES, CPUS, GPUS = 2, 32, 4


def explain_missing() -> str | None:
    """Return why no cluster can be started here, or None."""
    lacking = [name for name in PROGRAMS if shutil.which(name) is None]
    if lacking:
        return f"no {', '.join(lacking)} here: apt-get install slurm-wlm munge"
    return None if os.geteuid() == 0 else "munged and slurmd want to be started by root"


@contextmanager
def start_slurm_cluster(folder: Path) -> Iterator[dict[str, str]]:
    """Run a cluster in `folder`; yield the variables that make sbatch and srun talk to it.

    Raises:
        TimeoutError: A daemon does not come up; the message holds the logs.
    """
    for name in ("munge", "state", "spool", "log", "bin"):
        (folder / name).mkdir(parents=True)
    _write_configuration(folder)
    variables = {
        "SLURM_CONF": str(folder / "slurm.conf"),
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
    }
    with ExitStack() as daemons:

        def start(*command: str) -> None:
            daemon = subprocess.Popen(
                command,
                env=os.environ | variables,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            daemons.callback(daemon.wait, timeout=30)
            daemons.callback(daemon.terminate)

        start(*_make_munge_command(folder / "munge"))
        _wait_until((folder / "munge/socket").exists, folder)
        start("slurmctld", "-D")
        for number in range(NODES):
            start("slurmd", "-D", "-N", f"n{number}")
        _wait_until(lambda: _count_idle_nodes(variables) == NODES, folder)
        yield variables


def _make_munge_command(folder: Path) -> list[str]:
    folder.chmod(0o711)  # munged refuses a folder that others can write
    key = folder / "key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    files = [f"--{name}-file={folder / name}" for name in ("key", "pid", "seed", "log")]
    return ["munged", "--foreground", "--force", f"--socket={folder / 'socket'}", *files]


def _write_configuration(folder: Path) -> None:
    host = socket.gethostname().partition(".")[0]
    controller, *ports = _find_free_ports(NODES + 1)
    nodes = [
        f"NodeName=n{i} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={CPUS} "
        f"RealMemory=16000 Gres=gpu:{GPUS}"
        for i, port in enumerate(ports)
    ]
    options = {
        "ClusterName": "test",
        "SlurmctldHost": host,
        "SlurmctldPort": controller,
        "SlurmUser": "root",
        "SlurmdUser": "root",
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={folder}/munge/socket",
        "StateSaveLocation": folder / "state",
        "SlurmdSpoolDir": f"{folder}/spool/%n",
        "SlurmctldPidFile": folder / "slurmctld.pid",
        "SlurmdPidFile": f"{folder}/slurmd-%n.pid",
        "SlurmctldLogFile": folder / "log/slurmctld.log",
        "SlurmdLogFile": f"{folder}/log/slurmd-%n.log",
        "ProctrackType": "proctrack/linuxproc",  # no cgroups: there may be none in a container
        "TaskPlugin": "task/none",
        "JobAcctGatherType": "jobacct_gather/none",
        "AccountingStorageType": "accounting_storage/none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_CPU_Memory",
        "SchedulerParameters": "sched_interval=1,batch_sched_delay=0,bf_interval=1",
        "SlurmdParameters": "config_overrides",  # believe CPUs and RealMemory of the lines below
        "ReturnToService": 2,
        "KillWait": 1,  # seconds between the polite and the final signal at a time limit
        "GresTypes": "gpu",
    }
    lines = [f"{key}={value}" for key, value in options.items()]
    partition = "PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP"
    (folder / "slurm.conf").write_text("\n".join([*lines, *nodes, partition, ""]))
    gpus = [f"NodeName=n{i} Name=gpu File=/dev/tty[0-{GPUS - 1}]" for i in range(NODES)]
    (folder / "gres.conf").write_text("\n".join([*gpus, ""]))
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    # Snakemake's job steps drop SLURM_CONF before they call srun; this srun has it again.
    srun = folder / "bin/srun"
    srun.write_text(f'#!/bin/sh\nSLURM_CONF={folder}/slurm.conf exec {shutil.which("srun")} "$@"\n')
    srun.chmod(0o755)


def _find_free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("", 0))) for _ in range(count)]
        return [s.getsockname()[1] for s in sockets]


def _count_idle_nodes(variables: dict[str, str]) -> int:
    result = subprocess.run(
        ["sinfo", "--noheader", "--Node", "--format=%t"],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    return result.stdout.split().count("idle")


def _wait_until(ready: Callable[[], bool], folder: Path, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            logs = [f"{p.name}:\n{p.read_text()[-2000:]}" for p in (folder / "log").iterdir()]
            raise TimeoutError(f"Slurm does not come up within {seconds:g} s\n" + "\n".join(logs))
        time.sleep(0.1)

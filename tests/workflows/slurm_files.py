"""The files of a private Slurm cluster: slurm.conf(5), slurmdbd.conf(5), gres.conf(5) and a key."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path

NODES, CPUS, GPUS = 2, 32, 4
MEMORY = 64000
"""Megabytes of a node, pretended: what a profile asks for has to fit."""
PARTITIONS = {"debug": "Default=YES MaxTime=INFINITE", "gpu": "MaxTime=2-00:00:00"}


def write_configuration(
    folder: Path, host: str, accounting: int, controller: int, ports: list[int]
) -> None:
    """Write what the controller, the nodes and all commands read.

    Args:
        folder: Of the cluster.
        host: Name of this machine.
        accounting: Port of slurmdbd.
        controller: Port of slurmctld.
        ports: One of slurmd a node.
    """
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
        "JobAcctGatherType": "jobacct_gather/linux",  # from /proc, for the efficiency report
        "JobAcctGatherFrequency": 5,
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": host,
        "AccountingStoragePort": accounting,
        "AccountingStoragePass": folder / "munge/socket",
        "AccountingStorageEnforce": "associations",  # an unknown account is refused
        "AccountingStoreFlags": "job_comment",  # Snakemake puts the rule there
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_CPU_Memory",
        "SchedulerParameters": "sched_interval=1,batch_sched_delay=0,bf_interval=1",
        "SlurmdParameters": "config_overrides",  # believe CPUs and RealMemory of the lines below
        "ReturnToService": 2,
        "KillWait": 1,  # seconds between the polite and the final signal at a time limit
        "GresTypes": "gpu",
    }
    nodes = [
        f"NodeName=n{i} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={CPUS} "
        f"RealMemory={MEMORY} Gres=gpu:{GPUS}"
        for i, port in enumerate(ports)
    ]
    partitions = [
        f"PartitionName={name} Nodes=ALL State=UP {limits}" for name, limits in PARTITIONS.items()
    ]
    _write(folder / "slurm.conf", options, *nodes, *partitions)
    gpus = [f"NodeName=n{i} Name=gpu File=/dev/tty[0-{GPUS - 1}]" for i in range(NODES)]
    _write(folder / "gres.conf", {}, *gpus)
    _write(folder / "cgroup.conf", {"CgroupPlugin": "cgroup/v1"})


def write_accounting(folder: Path, host: str, port: int) -> None:
    """Write what slurmdbd reads, which wants it to be nobody else's."""
    options = {
        "DbdHost": host,
        "DbdPort": port,
        "SlurmUser": "root",
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={folder}/munge/socket",
        "PidFile": folder / "slurmdbd.pid",
        "LogFile": folder / "log/slurmdbd.log",
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "localhost",  # by the socket that MYSQL_UNIX_PORT names
        "StorageUser": "root",
    }
    _write(folder / "slurmdbd.conf", options)
    (folder / "slurmdbd.conf").chmod(0o600)


def make_munge_key(folder: Path) -> None:
    """Make the key by which daemons and commands know each other."""
    folder.chmod(0o711)  # munged refuses a folder that others can write
    key = folder / "key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)


def _write(path: Path, options: Mapping[str, object], *lines: str) -> None:
    text = [f"{key}={value}" for key, value in options.items()]
    path.write_text("\n".join([*text, *lines, ""]))

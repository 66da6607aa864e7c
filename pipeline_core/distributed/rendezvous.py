"""How ranks find each other: every launcher's way to a torch process group.

The group holds gloo for tensors on the CPU and NCCL for tensors on GPUs. It is opened here and not
by a library's defaults, because a node may run several trainings at once (rank 0 takes a port that
is free and tells the others), and because names of nodes need not resolve.
"""

from __future__ import annotations

import os
import socket
import time
from datetime import timedelta
from pathlib import Path
from typing import Final

import torch
from torch import distributed as dist
from torch.distributed import Store, TCPStore  # type: ignore[attr-defined] # exported at run time

from pipeline_core.distributed.world import World
from pipeline_core.store import write_atomic

_PATIENCE: Final = 300
"""Seconds that ranks wait for rank 0."""
_SILENCE: Final = timedelta(hours=12)
"""That ranks wait for another one, which may work alone for hours, as on the levels of a large
matrix. Of a rank that dies its launcher tells the others."""


def init_process_group(world: World, folder: Path) -> None:
    """Open the default process group of torch.

    Args:
        world: The place of this process.
        folder: Where rank 0 leaves a note with its address if the launcher offers no other way.

    Raises:
        ValueError: The ranks do not find each other.
    """
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    step = [os.environ.get(f"SLURM_{name}", "0") for name in ("JOB_ID", "STEP_ID", "RESTART_COUNT")]
    note = folder / "-".join(["rendezvous", *step])
    store: Store | None = None  # torchrun has opened one, which torch finds
    if world.launcher == "mpiexec":
        store = _make_mpi_store(world)
    elif world.launcher == "srun":
        store = _make_srun_store(world, note)
    dist.init_process_group(
        backend, store=store, rank=world.rank, world_size=world.size, timeout=_SILENCE
    )
    if world.launcher == "srun" and world.rank == 0:
        note.unlink()  # all have read it: gloo returns when everyone is connected to everyone


def _make_mpi_store(world: World) -> Store:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    seen = (comm.Get_rank(), comm.Get_size())
    if seen != (world.rank, world.size):
        raise ValueError(
            f"mpiexec started rank {world.rank} of {world.size}, but mpi4py sees rank {seen[0]} of "
            f"{seen[1]}; start with the mpiexec of the MPI library that mpi4py loads"
        )
    one_node = comm.Split_type(MPI.COMM_TYPE_SHARED).Get_size() == world.size
    host = "127.0.0.1" if one_node else socket.gethostname()
    store = _start_server(host) if world.rank == 0 else None
    address = comm.bcast((store.host, store.port) if store else None)
    return store or _connect_client(*address)


def _make_srun_store(world: World, note: Path) -> Store:
    if world.rank == 0:
        store = _start_server(_find_own_address(os.environ.get("SLURM_LAUNCH_NODE_IPADDR")))
        with write_atomic(note) as temporary:
            temporary.write_text(f"{store.host} {store.port}")
        return store
    deadline = time.monotonic() + _PATIENCE
    while not note.exists():
        if time.monotonic() > deadline:
            raise ValueError(
                f"{note}: rank 0 has not left its address here within {_PATIENCE} s; "
                "all nodes must see one results folder"
            )
        time.sleep(0.05)
    host, port = note.read_text().split()
    return _connect_client(host, int(port))


def _start_server(host: str) -> TCPStore:
    return TCPStore(host, 0, is_master=True, wait_for_workers=False)


def _connect_client(host: str, port: int) -> TCPStore:
    return TCPStore(host, port, is_master=False)


def _find_own_address(peer: str | None) -> str:
    """This node's address on the way to `peer`, asked from the routing table: nothing is sent."""
    if peer is None:
        return socket.gethostname()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((peer, 9))
        return str(probe.getsockname()[0])

"""Rendezvous of the ranks: from every launcher to a torch process group.

The group holds gloo for tensors on the CPU and NCCL for tensors on GPUs. It is opened here and not
by a library's defaults, because a node may run several trainings at once (rank 0 takes a free port
and sends it to the others), because names of nodes need not resolve, because a store listens to
everyone unless it is given a socket, and because ranks that never come must be named.
"""

import os
import socket
import sys
import time
from datetime import timedelta
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Final

import torch
from torch import distributed as dist
from torch.distributed import (  # type: ignore[attr-defined] # exported at run time
    PrefixStore,
    Store,
    TCPStore,
)

from pipeline_core.artifacts.store import write_atomic
from pipeline_core.distributed.addresses import LOOPBACK, find_address, listen, use_interface
from pipeline_core.distributed.world import (
    World,
    describe_claim,
    may_be_launched,
    refuse_leftovers,
)

_PATIENCE: Final = 300.0
"""Seconds that ranks wait for each other at the start."""
_DOUBT: Final = 20.0
"""The same if no launcher is visible that would have started others."""
_NOTICE: Final = 10.0
"""Seconds after which ranks report that they are waiting."""
_LINE: Final = 256
"""Bytes of a text sent through MPI."""
_numbers: Final = count()
"""Numbers of the process groups of this process: a launcher's store keeps earlier entries."""
_SILENCE: Final = timedelta(hours=12)
"""Timeout of torch for a rank that may work alone for hours, as on the levels of a large matrix.
The watch reports a dead or stuck rank earlier."""


class _Waiting:
    """Waiting for the ranks at the start: reported after a while, and ended by an error."""

    def __init__(self, world: World) -> None:
        self._world, self._begin = world, time.monotonic()
        self._patience = _PATIENCE if may_be_launched(world) else _DOUBT
        self._is_reported = False

    def check(self, problem: str) -> None:
        """Report a problem, once.

        Raises:
            ValueError: It has lasted too long.
        """
        seconds = time.monotonic() - self._begin
        claim = describe_claim(self._world)
        if seconds > self._patience:
            raise ValueError(f"{problem} within {seconds:.0f} s; {claim}")
        if seconds > _NOTICE and not self._is_reported:
            sys.stderr.write(f"{problem} within {seconds:.0f} s, waiting; {claim}\n")
            self._is_reported = True


def init_process_group(world: World, folder: Path) -> str:
    """Open the default process group of torch.

    Args:
        world: The place of this process.
        folder: Folder for a file with rank 0's address, if the launcher offers no other way.

    Returns:
        The address of this process's interface to the others.

    Raises:
        ValueError: The ranks do not find each other.
    """
    refuse_leftovers(world)
    waiting = _Waiting(world)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    step = [os.environ.get(f"SLURM_{name}", "0") for name in ("JOB_ID", "STEP_ID", "RESTART_COUNT")]
    note = folder / "-".join(["rendezvous", *step])
    if world.launcher == "mpiexec":
        store, address = _make_mpi_store(world, waiting)
    elif world.launcher == "srun":
        store, address = _make_srun_store(world, note, waiting)
    else:
        store, address = _make_torchrun_store(world, waiting)
    store = PrefixStore(f"group {next(_numbers)}", store)
    _call_roll(store, world, waiting)
    with use_interface(address):
        dist.init_process_group(
            backend, store=store, rank=world.rank, world_size=world.size, timeout=_SILENCE
        )
    if world.launcher == "srun" and world.rank == 0:
        note.unlink()  # all have read it: gloo returns when all are connected
    return address


def _make_mpi_store(world: World, waiting: _Waiting) -> tuple[Store, str]:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    seen = (comm.Get_rank(), comm.Get_size())
    if seen != (world.rank, world.size):
        raise ValueError(
            f"mpiexec started rank {world.rank} of {world.size}, but mpi4py sees rank {seen[0]} of "
            f"{seen[1]}; start with the mpiexec of the MPI library that mpi4py loads; "
            f"{describe_claim(world)}"
        )
    one_node = comm.Split_type(MPI.COMM_TYPE_SHARED).Get_size() == world.size
    names = ["" if one_node else name for name in _gather_hosts(comm)]
    other = next((name for name in names if name != names[world.rank]), None)
    address = LOOPBACK if one_node else find_address(other)
    store = _start_server(address) if world.rank == 0 else None
    note = _broadcast_text(comm, f"{store.host} {store.port}" if store else "")
    host, port = note.split()
    return store or _connect(host, int(port), waiting), address


def _gather_hosts(comm: Any) -> list[str]:
    """Return the names of the nodes of all ranks, as plain bytes, without mpi4py's pickles."""
    own = bytearray(socket.gethostname().encode()[:_LINE].ljust(_LINE, b"\0"))
    names = bytearray(_LINE * comm.Get_size())
    comm.Allgather(own, names)
    parts = (names[i : i + _LINE] for i in range(0, len(names), _LINE))
    return [part.rstrip(b"\0").decode() for part in parts]


def _broadcast_text(comm: Any, text: str) -> str:
    line = bytearray(text.encode().ljust(_LINE, b"\0"))
    comm.Bcast(line)
    return line.rstrip(b"\0").decode()


def _make_srun_store(world: World, note: Path, waiting: _Waiting) -> tuple[Store, str]:
    one_node = os.environ.get("SLURM_STEP_NUM_NODES") == "1"
    address = LOOPBACK if one_node else find_address(os.environ.get("SLURM_LAUNCH_NODE_IPADDR"))
    if world.rank == 0:
        store = _start_server(address)
        with write_atomic(note) as temporary:
            temporary.write_text(f"{store.host} {store.port}")
        return store, address
    while not note.exists():
        waiting.check(
            f"{note}: rank 0 has not left its address here, where all nodes have to see it,"
        )
        time.sleep(0.05)
    host, port = note.read_text().split()
    return _connect(host, int(port), waiting), address


def _make_torchrun_store(world: World, waiting: _Waiting) -> tuple[Store, str]:
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    one_node = os.environ.get("LOCAL_WORLD_SIZE") == str(world.size)
    address = LOOPBACK if one_node else find_address(host)
    # torchrun's agent has opened a store already, on all interfaces: this cannot be changed here.
    if world.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return _start_named_server(host, port), address
    return _connect(host, port, waiting), address


@cache
def _start_named_server(host: str, port: int) -> TCPStore:
    """Start one store for all groups of this process, as each comes to the same address."""
    return _start_server(host, port)


def _start_server(host: str, port: int = 0) -> TCPStore:
    with listen(host, port) as server:
        port = server.getsockname()[1]
        return TCPStore(
            host, port, is_master=True, wait_for_workers=False, master_listen_fd=server.detach()
        )


def _connect(host: str, port: int, waiting: _Waiting) -> TCPStore:
    while True:
        try:
            return TCPStore(host, port, is_master=False, timeout=timedelta(seconds=_NOTICE))
        except dist.DistError:
            waiting.check(f"rank 0 has not answered at {host}, port {port},")


def _call_roll(store: Store, world: World, waiting: _Waiting) -> None:
    """Wait for all ranks, and name those that do not come: torch would wait for hours."""
    store.set(f"rank {world.rank}", "")
    if store.add("present", 1) == world.size:
        store.set("all", "")
    while True:
        try:
            return store.wait(["all"], timedelta(seconds=_NOTICE / 10))
        except dist.DistError:
            absent = [str(r) for r in range(world.size) if not store.check([f"rank {r}"])]
            waiting.check(f"of {world.size} ranks these have not come: {', '.join(absent[:8])}")

"""Functions called on several ranks of this machine, as processes."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined] # exported at run time

from pipeline_core.distributed.addresses import LOOPBACK
from pipeline_core.distributed.ranks import Ranks, connect_ranks

T = TypeVar("T")


def call_on_ranks(
    function: Callable[[Ranks], T], n_ranks: int, device: str = "cpu", threads: int = 1
) -> list[T]:
    """Call a function on ranks of this machine; return its results, by rank.

    Args:
        function: Called by each rank with the connected ranks. It and its results must be
            picklable.
        n_ranks: Number of processes.
        device: As for `connect_ranks`.
        threads: Threads of each rank.

    Raises:
        ValueError: A rank raised it, or ended without a message.
        RuntimeError: A rank failed otherwise.
    """
    # The store of the ranks is kept here until they have ended, so that its port is not lost.
    store = TCPStore(LOOPBACK, 0, is_master=True, wait_for_workers=False)
    variables = {
        "WORLD_SIZE": str(n_ranks),
        "MASTER_ADDR": LOOPBACK,
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "OMP_NUM_THREADS": str(threads),
    }
    with ExitStack() as stack:
        ends = [
            stack.enter_context(_start(function, device, variables | {"RANK": str(rank)}))
            for rank in range(n_ranks)
        ]
        return _receive_all(ends)


@contextmanager
def _start(
    function: Callable[[Ranks], Any], device: str, variables: dict[str, str]
) -> Iterator[Connection]:
    """Start the process of a rank; yield its connection."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    arguments = (function, device, variables, theirs)
    process = context.Process(target=_serve, args=arguments, daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours
    finally:
        ours.close()
        process.terminate()
        process.join()


def _serve(
    function: Callable[[Ranks], Any], device: str, variables: dict[str, str], end: Connection
) -> None:
    os.environ.update(variables)
    torch.set_num_threads(int(variables["OMP_NUM_THREADS"]))
    try:
        with connect_ranks(device, Path()) as ranks:
            end.send(_call(function, ranks))  # before others miss this rank
    except Exception as error:  # noqa: BLE001 - the parent raises it
        end.send(_make_sendable(error))


def _call(function: Callable[[Ranks], Any], ranks: Ranks) -> Any:
    """Return the result of a function, or its error."""
    try:
        return function(ranks)
    except Exception as error:  # noqa: BLE001 - the parent raises it
        return _make_sendable(error)


def _make_sendable(error: Exception) -> Exception:
    """Return an error of a standard type, which any process can read."""
    return ValueError(str(error)) if isinstance(error, ValueError) else RuntimeError(repr(error))


def _receive_all(ends: Sequence[Connection]) -> list[Any]:
    """Return the answers of all processes, in order; raise the first failure at once."""
    answers: dict[Any, Any] = {}
    while len(answers) < len(ends):
        for end in wait([one for one in ends if one not in answers]):
            assert isinstance(end, Connection)
            answers[end] = _receive(end)
    return [answers[end] for end in ends]


def _receive(end: Connection) -> Any:
    try:
        answer = end.recv()
    except (EOFError, ConnectionResetError):
        raise ValueError(
            "a rank on this machine ended without a message: probably it had too little memory; "
            "take fewer ranks or less work for each, such as a smaller train.batch_size"
        ) from None
    if isinstance(answer, Exception):
        raise answer
    return answer

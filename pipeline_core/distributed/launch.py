"""Start the ranks of a command on this machine, where no launcher of a cluster has."""

from __future__ import annotations

import os
import sys
from typing import Final, NoReturn

from pipeline_core.distributed.threads import count_threads_per_rank
from pipeline_core.memory import require_free

_RANK_BYTES: Final = 100_000_000
"""Bytes of a process that has imported torch, at the least."""


def start_ranks(n_ranks: int) -> NoReturn:
    """Become torchrun, which calls this command again on each of `n_ranks` ranks.

    They share the threads that OMP_NUM_THREADS gives to this process, else the cores that it may
    use.

    Raises:
        ValueError: There is no memory for so many.
    """
    require_free(n_ranks * _RANK_BYTES, f"{n_ranks} ranks", "ask for fewer")
    threads = int(os.environ.get("OMP_NUM_THREADS", len(os.sched_getaffinity(0))))
    os.environ["OMP_NUM_THREADS"] = str(count_threads_per_rank(threads, n_ranks))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    ranks = [f"--nproc-per-node={n_ranks}", "-m", "pipeline_core.cli"]
    sys.stdout.flush()
    os.execv(sys.executable, [*torchrun, *ranks, *sys.argv[1:]])  # noqa: S606 - no shell is meant

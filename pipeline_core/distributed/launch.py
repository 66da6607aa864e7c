"""Start of the ranks of a command on this machine, without a cluster's launcher."""

import os
import sys
from typing import Final, NoReturn

from pipeline_core.distributed.threads import count_threads_per_rank
from pipeline_core.system.memory import require_free

_RANK_BYTES: Final = 100_000_000
"""Lower bound of the memory of a process that has imported torch, bytes."""


def start_ranks(n_ranks: int) -> NoReturn:
    """Replace this process by torchrun, which calls this command again on `n_ranks` ranks.

    They share the threads that OMP_NUM_THREADS gives to this process, else the cores that it may
    use.

    Raises:
        ValueError: The memory does not suffice.
    """
    require_free(n_ranks * _RANK_BYTES, f"{n_ranks} ranks", "take fewer")
    threads = int(os.environ.get("OMP_NUM_THREADS", len(os.sched_getaffinity(0))))
    os.environ["OMP_NUM_THREADS"] = str(count_threads_per_rank(threads, n_ranks))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    ranks = [f"--nproc-per-node={n_ranks}", "-m", "pipeline_core.cli"]
    sys.stdout.flush()
    os.execv(sys.executable, [*torchrun, *ranks, *sys.argv[1:]])  # noqa: S606 - without a shell

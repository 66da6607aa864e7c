"""Programs on several ranks, as processes of this machine."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

LAUNCHER = ["-m", "torch.distributed.run", "--standalone"]


def run_ranks(module: str, arguments: list[str], ranks: int, threads: int) -> dict[str, Any]:
    """Run a module of this folder on ranks; return the JSON object that rank 0 prints last."""
    command = [sys.executable, *LAUNCHER, f"--nproc-per-node={ranks}", "-m", module, *arguments]
    places = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {"OMP_NUM_THREADS": str(threads), "PYTHONPATH": os.pathsep.join(places)}
    done = subprocess.run(
        command, env=os.environ | environment, stdout=subprocess.PIPE, text=True, check=True
    )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(json.dumps(result), flush=True)
    return result


class TimedTransport:
    """A transport that notes how long this rank waits for messages."""

    def __init__(self, inner):
        self.rank, self.size, self._inner = inner.rank, inner.size, inner
        self.waited, self.n_exchanges = 0.0, 0

    @property
    def bytes_sent(self):
        return self._inner.bytes_sent

    def start(self, sent, received):
        arrive = self._inner.start(sent, received)
        self.n_exchanges += 1

        def wait():
            begin = time.perf_counter()
            arrive()
            self.waited += time.perf_counter() - begin

        return wait

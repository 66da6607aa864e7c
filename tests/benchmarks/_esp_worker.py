"""One side of the benchmark of eGNN-ESP: a process that makes a network and measures its calls.

    python _esp_worker.py {ours,so3,dptb} THREADS

As `_mace_worker.py`, with the networks of `_esp_ours.py`, `_esp_so3.py` and `_esp_dptb.py`. Runs in
either environment, so it imports nothing of ours here.
"""

import json
import os
import sys
import warnings
from importlib import import_module

import _mace_worker
import torch


class Worker(_mace_worker.Worker):
    """What the other end of the pipe can ask for."""

    def parameters(self) -> int:
        """How many numbers the subject learns."""
        return sum(p.numel() for p in self.subject.model.parameters() if p.requires_grad)


def main() -> None:
    side, threads = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what packages print must not come between the answers
    warnings.simplefilter("ignore")  # those of the peers
    torch.set_num_threads(int(threads))
    worker = Worker(import_module(f"_esp_{side}"))
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        print(json.dumps(getattr(worker, name)(*arguments)), file=answers, flush=True)


if __name__ == "__main__":
    main()

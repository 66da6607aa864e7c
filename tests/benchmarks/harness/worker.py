"""One side of a benchmark with a peer: a process that makes a subject and measures its calls.

    python harness/worker.py MODULE THREADS

The module, such as `subjects.mace.ours`, holds the subjects. Each line that comes in is a JSON
list, the name of a method of `Worker` and its arguments; each line that goes out is its result.
Runs in either environment, so it imports nothing of ours here.
"""

import ctypes
import gc
import json
import os
import sys
import time
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernel")  # of the runtime (torch), of the driver (Triton)


class Worker:
    """What the other end of the pipe can ask for."""

    def __init__(self, subjects: Any) -> None:
        self.subjects = subjects

    def make(self, kind: str, file: str, options: dict[str, Any]) -> None:
        """Make the subject from the arrays of a file."""
        with np.load(file) as arrays:
            self.subject = getattr(self.subjects, kind)(dict(arrays), options)

    def result(self, file: str) -> None:
        """Write what the subject computes."""
        np.savez(file, **self.subject.result())

    def seconds(self, call: str) -> float:
        """Wall time of a call."""
        function = self.subject.calls[call]
        synchronize()
        begin = time.perf_counter()
        function()
        synchronize()
        return time.perf_counter() - begin

    def both_seconds(self, call: str) -> tuple[float, float]:
        """Wall time of a call, and time that processors spent on it."""
        before = time.process_time()
        wall = self.seconds(call)
        return wall, time.process_time() - before

    def peak_bytes(self, call: str) -> int:
        """Growth of memory over a call beyond what stays between calls: resident (Linux), or of
        the GPU where it is used."""
        gc.collect()
        if torch.cuda.is_initialized():
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            self.subject.calls[call]()
            return torch.cuda.max_memory_allocated() - before
        ctypes.CDLL(None).malloc_trim(0)
        before = resident("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # begins the high-water mark anew
        self.subject.calls[call]()
        return resident("VmHWM") - before

    def resident_bytes(self, which: str) -> int:
        """Resident memory of this process now (VmRSS) or at most (VmHWM)."""
        return resident(which)

    def parameters(self) -> int:
        """How many numbers the model of the subject learns."""
        return sum(p.numel() for p in self.subject.model.parameters() if p.requires_grad)

    def operators(self, call: str) -> int:
        """How often a call reaches torch's dispatcher."""
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            self.subject.calls[call]()
        names = [event.name for event in profile.events()]
        return sum(name.startswith(("aten::", "pipeline_kernels::")) for name in names)

    def launches(self, call: str) -> int:
        """How many kernels a call launches on a GPU."""
        kinds = torch.profiler.ProfilerActivity
        with torch.profiler.profile(activities=[kinds.CPU, kinds.CUDA]) as profile:
            self.subject.calls[call]()
            synchronize()
        return sum(event.name.startswith(LAUNCHES) for event in profile.events())

    def slowest_kernels(self, call: str, most: int = 8) -> dict[str, float]:
        """The kernels of a call that took longest on a GPU, with their times in ms."""
        kinds = torch.profiler.ProfilerActivity
        with torch.profiler.profile(activities=[kinds.CUDA]) as profile:
            self.subject.calls[call]()
            synchronize()
        times = {x.key: x.self_device_time_total / 1e3 for x in profile.key_averages()}
        slowest = sorted(times, key=lambda name: -times[name])[:most]
        return {name: round(times[name], 4) for name in slowest}

    def loaded_modules(self, prefix: str) -> list[str]:
        """Modules written in C that are loaded, of packages whose names begin so."""
        found = [m for name, m in sys.modules.items() if name.startswith(prefix)]
        files = {Path(m.__file__).name for m in found if getattr(m, "__file__", None)}
        return sorted(name for name in files if name.endswith(".so"))

    def matrix_rate(self, device: str = "cpu", size: int = 2048, dtype: str = "float32") -> float:
        """Operations per second of a large product of matrices, the best of ten."""
        self.subject = Product(size, device, dtype)
        return 2 * size**3 / min(self.seconds("product") for _ in range(10))

    def versions(self, names: list[str]) -> dict[str, str]:
        """Versions of packages, of those that are there."""
        from harness.report import read_versions

        return read_versions(*names)


class Product:
    """A product of square matrices."""

    def __init__(self, size: int, device: str, dtype: str) -> None:
        a = torch.rand(size, size, device=device, dtype=getattr(torch, dtype))
        self.calls = {"product": lambda: a @ a}


def synchronize() -> None:
    """Wait for a GPU that is used."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def resident(which: str) -> int:
    """Resident memory now (VmRSS) or at most (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(which))


def main() -> None:
    module, threads = sys.argv[1:]
    sys.path[0] = str(Path(__file__).parents[1])  # where a benchmark has it
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what packages print must not come between the answers
    warnings.simplefilter("ignore")  # those of the peers
    torch.set_num_threads(int(threads))
    worker = Worker(import_module(module))
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        print(json.dumps(getattr(worker, name)(*arguments)), file=answers, flush=True)


if __name__ == "__main__":
    main()

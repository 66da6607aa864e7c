"""Stage records: a line per finished stage in `records.jsonl`, with time, machine and result."""

import json
import logging
import os
import platform
import resource
import shutil
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from pipeline_core.artifacts.seals import add_checksum
from pipeline_core.distributed.world import find_world
from pipeline_core.model_info import STAGES
from pipeline_core.observers.wrappers import Around, StageWrappers
from pipeline_core.project.dataset_run import DatasetRun
from pipeline_core.project.run import ExperimentRun, Run

logger = logging.getLogger(__name__)


def _observe(run: DatasetRun | Run | ExperimentRun, stage: str) -> Around:
    begin = time.perf_counter()
    summary = yield
    write_record(run.folder, stage, time.perf_counter() - begin, summary)
    return summary


def write_record(
    folder: Path, stage: str, seconds: float, summary: Mapping[str, Any] | None
) -> None:
    """Add the record of a stage that has just ended, on rank 0.

    The artifacts exist already, so a record that cannot be written is only a warning.

    Args:
        folder: Folder of its artifacts.
        stage: Its name.
        seconds: Its duration.
        summary: Its summary, as its hook returned it.
    """
    world = find_world()
    if world.rank == 0:
        record = {
            "stage": stage,
            "started": (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat(
                timespec="seconds"
            ),
            "seconds": round(seconds, 3),
            "ranks": world.size,
            **describe_machine(),
            "summary": summary,
        }
        path = folder / "records.jsonl"
        try:
            _append(path, record)
        except OSError as error:
            logger.warning(
                "%s: the stage %r has succeeded, but its record cannot be written (%s)",
                *(path, stage, error.strerror or error),
            )


def describe_machine() -> dict[str, Any]:
    """Return the hardware and the memory use of this process, without the name of the host.

    Its keys: cpu, cores (that this process may use), gpu (None if none was used), peak_memory and
    peak_gpu_memory of this process so far, bytes.
    """
    torch = sys.modules.get("torch")  # a stage without torch used no GPU
    on_gpu = torch is not None and torch.cuda.is_initialized()
    return {
        "cpu": _read_cpu_model(Path("/proc/cpuinfo")),
        "cores": len(os.sched_getaffinity(0)),
        "gpu": torch.cuda.get_device_name() if torch is not None and on_gpu else None,
        "peak_memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "peak_gpu_memory": torch.cuda.max_memory_allocated() if torch is not None and on_gpu else 0,
    }


def _read_cpu_model(cpuinfo: Path) -> str:
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _append(path: Path, record: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = json.loads(json.dumps(record, default=str))
    _part_from_copies(path)
    with path.open("a+b") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
        is_torn = file.read(1) not in (b"", b"\n")  # by a disk that was full
        line = json.dumps(add_checksum(plain)) + "\n"
        file.write(("\n" * is_torn + line).encode())


def _part_from_copies(path: Path) -> None:
    """Copy a file that hard links share with other results, so that they are not changed."""
    if path.is_file() and path.stat().st_nlink > 1:
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        shutil.copyfile(path, part)
        part.replace(path)


RECORDS: Final = StageWrappers(_observe, STAGES)

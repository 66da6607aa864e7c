"""All benchmarks, one after the other, as a table.

    python tests/benchmarks

| where               | what                                                                     |
|---------------------|--------------------------------------------------------------------------|
| `NAME.py`           | a benchmark; `--small` is a trial, `--full` takes longer than 5 minutes  |
| `subjects/SUBJECT/` | what is measured: `ours.py` and `peer.py` run in processes of their own  |
| `harness/`          | command line and report, processes that take turns, times, the machine   |
| `results/`          | reports of earlier runs, named after their benchmark                     |
| `keys.yaml`         | figures of each report, which tests compare with runs and with results   |

A benchmark prints one JSON object as its last line: `name`, `ours_s`, `peer`, `peer_s`, `ratio`
(above 1: ours is faster) and whatever else it measures; a list of cases gives a list. A peer that
is not there is None (`make peers`). A benchmark that fails is a row with its exit code, and the
others still run.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline_core.status.output import align

COLUMNS = ("name", "ours_s", "peer", "peer_s", "ratio", "memory_ratio", "roofline_share")


def main() -> None:
    """Run all modules of this folder and print their figures."""
    rows = [COLUMNS]
    for path in list_benchmarks():
        rows += [format_row(case) for case in run_benchmark(path)]
    print(align(rows))


def list_benchmarks() -> list[Path]:
    """Return the modules of this folder that measure something."""
    paths = sorted(Path(__file__).parent.glob("*.py"))
    return [path for path in paths if not path.name.startswith(("__", "conftest", "test_"))]


def run_benchmark(path: Path) -> list[dict[str, Any]]:
    """Run one benchmark; return what it prints last, as a list of cases."""
    print(f"{path.stem} ...", file=sys.stderr, flush=True)
    done = subprocess.run([sys.executable, path], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        return [{"name": path.stem, "peer": f"failed with exit code {done.returncode}"}]
    result = json.loads(done.stdout.strip().splitlines()[-1])
    return result if isinstance(result, list) else [result]


def format_row(case: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells of one case."""
    cells = (case.get(column, "") for column in COLUMNS)
    return tuple(f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in cells)


if __name__ == "__main__":
    main()

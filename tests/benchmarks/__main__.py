"""All benchmarks, one after the other, as a table.

    python tests/benchmarks

Each is a module beside this file and prints one JSON object as its last line: `name`, `ours_s`,
`peer`, `peer_s`, `ratio` (above 1: ours is faster) and whatever else it measures; a list of cases
gives a list. A benchmark that fails is a row with its exit code, and the others still run.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline_core.cli.output import align

COLUMNS = ("name", "ours_s", "peer", "peer_s", "ratio", "memory_ratio", "roofline_share")


def main() -> None:
    """Run all modules of this folder and print their figures."""
    rows = [COLUMNS]
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if not path.name.startswith("_"):
            rows += [format_row(case) for case in run_benchmark(path)]
    print(align(rows))


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

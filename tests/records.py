"""What trainings leave behind, as tests look at it."""

from __future__ import annotations

import json
from typing import Any

from pipeline_core.run import Run


def read_history(run: Run) -> list[dict[str, Any]]:
    """Return the records of the epochs of a run."""
    return [json.loads(line) for line in run.history.read_text(encoding="utf-8").splitlines()]

"""Modules of benchmarks are found as when one of them is run."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))

"""The command line, alike in all benchmarks.

Each has `--small`, a trial of less than a minute that measures nothing to rely on; some have
`--full`, which takes longer than five minutes or more than 12 GB. Both change defaults: what is
given on the command line stands.
"""

import os
import subprocess
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
PEERS = ROOT / ".venv-peers/bin/python"
LOOK = "import sys; from importlib.util import find_spec; sys.exit(find_spec(sys.argv[1]) is None)"
MPTRJ = "mattersim_benchmarks/mptrj-random-1k.xyz"


def make_parser(
    description: str | None,
    *,
    repeats: int | None = None,
    full: str | None = None,
    device: bool = False,
    peers: bool = False,
) -> ArgumentParser:
    """Return a command line with `--small` and `--threads`, and what else is asked for.

    Args:
        description: Of the benchmark.
        repeats: Rounds by default, for `--repeats`.
        full: What `--full` does.
        device: Whether it can run on a GPU, for `--device`.
        peers: Whether a side needs the environment of the peers, for `--peers-python`.
    """
    parser = ArgumentParser(
        description=description,
        formatter_class=RawDescriptionHelpFormatter,
        conflict_handler="resolve",  # a benchmark may have an option of its own kind
    )
    parser.add_argument("--small", action="store_true", help="a trial of less than a minute")
    parser.add_argument("--threads", type=int, default=count_cores(), help="of each side")
    if repeats is not None:
        parser.add_argument("--repeats", type=int, default=repeats)
    if full is not None:
        parser.add_argument("--full", action="store_true", help=full)
    if device:
        parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    if peers:
        parser.add_argument(
            "--peers-python",
            type=Path,
            default=Path(os.environ.get("PEERS_PYTHON", PEERS)),
            help="interpreter that has the peers; else $PEERS_PYTHON, else that of make peers",
        )
    return parser


def read_arguments(
    parser: ArgumentParser,
    small: Mapping[str, Any],
    full: Mapping[str, Any] | None = None,
) -> Namespace:
    """Read the command line; `--small` and `--full` have defaults of their own."""
    args = parser.parse_args()
    if args.small or getattr(args, "full", False):
        parser.set_defaults(**(small if args.small else full or {}))
        args = parser.parse_args()
    if getattr(args, "device", "cpu") == "cuda":
        import torch

        if not torch.cuda.is_available():
            parser.error("--device cuda: torch finds no GPU here; leave it out to use the CPU")
    return args


def count_cores() -> int:
    """Return the cores that this process may use."""
    return len(os.sched_getaffinity(0))


def find_peer(package: str, python: Path = Path(sys.executable)) -> Path | None:
    """Return an interpreter if it is there and has a package; None, and say so, if not."""
    if python.exists():
        done = subprocess.run([python, "-c", LOOK, package], check=False, capture_output=True)
        if done.returncode == 0:
            return python
    is_own = python == Path(sys.executable)
    cure = "install the extra `peers`" if is_own else "run `make peers`, or set PEERS_PYTHON"
    print(f"{python} has no {package}, which is left out; {cure}", file=sys.stderr, flush=True)
    return None


def find_mptrj() -> Path:
    """Return the file with 1,000 crystals of MPtrj, or end the benchmark with the cure."""
    sys.path.append(str(ROOT / "tests"))
    from real_data import locate

    try:
        return locate(MPTRJ)
    except FileNotFoundError as error:
        sys.exit(str(error))

"""All that is measured on a GPU, by one command; `README.md` says how to prepare it.

    python tests/benchmarks/gpu [--device cpu] [--sections message_ops ...]

Each section is a process with a time limit. Its report is written as soon as it ends; one that
fails, or takes too long, leaves what it has printed, and the others still run. The last line is one
JSON object: how each section ended. Exits with 1 if one of them failed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from sections import DRY_RUN, SECTIONS, Section, make_command

ROOT: Final = Path(__file__).parents[3]
PACK: Final = ROOT / "build/gpu/pack.tar.xz"
SHELVES: Final = (".", "kernels", "plugins")


def main() -> None:
    """Run the sections."""
    args = read_arguments()
    out = Path(os.environ.get("OUT", ROOT / "build/gpu/results"))
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        place = unpack(Path(folder)) if args.device == "cuda" and PACK.is_file() else None
        variables = make_environment(place)
        facts = describe_machine(args.device, variables)
        ends, patience = {}, DRY_RUN if args.device == "cpu" else 1
        for section in SECTIONS:
            if section.name in (args.sections or [section.name]):
                data = str(place / "inputs/mptrj-random-1k.xyz") if place else None
                command = make_command(section, args.device, data)
                limited = replace(section, seconds=patience * section.seconds)
                ends[section.name] = run_section(limited, command, variables, facts, out)
    print(json.dumps({"name": "gpu", "sections": ends, **facts}))
    sys.exit(any(end["status"] != "measured" for end in ends.values()))


def read_arguments() -> argparse.Namespace:
    """Read the command line."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    names = [section.name for section in SECTIONS]
    parser.add_argument("--sections", nargs="+", choices=names, help="all if not given")
    return parser.parse_args()


def unpack(folder: Path) -> Path:
    """Unpack packages and inputs; write an interpreter of the peers."""
    with tarfile.open(PACK) as archive:
        archive.extractall(folder, filter="data")
    interpreter = folder / "peers-python"
    path = os.pathsep.join(map(str, (folder / "peers", folder / "site")))
    interpreter.write_text(f'#!/bin/sh\nPYTHONPATH="{path}" exec "{sys.executable}" "$@"\n')
    interpreter.chmod(0o755)
    return folder


def make_environment(place: Path | None) -> dict[str, str]:
    """Return variables in which our packages are found, and those that were unpacked."""
    path = [str(ROOT / shelf) for shelf in SHELVES]
    variables = dict(os.environ)
    if place is not None:
        path.append(str(place / "site"))
        variables["PEERS_PYTHON"] = str(place / "peers-python")
    path += filter(None, [os.environ.get("PYTHONPATH")])
    return variables | {"PYTHONPATH": os.pathsep.join(path)}


def describe_machine(device: str, variables: dict[str, str]) -> dict[str, Any]:
    """Collect commit, GPU, driver and versions for the reports."""
    code = "import json, torch; print(json.dumps([torch.__version__, torch.version.cuda]))"
    torch, cuda = json.loads(capture([sys.executable, "-c", code], variables) or "[null, null]")
    head = capture(["git", "rev-parse", "HEAD"], variables).strip()
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    gpu = capture(query, variables).strip() if device == "cuda" else None
    return {
        "commit": head or variables.get("COMMIT") or None,
        "device": device,
        "gpu": gpu,
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "torch": torch,
        "cuda": cuda,
    }


def capture(command: list[str], variables: dict[str, str]) -> str:
    """Run a command and return its output; empty if it is missing or fails."""
    try:
        done = subprocess.run(
            command, env=variables, cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout


def run_section(
    section: Section,
    command: list[str],
    variables: dict[str, str],
    facts: dict[str, Any],
    out: Path,
) -> dict[str, Any]:
    """Run a section within its limit; write its report, and return how it ended."""
    print(f"{section.name} (at most {section.seconds} s) ...", flush=True)
    begin, log = time.monotonic(), out / f"{section.name}.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            command, env=variables, cwd=ROOT, stdout=file, stderr=file, start_new_session=True
        )
        try:
            status = process.wait(section.seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            status = None
    end = {"seconds": round(time.monotonic() - begin, 1), "exit": status}
    report = read_report(section, log.read_text(errors="replace"))
    end["status"] = judge(status, report)
    print(f"{section.name}: {end['status']} in {end['seconds']} s", flush=True)
    name = f"{section.name}_{name_machine(facts)}.json"
    (out / name).write_text(json.dumps(report | {"run": facts | end}, indent=1) + "\n")
    return end


def read_report(section: Section, text: str) -> dict[str, Any]:
    """Return the last JSON object that a section printed, or the last line of the tests."""
    lines = [line for line in text.splitlines() if line.strip()]
    if section.script is None:
        return {"name": section.name, "summary": lines[-1] if lines else ""}
    for line in reversed(lines):
        try:
            content = json.loads(line)
        except ValueError:
            continue
        if isinstance(content, dict):
            return content
    return {"name": section.name, "said": lines[-5:]}


def judge(status: int | None, report: dict[str, Any]) -> str:
    """Name the end of a section: "measured", "too slow" or "failed"."""
    if status is None:
        return "too slow"
    if "summary" in report:
        # Without a GPU no test is left, for which pytest has status 5.
        return "measured" if status in (0, 5) else "failed"
    return "measured" if status == 0 and "said" not in report else "failed"


def name_machine(facts: dict[str, Any]) -> str:
    """Return the name of a GPU for files, such as "h100"; "cpu" without one."""
    found = re.search(r"\b[A-Z]+\d+\w*", facts["gpu"] or "")
    return found[0].lower() if found else facts["device"]


if __name__ == "__main__":
    main()

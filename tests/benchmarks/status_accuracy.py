"""What `pipeline-core status --follow` says of a training of two ranks, beside what came true.

    python tests/benchmarks/status_accuracy.py [--epochs 40] [--ranks 2]

A CHGNet trains on the HfO2 cells, in processes that torchrun starts, while another process follows
it. Each line from a tenth of the training on is compared with its end: the time that it said was
left, and its samples a second. It takes a minute or two, on a machine that does nothing else. The
last line printed is one JSON object: `left_error` and `rate_error` are the deviations of the first
such line, relative to what came true; `worst_left_error` is the largest down to a tenth of the time
left. All are to be below 0.2.
"""

import json
import subprocess
import tempfile
import time
from pathlib import Path

import yaml

from harness.command import ROOT, count_cores, make_parser, read_arguments
from harness.engine import call_engine, start_engine
from harness.report import print_report, read_versions
from plan_accuracy import TRAININGS, write_experiment

NAME = "chgnet/planned"
FIGURES = ("said_left_s", "left_s", "left_error", "rate_error", "worst_left_error", "lines")


def follow(project: Path, training: subprocess.Popen) -> list[tuple[float, dict]]:
    """Return the lines of a training with the times at which they were read, until it ends."""
    words = ["status", NAME, "--follow", "--json"]
    with start_engine(project, *words, stdout=subprocess.PIPE) as following:
        lines = []
        assert following.stdout is not None
        for line in following.stdout:
            stage = json.loads(line)["experiments"][0]["runs"]["base"]["train"]
            lines.append((time.time(), stage.get("training") or {}))
            if training.poll() is not None:
                following.terminate()
                break
    return lines


def compare(lines: list[tuple[float, dict]], start: float, end: float, samples: int) -> dict:
    """Compare what was said from a tenth of a training on with its end.

    Args:
        lines: Time of reading, and what was said.
        start: When the first step began.
        end: When the training ended.
        samples: All that were trained on, over all epochs.
    """
    known = [
        (at, said)
        for at, said in lines
        if said.get("left_s") is not None and 0.1 <= (at - start) / (end - start) <= 0.9
    ]
    if not known:  # a trial ends before it has a pace
        return dict.fromkeys(FIGURES)
    errors = [said["left_s"] / (end - at) - 1 for at, said in known]
    at, said = known[0]
    return {
        "said_left_s": said["left_s"],
        "left_s": end - at,
        "left_error": errors[0],
        "rate_error": said["samples_per_s"] / (samples / (end - start)) - 1,
        "worst_left_error": max(errors, key=abs),
        "lines": len(known),
    }


def main() -> None:
    """Follow a training and print one JSON object as the last line."""
    parser = make_parser(__doc__)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--ranks", type=int, default=2)
    parser.set_defaults(model={})
    tiny = {f"{kind}_features": 8 for kind in ("atom", "bond", "angle")}
    args = read_arguments(parser, {"epochs": 10, "model": tiny})
    TRAININGS["chgnet"]["train"]["epochs"] = args.epochs
    TRAININGS["chgnet"]["model"] |= args.model
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        (project / "workflows").mkdir()
        (project / "workflows/datasets").symlink_to(ROOT / "workflows/datasets")
        write_experiment(project, "chgnet")
        path = project / f"workflows/experiments/{NAME}.yaml"
        call_engine(project, "data", "--dataset", yaml.safe_load(path.read_text())["dataset"])
        for stage in ("graph", "partition"):
            call_engine(project, stage, "--experiment", NAME)
        words = ["train", "--experiment", NAME, "--device", "cpu"]
        with start_engine(project, *words, ranks=args.ranks, stderr=subprocess.DEVNULL) as training:
            lines = follow(project, training)
        history = project / "results" / NAME / "base/history.jsonl"
        records = [json.loads(line) for line in history.read_text().splitlines()]
        end = history.stat().st_mtime
        report = json.loads((project / "results/datasets/hfo2/import.json").read_text())
        samples = report["splits"]["train"] * len(records)
        start = end - sum(record["seconds"] for record in records)
        result = compare(lines, start, end, samples)
    figures = result | {"ranks": args.ranks, "epochs": args.epochs, "cores": count_cores()}
    print_report("status_accuracy", figures, threads=1, versions=read_versions("torch"))


if __name__ == "__main__":
    main()

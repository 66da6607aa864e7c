"""Step times that `pipeline-core plan` predicts for 1, 2 and 4 ranks beside measured ones.

    python tests/benchmarks/plan_accuracy.py [--plugins chgnet mace ...]

One training of each plugin, of a size that a laptop trains, on real structures of HfO2 where it
takes structures. The plan is made first; then the same training runs on 1, 2 and 4 ranks, and the
seconds of its steps are read from the history, the first epoch left out. Ranks share the cores of
this machine, so with two cores four ranks take turns, which the plan must know. Run it alone on a
quiet machine: it takes some 4 minutes. The last line printed is one JSON object: `max_error` is the
largest of |predicted / measured - 1| over plugins and the ranks 2 and 4.
"""

import json
import sys
import tempfile
from pathlib import Path
from statistics import median

import yaml

from harness.command import ROOT, count_cores, make_parser, read_arguments
from harness.engine import call_engine
from harness.report import print_report, read_versions

RANKS = (1, 2, 4)
LOSS = {"energy": {}, "forces": {}}
TRAININGS = {
    "chgnet": {
        "model": {"atom_features": 32, "bond_features": 32, "angle_features": 32},
        "train": {"epochs": 4, "batch_size": 16},
    },
    "mace": {
        "model": {"channels": 32, "max_l": 1, "lmax": 2, "correlation": 2},
        "train": {"epochs": 4, "batch_size": 16},
    },
    "egnn_esp": {
        "model": {"channels": 8, "layers": 2},
        "train": {"epochs": 4, "batch_size": 4},
    },
    "gauge_flows": {"train": {"epochs": 8, "batch_size": 256}},
    "htfbr": {
        "dataset": "hono_large",
        "model": {"rank": 10},
        "graph": {"degree": 9},
        "train": {
            "method": "trainer",
            "epochs": 4,
            "batch_size": 8192,
            "loss": {"energy": {"kind": "mse"}},
        },
    },
}
"""What differs from the experiment `smoke` of each plugin."""
POINTS = 200_000
"""Of HONO: with those of the smoke a step of HT-FBR takes a millisecond, about as long as it takes
to wake a process, and on two ranks one training takes twice as long as the next."""


def write_experiment(project: Path, plugin: str) -> None:
    """Write the smoke experiment of a plugin, at the size of the benchmark."""
    source = ROOT / f"workflows/experiments/{plugin}/smoke.yaml"
    content = yaml.safe_load(source.read_text())
    for section, changes in TRAININGS[plugin].items():
        is_section = isinstance(changes, dict)
        content[section] = content.get(section, {}) | changes if is_section else changes
    for section in ("variants", "infer", "evaluate", "profile", "figures"):
        content.pop(section, None)
    folder = project / "workflows/experiments" / plugin
    folder.mkdir(parents=True)
    (folder / "planned.yaml").write_text(yaml.safe_dump(content))


def link_datasets(project: Path) -> None:
    """Give a project all datasets, and one with more points."""
    folder = project / "workflows/datasets"
    folder.mkdir(parents=True)
    for path in (ROOT / "workflows/datasets").iterdir():
        (folder / path.name).symlink_to(path)
    hono = yaml.safe_load((folder / "hono.yaml").read_text())
    hono["source"]["points"] = POINTS
    (folder / "hono_large.yaml").write_text(yaml.safe_dump(hono))


def measure_step(project: Path, name: str, n_ranks: int, n_steps: int) -> float:
    """Train; return the median over epochs, the first left out, of the seconds of a step."""
    run = project / "results" / name / "base"
    for file in [*run.glob("state/*"), *run.glob("history.jsonl"), *run.glob("model.pt")]:
        file.unlink()
    words = ["train", "--experiment", name, "--device", "cpu"]
    call_engine(project, *words, ranks=n_ranks, threads=max(1, count_cores() // n_ranks))
    records = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    return median(record["seconds"] for record in records[1:]) / n_steps


def compare(project: Path, plugin: str, ranks: int) -> dict:
    """Plan a training, then do it on 1, 2 and 4 ranks."""
    write_experiment(project, plugin)
    name = f"{plugin}/planned"
    path = project / f"workflows/experiments/{name}.yaml"
    dataset = yaml.safe_load(path.read_text()).get("dataset")
    if dataset is not None:
        call_engine(project, "data", "--dataset", dataset)
    for stage in ("graph", "partition"):
        call_engine(project, stage, "--experiment", name)
    words = ["plan", name, "--ranks", str(ranks), "--device", "cpu", "--json"]
    shown = call_engine(project, *words, threads=count_cores())
    plan = json.loads(shown.splitlines()[-1])
    result = {}
    for record in plan["ranks"]:
        n = record["ranks"]
        measured = measure_step(project, name, n, record["steps"])
        result[str(n)] = {
            "predicted_s": record["step_s"],
            "measured_s": measured,
            "error": record["step_s"] / measured - 1,
            "predicted_gb": None if record["memory"] is None else record["memory"] / 1e9,
        }
        print(plugin, n, result[str(n)], file=sys.stderr, flush=True)
    return result


def main() -> None:
    """Measure all plugins and print one JSON object as the last line."""
    parser = make_parser(__doc__)
    parser.add_argument("--plugins", nargs="+", choices=TRAININGS, default=[*TRAININGS])
    parser.set_defaults(ranks=4, features=None)
    args = read_arguments(parser, {"plugins": ["chgnet"], "ranks": 2, "features": 8})
    if args.features:
        TRAININGS["chgnet"]["model"] = dict.fromkeys(TRAININGS["chgnet"]["model"], args.features)
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        link_datasets(project)
        plugins = {plugin: compare(project, plugin, args.ranks) for plugin in args.plugins}
    errors = [abs(one[n]["error"]) for one in plugins.values() for n in one if n != "1"]
    figures = {"max_error": max(errors), "plugins": plugins, "cores": count_cores()}
    print_report("plan_accuracy", figures, threads=None, versions=read_versions("torch", "numpy"))


if __name__ == "__main__":
    main()

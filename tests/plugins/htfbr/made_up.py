"""Made-up results for the experiments that ship with the plugin: its layouts, simple numbers."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from pipeline_core.artifacts import store
from pipeline_core.artifacts.samples import SampleWriter
from pipeline_core.fields import FIELDS
from pipeline_core.project.project import Project
from pipeline_core.stages.builtin import load_registry

ROOT = Path(__file__).parents[3]
INVERSE_CM = 1.239841984e-4
HARTREE_IN_CM = 27.211386245988 / INVERSE_CM
N_TRAIN = 9000
ENDS = (0.0, 5000.0, 10000.0, 20000.0, 40000.0, None)


def load(folder, name):
    """Return an experiment that ships with the plugin, with results in a folder."""
    return Project(ROOT / "workflows", folder, load_registry()).load_experiment(name)


def make_sizes(rmse):
    return {"rmse": rmse, "mae": 0.7 * rmse, "max_error": 9 * rmse}


def place(rmse, n_points):
    """Return the errors at a set of points, rmse in hartree, rising with the energy."""
    windows = [
        {
            "from": low,
            "to": high,
            "n_points": n_points // 5,
            **make_sizes(rmse * HARTREE_IN_CM * 2**i),
        }
        for i, (low, high) in enumerate(pairwise(ENDS), -3)
    ]
    return {
        "n_points": n_points,
        "hartree": make_sizes(rmse),
        "cm^-1": make_sizes(rmse * HARTREE_IN_CM),
        "relative": 10 * rmse,
        "windows": windows,
    }


def make_metrics(run, exact, number):
    """Return metrics of the variant with this number; its errors fall with it."""
    train, test = 5e-4 / (1 + number), 6e-4 / (1 + number)
    method = run.sections["train"].method
    errors = {"train": place(train, N_TRAIN), "val": place(test, 1000), "test": place(test, 10000)}
    if exact == "hono":
        errors |= {"grid": place(1.1 * test, 1_000_000), "off_grid": place(1.2 * test, 20_000)}
    surface = {
        "exact": exact,
        "method": method,
        "ranks": [10, 10, 13, 10, 1] if number == 1 else [10, 10, 10, 10, 1],
        "leaf_ranks": [10] * 6,
        "degrees": [9] * 6,
        "n_points": N_TRAIN + 11_000,
        "n_train": N_TRAIN,
        "epochs": 100,
        "seconds": 100.0 / (1 + number),
        "seconds_per_epoch": 1.0 / (1 + number),
        "gap": {"hartree": 3e-4, "cm^-1": 3e-4 * HARTREE_IN_CM},
        "errors": errors,
    }
    return {"n_parameters": 4100 + number, "splits": {}, "surface": surface}


def make_history(number):
    """Return one record each ten epochs; losses fall as 1 / epoch."""
    for epoch in range(10, 110, 10):
        loss = 1 / epoch * (1 + 1e-9 * number)
        yield {"epoch": epoch, "seconds": 10.0, "train": {"loss": loss}, "val": {"loss": 2 * loss}}


def make_profile(run):
    """Return projected epochs: ours takes 8 s and torch 40 s over the devices, and one to add."""
    return {
        "projection": [
            {
                "mode": "strong",
                "strategy": method,
                "ranks": n,
                "seconds": whole / n + 1,
                "compute": whole / n,
                "communication": 1.0,
            }
            for method, whole in (("resident", 8.0), ("dataloader", 40.0))
            for n in run.sections["profile"].shares
        ]
    }


def write(folder, name, exact):
    """Write the results of all variants of an experiment and return it."""
    experiment = load(folder, name)
    for number, run in enumerate(experiment.runs.values()):
        run.folder.mkdir(parents=True)
        store.write_json(run.metrics, make_metrics(run, exact, number))
        lines = [json.dumps(record) + "\n" for record in make_history(number)]
        run.history.write_text("".join(lines))
        record = {"stage": "train", "seconds": 12.0, "cpu": "A processor", "cores": 2}
        lines = [json.dumps({**record, "stage": stage}) + "\n" for stage in ("train", "profile")]
        (run.folder / "records.jsonl").write_text("".join(lines))
        if run.sections["profile"].has_work:
            store.write_json(run.profile, make_profile(run))
    return experiment


def write_predictions(run):
    """Write predictions of 600 points: heights of 0, 1, ..., 599 cm⁻¹, every third in a split."""
    fields = [FIELDS["split"]]
    fields += [replace(FIELDS["energy"], name=f"energy_{role}") for role in ("label", "predicted")]
    with SampleWriter(run.predictions, "predictions", {}, fields) as writer:
        for number in range(600):
            energy = np.asarray(-5.0 + number * INVERSE_CM)
            split = np.asarray(number % 3, dtype="i1")
            writer.add({"split": split, "energy_label": energy, "energy_predicted": energy})


def write_uses(run, *, exact=True):
    """Write cuts through a quadratic well and three stationary points."""
    r, t = np.linspace(1, 3, 21), np.linspace(0, 3, 31)
    minimum = -7.0
    with store.create(run.inference, "plugin/htfbr/inference", {}) as file:
        coordinates = [{"name": "r", "unit": "bohr"}, {"name": "t", "unit": "1"}]
        file.attrs["coordinates"] = json.dumps(coordinates)
        file.attrs["minimum_energy"] = minimum
        shapes = {"r": (["r"], [r]), "r,t": (["r", "t"], [r, t])}
        for name, (names, axes) in shapes.items():
            group = file.create_group(f"cuts/{name}")
            group.attrs["coordinates"] = json.dumps(names)
            grid = np.meshgrid(*axes, indexing="ij")
            well = sum((one - 1.8) ** 2 for one in grid)
            for i, axis in enumerate(axes):
                group.create_dataset(f"axis_{i}", data=axis)
            group.create_dataset("fitted", data=minimum + well)
            if exact:
                group.create_dataset("exact", data=minimum + 1.1 * well)
        for name, shift in (("fitted", 0.0), ("exact", 2.0))[: 2 if exact else 1]:
            order, energy = [0, 0, 1], [0.0, 93.0 - shift, 4100.0 + shift]
            frequencies = [[600.0, 1700.0], [610.0, 1690.0], [-540.0, 1650.0 + shift]]
            file.create_dataset(f"stationary/{name}/order", data=order)
            file.create_dataset(f"stationary/{name}/relative", data=energy)
            file.create_dataset(f"stationary/{name}/frequencies", data=frequencies)
        if exact:
            file.create_dataset("stationary/pairs", data=[[0, 0], [2, 2]])

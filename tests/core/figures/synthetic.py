"""An experiment with made-up results: the layouts of the engine, numbers from formulas."""

import json
from dataclasses import replace

import numpy as np
import torch
from ase.build import bulk
from ase.calculators.emt import EMT

from fake_packages import ATOMS, find_points, install, write_model_source
from pipeline_atoms.config.dynamics import MolecularDynamics
from pipeline_atoms.dynamics.dynamics import remove_restarts, run_dynamics
from pipeline_core.artifacts import store
from pipeline_core.artifacts.samples import SampleWriter
from pipeline_core.batch import collate
from pipeline_core.evaluation.breakdown import Breakdown
from pipeline_core.evaluation.predict import Window
from pipeline_core.fields import FIELDS, SPLITS
from pipeline_core.project.project import Project
from pipeline_core.report import numbers, story
from pipeline_core.report.summary import collect_findings
from pipeline_core.stages import figures
from pipeline_core.stages.builtin import load_registry
from pipeline_core.task import Quantity
from pipeline_core.units import GPA

EXPERIMENT = """\
description: Copper and gold, made up
plugin: toy
dataset: alloy
seed: 7
variants:
  wide: {model: {width: 16}}
"""
FACTS = 'citation="Nobody, J. Irrepr. Res. 1, 1 (1955)", predicts=("energy", "forces", "stress")'
MIXED = f"{EXPERIMENT}  rival: {{plugin: other, seed: 8}}\n"
"""The same with a variant of another plugin and seed."""
ELEMENTS = {"Cu": 29, "Au": 79}
GROUPS = ("cubic-0600K", "cubic-2000K", "tetragonal-0600K", "tetragonal-2000K")
N_ATOMS = 12


def describe(folder):
    """Write the files that describe the experiment."""
    for name, summary in (("toy", "A test model"), ("other", "Its rival")):
        source = write_model_source(name).replace('citation="none"', FACTS)
        source = source.replace("A test model", summary)
        module = install(folder / "packages", name, source, ending="of_figures")
        module.rename(folder / module.name)  # tests of all else do not find the package
    workflows = folder / "workflows"
    (workflows / "datasets").mkdir(parents=True)
    (workflows / "datasets" / "alloy.yaml").write_text(
        "description: Frames of an alloy\nsources: [{path: a.xyz}]\n"
    )
    (workflows / "experiments" / "toy").mkdir(parents=True)
    (workflows / "experiments" / "toy" / "alloy.yaml").write_text(EXPERIMENT)


def load(folder, *more_plugins):
    """Return the experiment as it is in a folder that is on the path."""
    points = find_points(folder / "packages")
    registry = load_registry([ATOMS, *points], builtin=[("engine.figures", figures), *more_plugins])
    return Project(folder / "workflows", folder / "results", registry).load_experiment("toy/alloy")


def write_experiment(folder, n_samples=120):
    """Write the experiment and the results of all its runs; return it."""
    describe(folder)
    result = load(folder)
    write_import(result.runs["base"].dataset, n_samples)
    for number, run in enumerate(result.runs.values()):
        write_run(run, number, n_samples)
    return result


def add_rival(folder):
    """Add a variant of another plugin to the experiment of a folder, with results; load it."""
    (folder / "workflows" / "experiments" / "toy" / "alloy.yaml").write_text(MIXED)
    result = load(folder)
    write_run(result.runs["rival"], 2, 120)
    return result


def write_run(run, number, n_samples):
    """Write the results of a run, which is the better the larger its number."""
    rng = np.random.default_rng(number)
    run.folder.mkdir(parents=True)
    write_evaluation(run, rng, n_samples, noise=0.1 / (1 + number))
    write_history(run, rng, epochs=40, speed=1 + number)
    write_partition(run)
    write_dynamics(run, timestep=4.0 if number else 2.0)
    write_records(run)


def write_import(dataset, n_samples):
    """Write what the data stage says of the dataset."""
    held_out = {"val": n_samples * 2 // 5, "test": n_samples * 3 // 5}
    groups = {
        g: {"train": 2 * n_samples, **{s: k // 2 if s == split else 0 for s, k in held_out.items()}}
        for split, g in zip(("val", "val", "test", "test"), GROUPS, strict=True)
    }
    content = {
        "dataset": "alloy",
        "samples": 8 * n_samples + n_samples,
        "atoms": 9 * n_samples * N_ATOMS,
        "warnings": ["Cu, Au occur only in fixed proportions"],
        "splits": {"train": 8 * n_samples, **held_out},
        "groups": {"count": len(groups), "largest": groups},
        "reference_energies": {"n_samples": dict.fromkeys(ELEMENTS, 8 * n_samples)},
    }
    store.write_json(dataset.report, content)


def write_evaluation(run, rng, n_samples, noise):
    """Write predictions and their errors for validation and test."""
    samples = [_sample(rng, noise, i, n_samples) for i in range(n_samples)]
    labels = {n: FIELDS[n] for n in ("energy", "forces", "stress")}
    fields = [
        FIELDS["split"],
        FIELDS["group"],
        FIELDS["atomic_numbers"],
        *(replace(f, name=f"{n}_{r}") for n, f in labels.items() for r in ("label", "predicted")),
    ]
    with SampleWriter(
        run.predictions, "predictions", run.make_provenance("evaluate"), fields
    ) as writer:
        for sample in samples:
            writer.add(sample)
    splits = {s: [x for x in samples if x["split"] == SPLITS.index(s)] for s in ("val", "test")}
    content = {
        "experiment": run.experiment,
        "variant": run.variant,
        "plugin": run.model_info.name,
        "n_parameters": 411_200,
        "provenance": run.make_provenance("evaluate"),
        "splits": {split: _report(members) for split, members in splits.items()},
    }
    store.write_json(run.metrics, content)


def _sample(rng, noise, index, n_samples):
    hot, test = index % 2, index < 0.6 * n_samples
    forces = rng.normal(size=(N_ATOMS, 3)) * (1.0 + hot) * rng.gamma(2, 0.5, (N_ATOMS, 1))
    energy = N_ATOMS * (-738.6 + 0.2 * hot + 0.05 * rng.normal())
    stress = rng.normal(size=(3, 3)) * 5 * GPA - np.eye(3) * 10 * hot * GPA
    stress = (stress + stress.T) / 2
    error = rng.normal(size=(N_ATOMS, 3)) * noise * (0.2 + np.linalg.norm(forces, axis=1))[:, None]
    return {
        "split": np.asarray(SPLITS.index("test" if test else "val"), dtype="i1"),
        "group": np.asarray(GROUPS[2 * test + hot], dtype=object),
        "atomic_numbers": np.resize([29, 79, 29], N_ATOMS).astype("i4"),
        "energy_label": np.asarray(energy),
        "energy_predicted": np.asarray(energy + N_ATOMS * noise * 0.2 * rng.normal()),
        "forces_label": forces,
        "forces_predicted": forces + error,
        "stress_label": stress,
        "stress_predicted": stress + rng.normal(size=(3, 3)) * noise * 10 * GPA,
    }


def _report(samples):
    """Break errors down as the stage does."""
    labels = ("energy", "forces", "stress")
    rows = [{n: s[f"{n}_label"] for n in labels} for s in samples]
    numbers = [{"atomic_numbers": s["atomic_numbers"]} for s in samples]
    batch = collate([a | b for a, b in zip(numbers, rows, strict=True)], torch.float64)
    predicted = [{n: s[f"{n}_predicted"] for n in labels} for s in samples]
    outputs = collate(predicted, torch.float64)
    quantities = [Quantity(name, per_atom=name == "energy") for name in labels]
    breakdown = Breakdown(quantities, np.array([s["group"].item() for s in samples], object))
    breakdown.add(Window(0, batch, outputs))
    return breakdown.report()


def write_history(run, rng, epochs, speed):
    """Write one line an epoch: errors that fall as 1 / (1 + epoch)."""
    lines = []
    for epoch in range(1, epochs + 1):
        fall = 1 / (1 + speed * epoch / 4) + 0.02
        noisy = fall * np.exp(0.1 * rng.normal(size=4))
        record = {
            "epoch": epoch,
            "lr": 1e-3 * 0.5 * (1 + np.cos(np.pi * (epoch - 1) / epochs)) + 1e-5,
            "train": {"loss": fall, "energy": fall / 3, "forces": fall / 2},
            "grad_norm": 3 * fall,
            "balance": 0.97,
            "samples_per_s": 60.0,
            "seconds": 2.0 + speed,
            "val": {"loss": 1.3 * noisy[0], "energy": noisy[1] / 3, "forces": noisy[2] / 2},
            "mae": {"energy": 0.1 * noisy[1], "forces": 0.8 * noisy[2], "stress": 0.1 * noisy[3]},
        }
        lines.append(json.dumps(record))
    run.history.write_text("\n".join(lines) + "\n")


def write_partition(run):
    """Write a forecast of balance, where no other variant owns it."""
    if run.partition.exists():
        return
    losses = {
        "random": 0.12,
        "next_fit": 0.06,
        "pairing": 0.04,
        "mace_bins": 0.02,
        "balanced": 0.01,
        "balanced_by_cost": 0.001,
    }
    balance = []
    for n in (1, 2, 4, 8, 16, 32, 64):
        record = {"ranks": n}
        for way, loss in losses.items():
            facts = {"variation": loss, "padding": 2 * loss, "deferred": 0}
            record[way] = {"efficiency": n**-loss, **facts}
        balance.append(record)
    with store.create(run.partition, "partition", run.make_provenance("partition")) as file:
        file.attrs["balance"] = json.dumps(balance)


def write_dynamics(run, timestep):
    """Run molecular dynamics with the effective-medium potential that ships with ASE."""
    atoms = bulk("Cu", "fcc", 3.9, cubic=True) * (2, 2, 2)
    atoms.numbers[::2] = 79
    common = {"temperature": 300.0, "steps": 100, "every": 2, "timestep": timestep}
    with store.create(run.inference, "inference", run.make_provenance("infer")) as file:
        for name, ensemble in (("nve", "nve"), ("heat_bath", "nvt_langevin")):
            options = MolecularDynamics(name=name, ensemble=ensemble, **common)
            trajectory = run.folder / "md" / f"{name}.extxyz"
            run_dynamics(atoms, EMT(), options, 0, trajectory, file.create_group(name))
            remove_restarts(trajectory)


def write_records(run):
    """Write what the stages say of themselves, the training twice: the later one counts."""
    seconds = {"graph": 4.0, "partition": 0.7, "train": 1.0, "evaluate": 6.3, "infer": 22.0}
    common = {"started": "2026-01-01T12:00:00+00:00", "cpu": "A processor", "cores": 2, "gpu": None}
    common |= {"peak_memory": 2**30, "peak_gpu_memory": 0, "summary": {}}
    text = ""
    for stage, duration in [*seconds.items(), ("train", 754.0)]:
        ranks = 2 if stage == "train" else 1
        text += json.dumps({"stage": stage, "seconds": duration, "ranks": ranks, **common}) + "\n"
    (run.folder / "records.jsonl").write_text(text)


def list_numbers(experiment):
    """Return the key numbers of the report."""
    return numbers.collect_numbers(experiment, collect_findings(experiment))


def list_warnings(experiment):
    """Return the warnings of the report."""
    return story.list_warnings(experiment, collect_findings(experiment))

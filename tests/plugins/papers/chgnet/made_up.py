"""Made-up results of the experiment chgnet/mptrj: the engine's layouts, simple numbers."""

import json
from dataclasses import replace

import numpy as np

from pipeline_atoms.config.inference import InferOptions
from pipeline_core.artifacts import store
from pipeline_core.artifacts.samples import SampleWriter
from pipeline_core.config.profile import ProfileOptions
from pipeline_core.config.sections import TrainOptions
from pipeline_core.fields import FIELDS
from plugins.drawn import load_shipped

SECONDS = {"serial": 40e-3, "batched": 20e-3, "base": 10e-3, "heads": 2.5e-3}
"""Time of a training step an atom, s."""
BYTES = {"serial": 12e6, "batched": 12e6, "base": 3e6, "heads": 1e6}
"""Memory of a training step an atom."""
ATOMS = (2, 24, 192)
NAMES = ("energy_per_atom", "forces", "stress", "magmoms")
SPREAD = {"rmse": 0.1, "r2": 0.9, "label_mean_absolute": 1.0}


def write(folder):
    """Write the results of all variants of chgnet/mptrj and return it."""
    experiment = load_shipped(folder, "chgnet/mptrj")
    for run in experiment.runs.values():
        run.folder.mkdir(parents=True, exist_ok=True)
        run.metrics.write_text(json.dumps(metrics(run)))
        write_partition(run)
        if run.get_section("profile", ProfileOptions).has_work:
            run.profile.write_text(json.dumps(profile(run)))
        write_inference(run)
    return experiment


def metrics(run):
    """Return errors: 1, 2, 3 and 4 thousandths, twice as large without the first part."""
    factor = 1e-3 if run.variant == "base" else 2e-3
    quantities = {
        name: {"unit": "eV", "count": 9, "mae": number * factor, **SPREAD}
        for number, name in enumerate(NAMES, 1)
        if name in {"energy_per_atom"} | run.sections["train"].loss.keys()
    }
    split = {"n_samples": 9, "quantities": quantities}
    splits = dict.fromkeys(run.sections["evaluate"].splits, split)
    return {"n_parameters": 379_279, "splits": splits}


def write_partition(run):
    """Write sizes and a forecast of balance, where no other variant owns them."""
    if run.partition.exists():
        return
    rng = np.random.default_rng(3)
    atoms = rng.integers(2, 193, 100)
    sizes = {"atom": atoms, "edge": 2 * 31 * atoms, "angle": 54 * atoms}
    spread = {"random": 0.2, "pairing": 0.06, "balanced": 0.0}
    ways = {
        way: {
            "variation": 0.3,
            "variation_in_steps": value,
            "loads": [[1000 * (1 - value), 1000.0, 1000.0, 1000 * (1 + value)]] * 6,
        }
        for way, value in spread.items()
    }
    with store.create(run.partition, "partition", {}) as file:
        file.attrs["balance"] = json.dumps(
            [{"ranks": n, **(ways if n == 4 else {})} for n in (1, 4)]
        )
        for split, rows in (("train", slice(20, None)), ("val", slice(20)), ("test", slice(0))):
            for kind, counts in sizes.items():
                file.create_dataset(f"{split}/sizes/{kind}", data=counts[rows])


def profile(run):
    """Return a profile: seconds and bytes are in proportion to the atoms."""
    options = run.get_section("profile", ProfileOptions)
    steps = [
        {
            "class": number,
            "class_atoms": atoms,
            "samples": samples,
            "atoms": atoms * samples,
            "seconds": SECONDS[run.variant] * atoms * samples,
            "memory": BYTES[run.variant] * atoms * samples,
        }
        for number, atoms in enumerate(ATOMS if options.classes == 3 else ATOMS[1:2])
        for samples in options.samples
    ]
    return {"steps": steps, "projection": projection(run, options)}


def projection(run, options):
    """Return epochs of 30 atoms a sample: each doubling of the ranks loses a tenth."""
    wanted = options.projection
    if wanted is None:
        return []
    points = [("strong", n, wanted.samples) for n in wanted.strong]
    points += [("weak", n, samples) for n, samples in wanted.weak]
    return [
        {
            "mode": mode,
            "strategy": strategy,
            "ranks": ranks,
            "samples": samples,
            "seconds": 30 * samples * SECONDS[run.variant] / ranks / 0.9 ** np.log2(ranks),
        }
        for strategy in wanted.strategies
        for mode, ranks, samples in points
    ]


def write_inference(run):
    """Write simulations of which a step takes as long as one of training an atom, or twice that."""
    with store.create(run.inference, "inference", {}) as file:
        for number, md in enumerate(run.get_section("infer", InferOptions).md, 1):
            group = file.create_group(md.name)
            for key in ("time", "conserved", "temperature"):
                group[key] = np.zeros(2)
            group["atomic_numbers"] = np.ones(8, np.int32)
            group.attrs["seconds_per_step"] = number * SECONDS[run.variant]


def write_trained(folder, name="chgnet/convergence"):
    """Write histories, errors and predictions of an experiment whose variants are trained.

    Errors fall as one over the epoch, those of the reference half as fast; an epoch takes 10 s.
    """
    experiment = load_shipped(folder, name)
    for number, run in enumerate(experiment.runs.values(), 1):
        run.folder.mkdir(parents=True, exist_ok=True)
        epochs = run.get_section("train", TrainOptions).epochs
        records = [history_record(run, epoch) for epoch in range(1, epochs + 1)]
        run.history.write_text("".join(json.dumps(record) + "\n" for record in records))
        run.metrics.write_text(json.dumps(metrics(run)))
        write_predictions(run, 0.1 * number)
    return experiment


def history_record(run, epoch):
    """Return the line of an epoch."""
    slowness = 2 if run.variant == "reference" else 1
    names = list(run.get_section("train", TrainOptions).loss)
    mae = {name: slowness * (number + 1) / epoch for number, name in enumerate(names)}
    return {"epoch": epoch, "lr": 1e-3, "train": {"loss": 1.0}, "mae": mae, "seconds": 10.0}


def write_predictions(run, noise):
    """Write labels and predictions of a test split."""
    rng = np.random.default_rng(5)
    labels = {name: FIELDS[name] for name in ("energy", "forces")}
    fields = [FIELDS["split"], FIELDS["group"], FIELDS["atomic_numbers"]]
    for name, field in labels.items():
        fields += [replace(field, name=f"{name}_{role}") for role in ("label", "predicted")]
    with SampleWriter(run.predictions, "predictions", {}, fields) as writer:
        for _ in range(120):
            values = {"energy": rng.normal(size=()), "forces": rng.normal(size=(4, 3))}
            sample = {
                f"{name}_{role}": values[name] + wrong * rng.normal(size=values[name].shape)
                for name in values
                for role, wrong in (("label", 0.0), ("predicted", noise))
            }
            fixed = {"split": np.asarray(2, "i1"), "group": np.asarray("", object)}
            writer.add({**fixed, "atomic_numbers": np.full(4, 26, "i4"), **sample})

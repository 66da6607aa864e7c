"""Made-up results of the experiment chgnet/mptrj: the engine's layouts, simple numbers."""

import json
from pathlib import Path

import numpy as np

from pipeline_core import store
from pipeline_core.builtin import load_registry
from pipeline_core.config.sections import InferOptions, ProfileOptions
from pipeline_core.project import Project

ROOT = Path(__file__).parents[3]
SECONDS = {"serial": 40e-3, "batched": 20e-3, "base": 10e-3, "heads": 2.5e-3}
"""Time of a training step an atom, s."""
BYTES = {"serial": 12e6, "batched": 12e6, "base": 3e6, "heads": 1e6}
"""Memory of a training step an atom."""
ATOMS = (2, 24, 192)


def load(folder, name="chgnet/mptrj"):
    """Return an experiment that ships with the plugin, with results in a folder."""
    return Project(ROOT / "workflows", folder, load_registry()).load_experiment(name)


def write(folder):
    """Write the results of all variants of chgnet/mptrj and return it."""
    experiment = load(folder)
    for run in experiment.runs.values():
        run.folder.mkdir(parents=True, exist_ok=True)
        run.metrics.write_text(json.dumps(metrics(run)))
        write_partition(run)
        if run.get_section("profile", ProfileOptions).has_work:
            run.profile.write_text(json.dumps(profile(run)))
        write_inference(run)
    return experiment


def metrics(run):
    """Return errors: 1, 2 and 3 thousandths, twice as large without the first part."""
    factor = 1e-3 if run.variant == "base" else 2e-3
    quantities = {
        name: {"unit": "eV", "count": 9, "mae": number * factor, "rmse": 0.1, "r2": 0.9}
        for number, name in enumerate(("energy_per_atom", "forces", "stress"), 1)
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

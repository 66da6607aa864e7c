"""Made-up results of the experiment mace/scaling: the engine's layouts, simple numbers."""

import json

import numpy as np

from pipeline_core.artifacts import store
from pipeline_core.config.profile import ProfileOptions
from plugins.drawn import load_shipped

ATOMS = np.repeat([12, 24, 48, 96, 192], 32)
SLOW = {"fused": 1.0, "reference": 4.0}
"""Time of an epoch with these kernels, s."""
WAITING = {"mace_bins": 0.05, "balanced": 0.02, "random": 0.25}
"""Part of the time by which the slowest of several ranks is slower than the mean."""
RATE = 5e-4
"""Seconds an atom of a step with fused kernels."""


def write(folder):
    """Write the results of all variants of mace/scaling and return it."""
    experiment = load_shipped(folder, "mace/scaling")
    for run in experiment.runs.values():
        run.folder.mkdir(parents=True, exist_ok=True)
        ranks = 2 if run.variant.endswith("2ranks") else 1
        lines = [json.dumps(record) + "\n" for record in make_history(run, ranks)]
        run.history.write_text("".join(lines))
        records = [
            {"stage": stage, "seconds": 9.0, "cpu": "A processor", "cores": 2, "ranks": n}
            for stage, n in (("train", ranks), ("infer", 1), ("profile", 1))
        ]
        text = "".join(json.dumps(record) + "\n" for record in records)
        (run.folder / "records.jsonl").write_text(text)
        write_partition(run)
        if run.get_section("profile", ProfileOptions).samples:
            run.profile.write_text(json.dumps(profile(run)))
    return experiment


def name_options(run):
    """Return kernels and strategy of a run."""
    return run.options.kernels, run.sections["partition"].strategy


def predict_epoch(run, ranks):
    """Return the time of an epoch: ranks divide the work, the slowest one ends it."""
    kernels, strategy = name_options(run)
    waiting = WAITING[strategy] if ranks > 1 else 0.0
    return SLOW[kernels] * (1 + waiting) / ranks


def make_history(run, ranks):
    """Yield the epochs: the first one slow, all losses 1 / epoch but for what tells runs apart.

    That is the seed, rounding with fused kernels, and a hundredth an epoch with algorithm 1. What
    only uses a trained model has no epochs.
    """
    kernels, strategy = name_options(run)
    seconds = predict_epoch(run, ranks)
    for epoch in range(1, 6) if run.sections["train"].epochs else ():
        apart = 1e-2 if strategy == "mace_bins" else 1e-6 if kernels == "fused" else 0
        loss = 1 / epoch * (1 + 0.03 * run.seed) * (1 + apart * epoch)
        record = {"epoch": epoch, "seconds": seconds * (3 if epoch == 1 else 1)}
        record["train"] = {"loss": loss}
        if ranks > 1:
            compute = SLOW[kernels] / ranks
            slowest = compute * (1 + WAITING[strategy])
            work = [slowest, 2 * compute - slowest]
            record["profile"] = {
                "compute": work,
                "communication": [0.02, 0.02],
                "idle": [0.0, work[0] - work[1]],
            }
        yield record


def write_partition(run):
    """Write sizes and a forecast of balance, where no other variant owns them."""
    if run.partition.exists():
        return
    rng = np.random.default_rng(5)
    edges = np.rint(ATOMS * rng.normal(32, 2, len(ATOMS))).astype(np.int64)
    chosen = rng.permutation(ATOMS)[:128].astype(float)
    steps = {
        "random": np.split(chosen, 8),
        "mace_bins": share_costs(chosen[:96]),
        "balanced": share_costs(chosen),
    }
    ways = {
        way: {"efficiency": 0.9, "first_step": [list(map(float, costs)) for costs in ranks]}
        for way, ranks in steps.items()
    }
    with store.create(run.partition, "partition", {}) as file:
        balance = [{"ranks": n, **(ways if n == 8 else {})} for n in (1, 8, 16)]
        file.attrs["balance"] = json.dumps(balance)
        for split, rows in (("train", slice(20, None)), ("val", slice(20)), ("test", slice(0))):
            file.create_dataset(f"{split}/sizes/atom", data=ATOMS[rows])
            file.create_dataset(f"{split}/sizes/edge", data=edges[rows])


def share_costs(costs):
    """Return costs given one by one, from the largest, to the one of 8 ranks that has least."""
    ranks = [[] for _ in range(8)]
    for cost in sorted(costs, reverse=True):
        min(ranks, key=sum).append(cost)
    return ranks


def profile(run):
    """Return a profile: seconds and bytes are straight lines in the atoms."""
    rate = RATE * SLOW[name_options(run)[0]]
    options = run.get_section("profile", ProfileOptions)
    steps = [
        {
            "class": number,
            "class_atoms": atoms,
            "samples": n,
            "atoms": n * atoms,
            "edges": 32 * n * atoms,
            "angles": 0,
            "seconds": 0.01 + rate * n * atoms,
            "seconds_all": [0.01 + rate * n * atoms],
            "memory": 2**27 + 400_000 * n * atoms,
        }
        for number, atoms in enumerate((12, 48, 192))
        for n in (1, 2, 4, 8, 16)
    ]
    return {
        "device": "cpu",
        "threads": 2,
        "precision": "32-true",
        "gradient_bytes": 200_000,
        "steps": steps,
        "coefficients": {"all": 486, "nonzero": 102, "share": 102 / 486},
        "growth": [{"class_atoms": n, "samples": 2} for n in (12, 48, 192)],
        "saturation": {"atoms": 192, "seconds_per_atom": rate},
        "capacity": {
            "atoms": 3072,
            "cost": 9000.0,
            "bytes_per_atom": 400_000,
            "limited_by": "the largest batch tried",
            "memory_limit": 4e9,
        },
        "cost_model": {"constant": 0.01, "atom": rate, "edge": 0.0, "relative_error": 0.02},
        **(make_projections(run, rate) if options.projection else {}),
    }


def make_projections(run, rate):
    """Return what a profile with projections has more."""
    return {
        "network": {"alpha": 1e-4, "bandwidth": 1e9, "source": "given"},
        "projection": make_projection(rate),
        "set": make_set(run),
    }


def make_set(run):
    """Return the composition of the drawn set, by the options of the experiment."""
    composition = {}
    for one in run.get_section("profile", ProfileOptions).projection.sizes:
        known = composition.setdefault(one.name, {"samples": 0, "least": 10**6, "most": 0})
        known["samples"] += one.samples
        known["least"] = min(known["least"], one.atoms[0])
        known["most"] = max(known["most"], one.atoms[1])
        known["share"] = known["samples"] / 2_650_823
    return composition


def make_projection(rate):
    """Return projected epochs of 100 atoms a sample, whose waiting grows with the ranks."""
    points = [("strong", n, 2_650_823) for n in (16, 32, 64, 128, 256, 512, 740)]
    points += [("weak", 16, 600_000), ("weak", 32, 1_200_000), ("weak", 64, 2_650_823)]
    return [
        {
            "mode": mode,
            "strategy": strategy,
            "ranks": ranks,
            "samples": samples,
            "steps": 1000,
            "plan_seconds": 0.5,
            "least_samples": 27,
            "most_samples": 28,
            "most_atoms": 3072.0,
            "seconds": compute * (1.01 + waiting),
            "compute": compute,
            "communication": 0.01 * compute,
            "idle": waiting * compute,
        }
        for strategy in WAITING
        for mode, ranks, samples in points
        for compute in [100 * samples * rate / ranks]
        for waiting in [WAITING[strategy] * np.log2(ranks) / 4]
    ]

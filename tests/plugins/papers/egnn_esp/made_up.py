"""Made-up results of the experiments that ship with the plugin: its layouts, simple numbers."""

import json

import numpy as np

from pipeline_core.artifacts import store
from pipeline_kernels.partition import MESSAGE
from pipeline_papers.egnn_esp.studies import summarize
from pipeline_papers.egnn_esp.studies.options import ESPStudyOptions, Packing, Partitions
from pipeline_papers.egnn_esp.studies.partitions import study_partitions
from pipeline_papers.egnn_esp.studies.throughput import find_saturation
from plugins.drawn import load_shipped

EDGE = 1e-4
"""Seconds that a rank takes for an edge."""
ALPHA, BANDWIDTH = 1e-3, 1e9
WORSE = {"low_nn": 1.0, "metis": 1.2, "grid": 0.9, "auto": 0.8}
"""Neighbours of a method over those of Low-NN."""


def write(folder):
    """Write the studies of egnn_esp/scaling and return it."""
    experiment = load_shipped(folder, "egnn_esp/scaling")
    (run,) = experiment.runs.values()
    options = run.get_section("profile", ESPStudyOptions)
    content = {
        "throughput": make_throughput(options),
        "partitions": make_partitions(options),
        "domains": make_domains(),
        "scaling": make_scaling(options),
    }
    store.write_json(run.profile, content)
    record(run, "profile", summarize(content))
    return experiment


def write_hfo2(folder):
    """Write what the comparison with the paper reads of egnn_esp/hfo2 and return it."""
    experiment = load_shipped(folder, "egnn_esp/hfo2")
    (run,) = experiment.runs.values()
    record(run, "infer", {"tiled": {"atoms": 768, "edges": 300_000, "rows": 4608}})
    record(run, "train", {"epochs": 32}, ranks=2)
    metrics = {
        "splits": {"test": {"quantities": {"hamiltonian": {"mae": 0.0015}}}},
        "training": {"structures": 65, "atoms": 12, "steps": 2080},
    }
    run.metrics.write_text(json.dumps(metrics))
    return experiment


def record(run, stage, summary, ranks=1):
    run.folder.mkdir(parents=True, exist_ok=True)
    facts = {"stage": stage, "seconds": 9.0, "cpu": "A processor", "cores": 2, "ranks": ranks}
    with (run.folder / "records.jsonl").open("a") as file:
        file.write(json.dumps({**facts, "summary": summary}) + "\n")


def make_throughput(options):
    """Return curves that reach a rate of 1e6 / E with 100 messages of delay."""
    wanted, curves = options.throughput, []
    for channels in wanted.channels:
        rates = [1e6 / channels * n / (n + 100) for n in wanted.messages]
        curves.append(
            {
                "channels": channels,
                "message_bytes": 300 * channels,
                "messages": wanted.messages,
                "seconds": [n / rate for n, rate in zip(wanted.messages, rates, strict=True)],
                "per_second": rates,
                "saturated": find_saturation(wanted.messages, rates),
            }
        )
    return {"device": "cpu", "threads": 2, "lmax": 4, "curves": curves}


def make_partitions(options):
    """Return figures that grow with the square root of the number of parts."""
    wanted = options.partitions
    records = [
        {
            "cutoff": cutoff,
            "parts": parts,
            "method": method,
            "seconds": 0.01 * parts * WORSE[method],
            "neighbours_mean": WORSE[method] * parts**0.5,
            "neighbours_max": 2 * WORSE[method] * parts**0.5,
            "received_mean": 1e4 * WORSE[method] / parts**0.5,
            "received_max": 2e4 * WORSE[method] / parts**0.5,
            "total_sent": 1e4 * parts**0.5,
            "edge_imbalance": WORSE[method] + 0.2,
            "node_imbalance": WORSE[method] + 0.3,
            "cut_edges": 1000 * parts,
        }
        for cutoff in wanted.cutoffs
        for parts in wanted.parts
        for method in wanted.methods
    ]
    edges = {f"{cutoff:g}": int(24_000 * 600 * (cutoff / 12) ** 3) for cutoff in wanted.cutoffs}
    return {"atoms": 24_000, "edges": edges, "records": records}


def make_scaling(options):
    """Return passes of two processors, and projections whose messages take 1 ms a neighbour."""
    wanted = options.scaling
    measured = []
    for n in wanted.ranks:
        share = max(1, n / 2)
        for mode, boxes in (("weak", n), ("strong", max(wanted.ranks))):
            seconds = share * EDGE * 15_000 * boxes / n
            measured.append(
                {
                    "mode": mode,
                    "ranks": n,
                    "atoms": 200 * boxes,
                    "edges": 15_000 * boxes,
                    "seconds": 1.1 * seconds,
                    "of_ranks": [1.1 * seconds] * n,
                    "communication": [0.01] * n,
                    "modelled": seconds,
                }
            )
    return {
        "device": "cpu",
        "processors": 2,
        "layers": 3,
        "channels": 16,
        "row_bytes": 1600,
        "block_bytes": 400,
        "cutoff": wanted.cutoff,
        "cost_model": {"constant": 0.0, "atom": 0.0, "edge": EDGE, "relative_error": 0.01},
        "link": {
            "latency": ALPHA,
            "bandwidth": BANDWIDTH,
            "source": "measured between 2 processes of this machine",
            "bytes": [1600, 160_000, 16_000_000],
            "seconds": [ALPHA + n / BANDWIDTH for n in (1600, 160_000, 16_000_000)],
        },
        "measured": measured,
        "projected": [*make_strong(options), *make_weak(wanted.weak)],
    }


def make_strong(options):
    wanted = options.partitions
    return [
        make_projected("strong", method, cutoff, n, 24_000, WORSE[method] * n**0.5)
        for cutoff in wanted.cutoffs
        for n in wanted.parts
        for method in wanted.methods
    ]


def make_weak(options):
    result = []
    for mode, neighbours in (("line", 2), ("cube", 26)):
        for tiles in getattr(options, mode):
            copies = int(np.prod(tiles))
            counted = 2 if copies == 1 else neighbours
            sizes = options.ranks * copies, 3000 * copies
            result.append(make_projected(mode, "low_nn", options.cutoff, *sizes, counted))
    return result


def make_projected(mode, method, cutoff, ranks, atoms, neighbours):
    compute, latency = EDGE * 600 * atoms / ranks, 4 * ALPHA * neighbours
    return {
        "mode": mode,
        "method": method,
        "cutoff": cutoff,
        "ranks": ranks,
        "atoms": atoms,
        "edges": 600 * atoms,
        "neighbours": neighbours,
        "received": 100.0 * neighbours,
        "bytes_received": 1e5 * neighbours,
        "seconds": compute + 2 * latency,
        "fastest": compute,
        "compute": compute,
        "latency": latency,
        "transfer": 0.5 * latency,
        "idle": 0.5 * latency,
    }


def make_domains():
    """Return real partitions of a small packing between 16 parts."""
    packing = Packing(atoms=250, box=(26.5, 14.5, 14.5))
    options = Partitions(packing=packing, cutoffs=[6.0], parts=[16], drawn=16)
    return study_partitions(options, (8, 72), MESSAGE, 0)[1]

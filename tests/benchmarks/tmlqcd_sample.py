"""The first sample of tmLQCD, two flavours of quarks on 4^4: from dataset file to pion correlator.

    python tests/benchmarks/tmlqcd_sample.py [--full] [--threads 2]

The dataset `tmlqcd_sample` of `workflows` goes through the data stage of the plugin: Hybrid Monte
Carlo with mass preconditioning. Its plaquette, and the correlator C(t) of the charged pseudoscalar
from a point source on each configuration, are compared with what tmLQCD gives in its files
sample-hmc0.input and sample-hmc1.input. Without `--full` there are half as many configurations
as the dataset file says. Errors are standard errors with autocorrelation.

The last line printed is one JSON object; `ours_s` and `peer_s` are seconds of one trajectory of two
chains, by the kernels and by plain PyTorch, and `sigmas` says by how many combined standard errors
ours is above tmLQCD's. The time of all configurations and correlators is `seconds`.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import yaml
from numpy.typing import NDArray

from harness.command import make_parser, read_arguments
from harness.report import print_report, read_versions
from harness.timing import time_call
from pipeline_core.config.yaml_files import read_yaml, validate_content
from pipeline_core.project.run import DatasetRun
from pipeline_core.stages.builtin import load_registry
from pipeline_gauge_flows.data.datasets import EnsembleDataset
from pipeline_gauge_flows.data.ensembles.chains import make_time_scales
from pipeline_gauge_flows.data.ensembles.hmc import HybridMonteCarlo
from pipeline_gauge_flows.data.ensembles.statistics import Estimate, estimate
from pipeline_gauge_flows.data.ensembles.storage import Ensemble
from pipeline_gauge_flows.data.fermions.correlators import correlate_pion
from pipeline_gauge_flows.data.fermions.sources import Sources
from pipeline_gauge_flows.data.lattice import Lattice
from pipeline_gauge_flows.data.stage import make_data
from pipeline_kernels import native

DATASET = Path(__file__).parents[2] / "workflows/datasets/tmlqcd_sample.yaml"
PLAQUETTE = 0.62450, 0.00005
CORRELATOR = (1.638, 0.005), (0.2020, 0.0006), (0.0424, 0.0002)
HALF = {"n_configurations": 2048}
SMALL = {"n_configurations": 32, "chains": 4, "thermalisation": 2, "separation": 1}
TIMED = 2  # chains whose trajectories are timed: the peer takes minutes for all
BATCH = 32  # configurations whose propagators are computed at once
Floats = NDArray[np.float64]


def make_run(folder: Path, changes: dict[str, int]) -> DatasetRun:
    """Return the dataset with other numbers of configurations."""
    content = yaml.safe_load(DATASET.read_text(encoding="utf-8"))
    content["generate"] |= changes
    path = folder / DATASET.name
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    options = validate_content(EnsembleDataset, read_yaml(path), path)
    return DatasetRun(DATASET.stem, path, options, folder, load_registry())


def make_point_source(lattice: Lattice, site: int) -> Sources:
    """Return unit vectors of all spins and colours at a site, for all configurations."""
    d, n = lattice.dimension, lattice.n_colours
    spinors = torch.zeros(1, d * n, lattice.volume, d * n, dtype=torch.complex128)
    spinors[0, :, site] = torch.eye(d * n)
    times = lattice.coordinates[site, 0].expand(1, d * n)
    return Sources(spinors.reshape(1, -1, lattice.volume, d, n), times, 1.0)


def measure_correlators(run: DatasetRun) -> list[Floats]:
    """Return C(t) of the configurations of each chain, (n, T) each."""
    assert isinstance(run.options, EnsembleDataset)
    quarks, rows = run.options.action.fermions, []
    assert quarks is not None
    with Ensemble(run.data) as ensemble:
        numbers = np.arange(len(ensemble))
        for batch in np.split(numbers, range(BATCH, len(numbers), BATCH)):
            # A source at another site for each batch.
            source = int(batch[0]) // BATCH * 37 % ensemble.lattice.volume
            links = ensemble.read_links(batch.tolist())
            point = make_point_source(ensemble.lattice, source)
            rows.append(correlate_pion(links, ensemble.lattice, quarks, point).numpy())
        values = np.concatenate(rows)
        return [values[ensemble.chain == chain] for chain in np.unique(ensemble.chain)]


def estimate_ratio(chains: list[Floats], t: int) -> Estimate:
    """Return C(t) / C(0), both directions of time together."""
    columns = [((one[:, t] + one[:, -t]) / 2, one[:, 0]) for one in chains]
    means = [np.concatenate(side).mean() for side in zip(*columns, strict=True)]
    ratio = means[0] / means[1]
    # Linear in the deviations of both from their means.
    return estimate([ratio + (x - ratio * y) / means[1] for x, y in columns])


def compare(ours: Estimate, peer: tuple[float, float]) -> float:
    """Return by how many combined standard errors ours is above a published value."""
    return float((ours.mean - peer[0]) / np.hypot(ours.error, peer[1]))


def divide(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    """Return a ratio of two published values with its error, as if they were independent."""
    ratio = a[0] / b[0]
    return ratio, float(ratio * np.hypot(a[1] / a[0], b[1] / b[0]))


@contextmanager
def use_plain_torch() -> Iterator[None]:
    """Let operators calculate by their references in PyTorch."""

    def refuse() -> str:
        raise native.UnavailableError("the peer has no kernels")

    caches = native.load_library, native.open_library
    with patch.object(native, "choose_level", refuse):
        for function in caches:
            function.cache_clear()
        yield
    for function in caches:
        function.cache_clear()


def time_trajectories(run: DatasetRun) -> tuple[float, float]:
    """Return the seconds of a trajectory of a few chains, by kernels and by plain PyTorch."""
    options = run.options
    assert isinstance(options, EnsembleDataset)
    assert options.generate is not None
    assert options.generate.method == "hmc"
    with Ensemble(run.data) as ensemble:
        links = ensemble.read_links(range(TIMED))
        scales = make_time_scales(options.action, ensemble.lattice, options.generate)
    sampler = HybridMonteCarlo(scales, options.generate.tau, torch.Generator().manual_seed(0))
    ours = [time_call(lambda: sampler.run_trajectory(links)) for _ in range(4)]
    with use_plain_torch():
        peer = time_call(lambda: sampler.run_trajectory(links))
    return statistics.median(ours[1:]), peer


def main() -> None:
    """Make the sample and print one JSON object as the last line."""
    parser = make_parser(__doc__, full="all configurations of the dataset")
    parser.set_defaults(generate=HALF)
    args = read_arguments(parser, {"generate": SMALL}, {"generate": {}})
    torch.set_num_threads(args.threads)
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        run = make_run(Path(folder), args.generate)
        make_data(run)
        statistics_ = json.loads(run.report.read_text())["statistics"]
        print(json.dumps(statistics_), flush=True)
        correlators = measure_correlators(run)
        seconds = time.perf_counter() - begin
        ours_s, peer_s = time_trajectories(run)
    plaquette = Estimate(**statistics_["plaquette"])
    ratios = [estimate_ratio(correlators, t) for t in (1, 2)]
    published = [divide(CORRELATOR[t], CORRELATOR[0]) for t in (1, 2)]
    figures: dict[str, Any] = {
        "ours_s": ours_s,
        "peer": "the same trajectories by plain PyTorch",
        "peer_s": peer_s,
        "ratio": peer_s / ours_s,
        "plaquette": plaquette.mean,
        "plaquette_error": plaquette.error,
        "c1_c0": ratios[0].mean,
        "c1_c0_error": ratios[0].error,
        "c2_c0": ratios[1].mean,
        "c2_c0_error": ratios[1].error,
        "sigmas": {
            "plaquette": compare(plaquette, PLAQUETTE),
            "c1_c0": compare(ratios[0], published[0]),
            "c2_c0": compare(ratios[1], published[1]),
        },
        "published": {"plaquette": PLAQUETTE, "c1_c0": published[0], "c2_c0": published[1]},
        "configurations": plaquette.count,
        "tau_int": plaquette.tau_int,
        "chains": statistics_["origin"],
        "identity": statistics_["identity"],
        "seconds": seconds,
    }
    print_report("tmlqcd_sample", figures, threads=args.threads, versions=read_versions("torch"))


if __name__ == "__main__":
    main()

"""What a machine of 20 GB cannot do is refused by name and with what it would take."""

import pytest

from pipeline_atoms.config.datasets import Source
from pipeline_atoms.config.dynamics import MolecularDynamics
from pipeline_atoms.config.inference import InferOptions
from pipeline_chgnet.options import CHGNetOptions
from pipeline_core.config import limits
from pipeline_core.config.experiments import ExperimentFile
from pipeline_core.config.sections import PartitionOptions
from pipeline_core.config.yaml_files import read_yaml, validate_content
from pipeline_core.distributed.launch import start_ranks
from pipeline_gauge_flows.data.datasets import LatticeOptions
from pipeline_htfbr.options import HTOptions


@pytest.fixture
def laptop(monkeypatch):
    monkeypatch.setattr(limits, "find_total_memory", lambda: 20_000_000_000)
    monkeypatch.setattr(limits, "_has_scheduler", lambda: False)


@pytest.mark.usefixtures("laptop")
@pytest.mark.parametrize(
    ("model", "text", "message"),
    [
        (
            InferOptions,
            "md: [{name: long, steps: 1000000000000000}]",
            r"md.0: observables of 1e\+14 frames take at least 6.4 PB, and this machine has 20 GB"
            " of memory; raise every",
        ),
        (Source, "{path: a.xyz, repeat: [100000, 10000, 1]}", r"repeat: 1e\+09 copies of a single"),
        (Source, "{path: a.xyz, repeat_to: 1000000000}", r"repeat_to: 1000000000 atoms take at"),
        (PartitionOptions, "ranks: [2, 1000000000]", r"ranks.1: no computer has cores for 1000"),
        (ExperimentFile, "{description: a, plugin: b, ranks: 1000000000}", r"ranks: no computer"),
        (CHGNetOptions, "atom_features: 10000000", r"weights .* 10000000 features, .* 1.6 PB"),
        (CHGNetOptions, "readout_features: [64, 10000000]", r"readout_features.1: weights between"),
        (CHGNetOptions, "convolutions: 1000000000", r"1000000000 layers take at least 10 TB"),
        (HTOptions, "rank: 1000000000", r"weights of a node of rank 1000000000 take"),
        (LatticeOptions, "extents: [10000, 1000, 1000]", r"extents: 3e\+10 links take at least"),
    ],
)
def test_what_cannot_fit_into_memory_is_refused(tmp_path, model, text, message):
    path = tmp_path / "section.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        validate_content(model, read_yaml(path), path)


@pytest.mark.usefixtures("laptop")
def test_what_fits_into_memory_is_taken():
    MolecularDynamics(name="long", steps=10**15, every=10**7, repeat=(100, 100, 100))
    CHGNetOptions(atom_features=30_000, convolutions=1_000_000)
    PartitionOptions(ranks=[10_000_000])


def test_a_login_node_does_not_refuse_what_a_compute_node_may_hold(monkeypatch):
    monkeypatch.setattr(limits, "find_total_memory", lambda: 20_000_000_000)
    monkeypatch.setattr(limits, "_has_scheduler", lambda: True)
    CHGNetOptions(atom_features=50_000)  # 40 GB
    message = r"take at least 1.6 PB, and no node has more than 35.2 TB"
    with pytest.raises(ValueError, match=message):
        CHGNetOptions(atom_features=10_000_000)
    monkeypatch.undo()
    message = r"1000000000 ranks take at least 100 PB, and .* take fewer"
    with pytest.raises(ValueError, match=message):
        start_ranks(10**9)

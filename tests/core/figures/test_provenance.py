"""The table of where results come from, and tables as pictures."""

import hashlib
import json

import pytest

from core.figures import synthetic
from pipeline_core.artifacts import store
from pipeline_core.figures import provenance


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.7, "0.70 s"), (119.0, "119 s"), (120.0, "2.0 min"), (7200.0, "2.0 h"), (9e5, "250.0 h")],
)
def test_times_have_units_that_people_use(seconds, text):
    assert provenance.format_duration(seconds) == text


def test_of_several_trainings_the_last_one_counts(experiment):
    rows = dict(provenance.collect_rows(experiment))
    assert rows["base: train"] == "12.6 min, 1.0 GiB at most, A processor, 2 cores, 2 ranks"
    assert rows["seed"] == "7"
    assert f"fingerprint {experiment.registry.compute_fingerprint('toy')}" in rows["plugin"]
    assert "numpy" in rows["versions"]
    stages = [name for name in rows if name.startswith("wide: ")]
    assert [name.split()[1] for name in stages] == [
        *("graph", "partition", "train", "evaluate", "infer")
    ]


@pytest.mark.slow
def test_each_plugin_has_its_fingerprint_and_each_variant_its_seed(folder):
    experiment = synthetic.add_rival(folder)
    rows = provenance.collect_rows(experiment)
    of = experiment.registry.compute_fingerprint
    assert [value for name, value in rows if name == "plugin"] == [
        f"{name}, {name} 1.0, source fingerprint {of(name)}" for name in ("toy", "other")
    ]
    assert [name for name, _ in rows].count("citation") == 2
    assert dict(rows)["seed"] == "base: 7, wide: 7, rival: 8"
    assert "rival: train" in dict(rows)


def test_the_raw_data_are_known_by_the_hash_of_their_hashes(folder):
    experiment = synthetic.load(folder)
    dataset = experiment.runs["base"].dataset
    inputs = {"a.xyz": "0" * 64, "b.xyz": "1" * 64}
    with store.create(dataset.data, "data", {"inputs": inputs}):
        pass
    digest = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()
    expected = f"2 files, SHA-256 of their hashes {digest[:16]}"
    assert dict(provenance.collect_rows(experiment))["raw data"] == expected

"""Dataset and experiment files: mistakes are named with key, line and nearest right key."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field

from pipeline_atoms.config.datasets import Dataset
from pipeline_core.config.experiments import (
    ENGINE_SECTIONS,
    ExperimentFile,
    Variant,
)
from pipeline_core.config.sections import Section, TrainOptions
from pipeline_core.config.yaml_files import read_yaml, validate_content

GOOD = """\
description: Water
sources:
  - path: water.xyz
    keys: {energy: REF_energy}
split:
  method: group
  val: 0.2
"""


def load_text(folder: Path, text: str) -> Dataset:
    path = folder / "water.yaml"
    path.write_text(textwrap.dedent(text))
    return validate_content(Dataset, read_yaml(path), path)


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("sources:", "source:", "water.yaml:2: source: unknown key; did you mean 'sources'?"),
        ("path:", "paths:", "water.yaml:3: sources.0.paths: unknown key; did you mean 'path'?"),
        ("keys: {energy", "keys: {enery", "sources.0.keys.enery"),
        ("  val:", "  vall:", "water.yaml:7: split.vall: unknown key; did you mean 'val'?"),
        ("  val:", "  qqqqq:", "the keys are method, val, test, seed, val_groups, test_groups"),
        ("0.2", "1.2", "water.yaml:7: split.val: Input should be less than or equal to 1 (got"),
        ("0.2", "'0.2'", "water.yaml:7: split.val: Input should be a valid number (got '0.2')"),
        ("0.2", "0.95", "val + test = 1.05 leaves nothing to train on"),
        ("group", "grop", "water.yaml:6: split.method: Input should be 'random'"),
        ("group", "list", "method 'list' needs val_groups or test_groups"),
        ("description: Water", "", "description: Field required"),
        ("0.2", "2026-01-01", "quote the value"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_key_line_and_cure(tmp_path, right, wrong, message):
    assert right in GOOD
    with pytest.raises(ValueError, match=re.escape(message)):
        load_text(tmp_path, GOOD.replace(right, wrong))


def test_all_mistakes_of_a_file_are_listed_at_once(tmp_path):
    text = GOOD.replace("path:", "paths:").replace("0.2", "7").replace("group", "grop")
    with pytest.raises(ValueError, match=r"(.*\n){3}.*"):  # the missing path is one of its own
        load_text(tmp_path, text)
    read = load_text(tmp_path, GOOD)
    assert (read.split.val, read.split.test) == (0.2, 0.1)
    assert read.labels == ["energy", "forces", "stress"]
    assert read.sources[0].keys == {"energy": "REF_energy"}
    with pytest.raises(ValueError, match="frozen"):
        TrainOptions().epochs = 3


def test_a_loss_of_no_weight_is_refused(tmp_path):
    path = tmp_path / "train.yaml"
    path.write_text("loss: {energy: {weight: 0}, forces: {weight: 0.0}}")
    with pytest.raises(ValueError, match=r"all weights \(energy, forces\) are zero, so nothing"):
        validate_content(TrainOptions, read_yaml(path), path)
    TrainOptions(loss={"energy": {"weight": 0.0}, "forces": {}})


class Circle(Section):
    kind: Literal["circle"]
    radius: float


class Square(Section):
    kind: Literal["square"]
    side: float


class Drawing(Section):
    shapes: list[Annotated[Circle | Square, Field(discriminator="kind")]]


def test_a_mistake_in_one_of_several_kinds_is_named_by_the_keys_of_the_file(tmp_path):
    path = tmp_path / "d.yaml"
    path.write_text("shapes:\n- {kind: circle, radius: 1.0}\n- kind: square\n  sid: 1.0\n")
    message = r"d\.yaml:4: shapes\.1\.sid: unknown key; did you mean 'side'\?"
    with pytest.raises(ValueError, match=message):
        validate_content(Drawing, read_yaml(path), path)


def test_a_variant_is_laid_over_the_experiment(tmp_path):
    path = tmp_path / "e.yaml"
    path.write_text(
        "description: d\nplugin: p\nseed: 3\nmodel: {a: 1}\ntrain: {x: 1, y: {z: 2}}\n"
        "variants:\n  v: {ranks: 2, model: {b: 2}, train: {y: {z: 3}}}\n"
        "  w: {plugin: q, seed: 4, model: {b: 2}}\n"
    )
    file = validate_content(ExperimentFile, read_yaml(path), path)
    before = file.model_dump()
    v, w = file.make_variant("v"), file.make_variant("w")
    assert file.model_dump() == before
    assert file.make_variant("base").model_dump() == file.model_dump() | {"variants": {}}
    assert (v.plugin, v.seed, v.ranks, v.model) == ("p", 3, 2, {"a": 1, "b": 2})
    assert v.train == {"x": 1, "y": {"z": 3}}
    assert (w.plugin, w.seed, w.ranks, w.model) == ("q", 4, 1, {"b": 2})
    assert w.train == file.train
    assert v.variants == {}


def test_a_variant_may_override_every_section():
    words = {"plugin", "dataset", "seed", "members", "ranks", "model"}
    assert set(Variant.model_fields) == {*words, *ENGINE_SECTIONS}

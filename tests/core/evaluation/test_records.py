"""The file of predictions. Oracle: the arrays that were put in."""

import numpy as np
import torch

from pipeline_core.artifacts.samples import SampleFile, SampleWriter
from pipeline_core.evaluation.predict import Window
from pipeline_core.evaluation.records import make_prediction_fields, write_window
from pipeline_core.fields import Field
from pipeline_core.task import Quantity

VALUE = Quantity("value", own_field=Field("value", (2,), "cm⁻¹", "sample", "f8", "", label=True))


def test_a_plugin_s_own_field_keeps_its_unit_and_kind(tmp_path):
    """Points of a surface have no atoms, and no field that the engine knows."""
    labels = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    window = Window(0, {"value": labels}, {"value": labels + 0.5})
    path = tmp_path / "predictions.h5"
    fields = make_prediction_fields({"sample"}, [VALUE], [])
    with SampleWriter(path, "predictions", {}, fields) as writer:
        write_window(writer, window, [VALUE], "test", {})

    with SampleFile(path, "predictions") as file:
        field = file.fields["value_predicted"]
        assert (field.unit, field.kind, field.shape) == ("cm⁻¹", "sample", (2,))
        np.testing.assert_array_equal(file.read_column("value_label"), labels)
        np.testing.assert_array_equal(file.read_column("value_predicted"), labels + 0.5)
        assert file.read_column("split").tolist() == [2, 2, 2]

"""The table of fields is consistent in itself."""

import numpy as np
import pytest

from pipeline_core.fields import FIELDS, RAGGED, SPLITS, find_field
from pipeline_core.units import DIMENSION


def test_names_are_keys_and_dtypes_are_numpys():
    for name, one in FIELDS.items():
        assert one.name == name
        assert one.dtype == "str" or np.dtype(one.dtype).itemsize > 0
        assert one.kind in ("sample", *RAGGED)
        assert one.doc.endswith(".")
    assert {one.dtype for one in FIELDS.values() if one.label} == {"f8"}  # may be missing
    assert set(DIMENSION) == {one.name for one in FIELDS.values() if one.unit != "1"}
    assert SPLITS == ("train", "val", "test")
    assert np.iinfo(FIELDS["split"].dtype).max >= len(SPLITS)


def test_what_numbers_rows_is_an_integer_and_names_a_ragged_kind():
    indexing = [one for one in FIELDS.values() if one.indexes]
    assert {one.name for one in indexing} == {"edge_index", "edge_bond", "bond_edge", "angle_edges"}
    for one in indexing:
        assert one.indexes in RAGGED
        assert np.issubdtype(np.dtype(one.dtype), np.signedinteger)


def test_an_unknown_field_names_the_known_ones():
    assert find_field("forces") is FIELDS["forces"]
    with pytest.raises(ValueError, match=r"unknown field 'force'; the fields are cell, .*forces"):
        find_field("force")

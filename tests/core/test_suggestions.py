"""The end of messages on unknown names; oracle: words by hand."""

from pipeline_core.suggestions import suggest


def test_the_nearest_name_or_all_of_them():
    assert suggest("enrgy", ["forces", "energy"]) == "; did you mean 'energy'?"
    assert suggest("x", ["forces", "energy"]) == ""
    assert suggest("x", ["forces", "energy"], "there are") == "; there are forces, energy"

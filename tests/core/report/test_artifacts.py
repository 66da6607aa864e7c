"""Paths of models and trajectories on a page."""

from pipeline_core.report import artifacts


def test_models_and_trajectories_are_listed_and_what_the_workflow_keeps_is_not(with_models):
    table = artifacts.tabulate_files(with_models)
    assert table.header == ["variant", "what", "path"]
    wide = with_models.runs["wide"].folder
    assert [row[1:] for row in table.rows if row[0] == "wide"] == [
        ["model", f"{wide}/model.pt"],
        ["use of the model", f"{wide}/inference.h5"],
        ["trajectory", f"{wide}/md/heat_bath.extxyz"],
        ["trajectory", f"{wide}/md/nve.extxyz"],
    ]


def test_a_folder_of_many_files_is_one_line(with_models):
    exported = with_models.runs["base"].folder / "configurations"
    exported.mkdir()
    for number in range(20):
        (exported / f"{number}.lime").touch()
    rows = artifacts.tabulate_files(with_models).rows
    assert ["base", "20 files", f"{exported}/"] in rows

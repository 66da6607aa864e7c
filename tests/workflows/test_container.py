"""The recipe of the container copies what there is, and all that the package is made of.

It is not built: that fetches a Linux distribution and all packages.
"""

import tomllib

from workflows.toy import REPOSITORY

RECIPE = (REPOSITORY / "profiles/container/Containerfile").read_text()


def test_the_recipe_copies_what_there_is_and_what_the_package_is_made_of():
    lines = [line.split()[1:-1] for line in RECIPE.splitlines() if line.startswith("COPY")]
    copied = {name for names in lines for name in names}
    assert all((REPOSITORY / name).exists() for name in copied)
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    folders = {path.split("/")[0] for path in project["tool"]["setuptools"]["package-dir"].values()}
    assert folders | {"pyproject.toml", "setup.py", project["project"]["readme"]} <= copied


def test_the_recipe_has_a_python_that_the_project_takes():
    assert "python:3.11" in RECIPE or "python:3.12" in RECIPE

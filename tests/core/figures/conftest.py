import shutil

import pytest

from core.figures import synthetic
from pipeline_core.artifacts import store


@pytest.fixture(scope="session")
def results(tmp_path_factory):
    """Return a folder with an experiment and its results, which tests leave as they are."""
    folder = tmp_path_factory.mktemp("figures")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        synthetic.write_experiment(folder)
        yield folder


@pytest.fixture(scope="session")
def experiment(results):
    """Return the experiment, which tests leave as it is."""
    return synthetic.load(results)


@pytest.fixture
def folder(results, tmp_path):
    """Return a copy of the folder, which a test may change."""
    return shutil.copytree(results, tmp_path / "copy")


@pytest.fixture
def with_models(folder):
    """Return the experiment with models, which `synthetic` does not write."""
    result = synthetic.load(folder)
    for run in result.runs.values():
        with store.write_sealed(run.model, {}) as file:
            file.write(b"weights")
    return result

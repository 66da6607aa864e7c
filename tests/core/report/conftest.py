from core.figures.conftest import experiment, folder, results  # noqa: F401

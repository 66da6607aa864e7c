from core.figures.conftest import experiment, folder, results, with_models  # noqa: F401

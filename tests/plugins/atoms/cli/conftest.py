from core.cli.conftest import call, folder, refuse, second_rank  # noqa: F401

from plugins.atoms.importing.conftest import alloys, workshop  # noqa: F401

"""What a benchmark ran on."""

import platform
from importlib.metadata import version
from pathlib import Path


def name_processor() -> str:
    """Name of the processor."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def describe_host(*packages: str) -> dict:
    """Hardware and versions, as all results hold them."""
    versions = {name: version(name) for name in packages}
    return {
        "hardware": name_processor(),
        "versions": {"python": platform.python_version()} | versions,
    }

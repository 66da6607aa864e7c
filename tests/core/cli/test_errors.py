"""Errors: a message for mistakes of the user, a traceback on request, and for everything else."""

import os
import subprocess
import sys
from importlib.metadata import version

import pytest


def test_a_mistake_is_one_message_and_the_error_itself_on_request(folder, call, refuse):
    said = refuse(["train", "--experiment", "alpha/frist"], "error: ", "did you mean")
    assert "Traceback" not in said
    result = call("--debug", "train", "--experiment", "alpha/frist")
    assert isinstance(result.exception, ValueError)


@pytest.mark.slow
@pytest.mark.parametrize("debug", [False, True])
def test_the_console_shows_a_traceback_only_if_asked(folder, debug):
    done = subprocess.run(
        [sys.executable, "-m", "pipeline_core.cli", "data", "--dataset", "nothing"],
        env=os.environ | ({"PIPELINE_DEBUG": "1"} if debug else {}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert ("Traceback" in done.stderr) == debug
    assert "nothing.yaml: no such file" in done.stderr
    assert done.stdout == ""


@pytest.mark.slow
def test_every_command_has_help(call):
    text = call("--help").output
    commands = [
        "data", "graph", "partition", "train", "evaluate", "infer", "figures", "validate", "doctor",
        "plugins", "readers", "experiments", "inspect", "new-dataset", "new-experiment",
        "new-plugin", "predict",
    ]  # fmt: skip
    assert "--install-completion" in text
    assert call("--version").output.strip() == f"pipeline-core {version('pipeline-core')}"
    assert call("-h").output == text
    for command in commands:
        assert command in text
        result = call(command, "--help")
        assert result.exit_code == 0
        assert call(command, "-h").output == result.output

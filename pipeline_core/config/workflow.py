"""The configuration of the workflow: `workflows/config.yaml` and Snakemake's `--config`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, field_validator

from pipeline_core.config.sections import Section
from pipeline_core.config.yaml_files import read_yaml, validate_content

CONFIG: Final = "config.yaml"
"""Name of the file in the folder of workflows."""

Folder = Annotated[str, Field(pattern=r"^[^-{}<>*?\[\]\n][^{}<>*?\[\]\n]*$")]
"""A path that means itself to Snakemake: in braces and angles stand wildcards."""


class WorkflowOptions(Section):
    """The configuration of the workflow, `workflows/config.yaml`."""

    experiments: list[str]
    """What plain `snakemake` computes: experiments as plugin/name, a list or words between commas,
    as in `snakemake --config experiments=chgnet/hfo2,mace/smoke`."""
    scale: Literal["smoke", "laptop", "paper"] = "laptop"
    """Scale of the experiments that the targets paper_<plugin> compute."""
    workflows: Folder = "workflows"
    """Folder of datasets/ and experiments/."""
    results: Folder = "results"
    """Folder for artifacts."""
    evidence: Annotated[bool, Field(strict=False)] = False  # Snakemake gives "true" as text
    """Whether figures are drawn from workflows/evidence; then nothing is trained, and papers have
    the experiments of all scales."""
    container: str | None = None
    """Image in which `--software-deployment-method apptainer` runs all jobs; null for none."""

    @field_validator("experiments", mode="before")
    @classmethod
    def _split_words(cls, value: Any) -> Any:
        if isinstance(value, str):
            return [word for part in value.split(",") if (word := part.strip())]
        return value


def read_options(workflows: Path) -> WorkflowOptions:
    """Return what the file in a folder of workflows says; no experiments if there is none.

    Raises:
        ValueError: It is wrong.
    """
    path = workflows / CONFIG
    content = read_yaml(path) if path.exists() else {"experiments": []}
    return validate_content(WorkflowOptions, content, path)

"""The configuration of the workflow: `workflows/config.yaml` and Snakemake's `--config`."""

from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, field_validator

from pipeline_core.config.sections import Section
from pipeline_core.config.yaml_files import read_yaml, validate_content

CONFIG: Final = "config.yaml"
"""Name of the file in the folder of workflows."""

Folder = Annotated[str, Field(pattern=r"^[^-{}<>*?\[\]\n][^{}<>*?\[\]\n]*$")]
"""A path that Snakemake takes literally: wildcards stand in braces and angles."""


class WorkflowOptions(Section):
    """The configuration of the workflow, `workflows/config.yaml`."""

    experiments: list[str]
    """Experiments of plain `snakemake`: plugin/name, as a list or separated by commas, as in
    `snakemake --config experiments=chgnet/hfo2,mace/smoke`."""
    scale: Literal["smoke", "laptop", "paper"] = "laptop"
    """Scale of the experiments behind the targets paper_<plugin>."""
    workflows: Folder = "workflows"
    """Folder of datasets/ and experiments/."""
    results: Folder = "results"
    """Folder for artifacts."""
    evidence: Annotated[bool, Field(strict=False)] = False  # Snakemake gives "true" as text
    """Draw figures from workflows/evidence; then nothing is trained, and papers include the
    experiments of all scales."""
    container: str | None = None
    """Image in which `--software-deployment-method apptainer` runs all jobs; null for none."""

    @field_validator("experiments", mode="before")
    @classmethod
    def _split_words(cls, value: Any) -> Any:
        if isinstance(value, str):
            return [word for part in value.split(",") if (word := part.strip())]
        return value


def read_options(workflows: Path) -> WorkflowOptions:
    """Return the options of a folder of workflows; without experiments if it has no such file.

    Raises:
        ValueError: It is wrong.
    """
    path = workflows / CONFIG
    content = read_yaml(path) if path.exists() else {"experiments": []}
    return validate_content(WorkflowOptions, content, path)

"""`pipeline-core new-experiment`: an experiment file with every option, to start from."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from pipeline_core.cli import options
from pipeline_core.cli.yaml_templates import format_comment, format_scalar, format_section
from pipeline_core.config.sections import TrainOptions
from pipeline_core.model_info import RUN_STAGES, ModelInfo
from pipeline_core.project.project import check_name

EPOCHS: Final = {"smoke": 2, "laptop": 50, "paper": 200}
"""Default number of epochs."""

LOSS: Final = {
    "energy": {"kind": "huber", "weight": 1.0},
    "forces": {"kind": "huber", "weight": 1.0},
    "stress": {"kind": "huber", "weight": 0.1, "unit": "GPa"},
    "magmoms": {"kind": "huber", "weight": 0.1},
}
"""Default terms of the loss."""

Name = Annotated[str, typer.Argument(help="Name of the new file, without its ending.")]
Scale = Annotated[Literal["smoke", "laptop", "paper"], typer.Option(help="Size of the experiment.")]


def write_experiment(
    name: Annotated[str, typer.Argument(help="Name of the experiment: NAME or PLUGIN/NAME.")],
    plugin: Annotated[str, typer.Option(help="Name of a model, see pipeline-core plugins.")],
    dataset: Annotated[str, typer.Option(help="Name of a dataset.")],
    scale: Scale = "laptop",
    workflows: options.Workflows = options.WORKFLOWS,
) -> None:
    """Write an experiment file with every option at its default."""
    project = options.load_project(workflows, options.RESULTS)
    info = project.registry.get_model_info(plugin)
    labels = getattr(project.load_dataset(dataset).options, "labels", [])  # only for atoms
    folder, _, stem = name.rpartition("/")
    if folder not in ("", plugin):
        raise ValueError(f"{name!r}: experiments of {plugin} belong in the folder {plugin}")
    path = workflows / "experiments" / plugin / f"{stem}.yaml"
    check_name(stem, str(path))
    write_new(path, format_experiment(info, dataset, scale, labels))
    project.load_experiment(f"{plugin}/{stem}")
    typer.echo(f"wrote {path}; next: pipeline-core validate {plugin}/{stem}")


def format_experiment(info: ModelInfo, dataset: str, scale: str, labels: Sequence[str]) -> str:
    """Return the content of an experiment file that trains on the labels of a dataset."""
    lines = [
        f"description: {format_scalar(f'{info.name} on {dataset}')}",
        f"plugin: {info.name}",
        f"dataset: {dataset}",
        f"scale: {scale}",
        "seed: 0",
    ]
    models = info.section_models
    for key in ("model", *(stage for stage in RUN_STAGES if stage not in info.without)):
        values: dict[str, Any] = {}
        if models[key] is TrainOptions:
            terms = [name for name in labels if name in info.predicts and name in LOSS]
            values["epochs"] = EPOCHS[scale]
            values["loss"] = {name: LOSS[name] for name in terms}
        lines += ["", *format_comment(models[key].__doc__ or ""), f"{key}:"]
        body = format_section(models[key], values, indent=2)
        lines = [*lines, *body] if body else [*lines[:-1], f"{key}: {{}}"]
    lines += [
        "",
        "# Named sets of overrides, each trained and drawn beside the others, for example",
        "#   variants:",
        "#     another_seed: {seed: 1}",
        "variants: {}",
    ]
    return "\n".join(lines) + "\n"


def write_new(path: Path, text: str) -> None:
    """Write a file that must not exist yet.

    Raises:
        ValueError: It exists.
    """
    if path.exists():
        raise ValueError(f"{path}: exists already; choose another name or remove it")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


COMMANDS = {"new-experiment": write_experiment}

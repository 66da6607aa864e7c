"""Model card: origin, data and limits of a model, for its users.

The facts lie in the seal of `model.pt`, beside its provenance, as JSON that `store.read_provenance`
reads without torch. `report/card.py` makes a page of them.
"""

from typing import Any, Final

from pipeline_core.project.run import Run
from pipeline_core.task import Task

_OF_DATASET: Final = ("description", "citation", "licence")


def make_card(run: Run, task: Task) -> dict[str, Any]:
    """Return the card of the model of a run, JSON-able.

    Args:
        run: The run, whose data are read.
        task: Its task.

    Returns:
        summary and citation of the model; parameters; elements; heads, if there are several;
        datasets, each with name, description, citation and licence; training, the ranges of its
        samples (hook `describe_training`), empty without such a hook.
    """
    info, metadata = run.model_info, task.metadata or {}
    describe = run.registry.select_hook("describe_training", info.name)
    parts = [part for dataset in run.datasets for part in dataset.parts]
    return {
        "summary": info.summary,
        "citation": info.citation,
        "parameters": sum(p.numel() for p in task.module.parameters()),
        "elements": list(metadata.get("elements", [])),
        "heads": list(getattr(task.module, "head_names", ())),
        "datasets": [
            {"name": part.name, **{key: getattr(part.options, key) for key in _OF_DATASET}}
            for part in parts
        ],
        "training": describe(run=run) or {},
    }

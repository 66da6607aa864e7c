"""Frozen parts of a model, which keep their weights while others are trained."""

from collections.abc import Mapping, Sequence

from torch import nn

from pipeline_core.suggestions import suggest


def freeze(
    module: nn.Module, names: Sequence[str], parts: Mapping[str, tuple[str, ...]]
) -> list[str]:
    """Freeze the parameters of some parts of a module.

    Args:
        module: As its plugin builds it.
        names: Names of parts, or prefixes of names of parameters, by whole components: "layers.1"
            does not match "layers.10".
        parts: Name of a part -> prefixes of the names of its parameters, as in `ModelInfo`.

    Returns:
        The names of the frozen parameters.

    Raises:
        ValueError: A name matches no parameter, or nothing is left to be trained.
    """
    parameters = dict(module.named_parameters())
    frozen: dict[str, None] = {}
    for name in names:
        beginnings = parts.get(name, (name,))
        members = [p for p in parameters if any(f"{p}.".startswith(f"{b}.") for b in beginnings)]
        if not members:
            raise ValueError(_explain(name, list(parameters), parts))
        frozen |= dict.fromkeys(members)
    if parameters and len(frozen) == len(parameters):
        raise ValueError(
            "train.freeze: nothing is left to be trained; leave out one of "
            f"{', '.join(names)}, or set train.epochs: 0 to use the weights as they are"
        )
    for name in frozen:
        parameters[name].requires_grad_(False)
    return list(frozen)


def _explain(name: str, parameters: Sequence[str], parts: Mapping[str, tuple[str, ...]]) -> str:
    """Return the message for a name that matches no parameter."""
    beginnings = list(dict.fromkeys(p.partition(".")[0] for p in parameters))
    hint = suggest(name, [*parts, *parameters, *beginnings]) or ";"
    named = f"parts {', '.join(parts)}; " if parts else ""
    return (
        f"train.freeze: the model has no {name!r}{hint} it has {named}"
        f"parameters whose names begin with {', '.join(beginnings)}"
    )

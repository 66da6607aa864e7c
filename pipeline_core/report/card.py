"""Model card, from the model file and the metrics beside it: as a page, and in the report."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pipeline_core.artifacts import store
from pipeline_core.artifacts.seals import identify
from pipeline_core.fields import SPLITS
from pipeline_core.figures.findings import Table
from pipeline_core.figures.formats import format_number
from pipeline_core.figures.quantities import find_quantity
from pipeline_core.project.run import Run
from pipeline_core.report.numbers import SPLIT_NAMES
from pipeline_core.report.rendering import render

_RANGES: Final = (
    ("atoms", "atoms of a structure", ""),
    ("density", "density", "g/cm³"),
    ("energy", "energy less reference energies", "eV/atom"),
    ("pressure", "pressure", "GPa"),
    ("force", "force on an atom", "eV/Å"),
)
"""Name of a range, its title, and its unit."""
_BEYOND: Final = (
    "Beyond these ranges, and in phases that are not among the data, predictions are "
    "extrapolations that no error here says anything of."
)
_UNKNOWN: Final = "not said"
_OF_DATA: Final = ("licence", "citation")

Facts = Mapping[str, Any]


def read_card(model: Path) -> dict[str, Any]:
    """Return the card of a model file, with its errors.

    Args:
        model: A `model.pt`. Errors come from the file itself, or from `metrics.json` beside it if
            that belongs to this model.

    Returns:
        The provenance of the model, with `card` as from `training.card.make_card`; its `errors` are
        split -> quantity -> metrics, and `errors_by_head` head -> such errors for models with
        several heads, both empty without metrics.

    Raises:
        ValueError: The file is missing or damaged, or has no card.
    """
    facts = store.read_provenance(model)
    if "card" not in facts:
        raise ValueError(
            f"{model}: has no card: it is not a model; train it again, or call `pipeline-core "
            "train` with --finish, which writes it from its state"
        )
    errors = {} if facts["card"].get("errors") else _read_errors(model)
    return {**facts, "card": {**facts["card"], **errors}}


def _read_errors(model: Path) -> dict[str, Any]:
    path = model.with_name("metrics.json")
    content = store.read_json(path) if path.is_file() else {}
    made_from = store.read_provenance(path).get("inputs", {}).get("model") if content else None
    splits: dict[str, Any] = content.get("splits", {}) if made_from == identify(model) else {}
    splits = {name: split for name, split in splits.items() if "quantities" in split}
    by_head: dict[str, Any] = defaultdict(dict)
    for name, split in splits.items():
        for head, table in split.get("heads", {}).items():
            by_head[head][name] = table
    errors = {name: split["quantities"] for name, split in splits.items()}
    return {"errors": errors, "errors_by_head": dict(by_head)}


def format_card(facts: Facts) -> str:
    """Return a card as a page in Markdown.

    Args:
        facts: Result of `read_card`.
    """
    card = facts["card"]
    text = render(
        "card.md.tmpl",
        facts=facts,
        card=card,
        model=_list_model(facts),
        data=[
            [d["name"], d["description"], *(d[key] or _UNKNOWN for key in _OF_DATA)]
            for d in card["datasets"]
        ],
        errors=list(_list_errors(facts)),
        limits=_list_limits(card),
        beyond=_BEYOND,
        origins=_list_origins(facts),
    )
    return f"{text}\n"


def tabulate_card(run: Run) -> Table | None:
    """Return the part of a model's card that the report lacks elsewhere; None without a card."""
    facts = store.read_provenance(run.model)
    if "card" not in facts:
        return None
    card = facts["card"]
    licences = [[f"licence of {d['name']}", d["licence"] or _UNKNOWN] for d in card["datasets"]]
    citations = [[f"cite for {d['name']}", d["citation"] or _UNKNOWN] for d in card["datasets"]]
    rows = [*_list_limits(card), *licences, *citations, ["cite for the model", card["citation"]]]
    note = f"{_BEYOND} The whole card: pipeline-core card {run.folder}"
    return Table(title="Model card", rows=rows, note=note)


def _list_model(facts: Facts) -> list[list[str]]:
    card, train = facts["card"], facts.get("options", {}).get("train", {})
    rows = [
        ["plugin", facts["plugin"]],
        ["parameters", f"{card['parameters']:,}"],
        ["elements", ", ".join(card["elements"])],
        ["heads", ", ".join(card.get("heads", []))],
        ["precision", train.get("precision", "")],
        [
            "starts from",
            train.get("start_from") or ("" if _name_source(facts) else "random weights"),
        ],
        ["unfinished", facts.get("unfinished", "")],
    ]
    return [row for row in rows if row[1]]


def _list_errors(facts: Facts) -> Iterator[list[str]]:
    """Yield rows of a table: for all samples, then for the samples of each head."""
    yield from _list_split_errors(facts["card"]["errors"], "")
    for head, errors in sorted(facts["card"].get("errors_by_head", {}).items()):
        yield from _list_split_errors(errors, f", head {head}")


def _list_split_errors(errors: Facts, of_head: str) -> Iterator[list[str]]:
    for split in reversed(SPLITS):
        quantities = errors.get(split, {})
        for name, metrics in sorted(quantities.items()):  # a seal keeps no order
            if metrics.get("mae") is None or f"{name}_per_atom" in quantities:
                continue
            shown = find_quantity(name, metrics.get("unit", "1"))
            values = [
                f"{format_number(shown.error_factor * metrics[key])} {shown.error_unit}".rstrip()
                for key in ("mae", "rmse")
            ]
            yield [f"{SPLIT_NAMES[split]}{of_head}", shown.title, *values]


def _list_limits(card: Facts) -> list[list[str]]:
    """Return the content and the ranges of the training data."""
    training = card["training"]
    if not training:
        return []
    rows = [["structures", f"{training['structures']:,}"]]
    atoms = training["atoms_by_element"]
    rows.append(["atoms by element", ", ".join(f"{s} {n:,}" for s, n in atoms.items())])
    for name, title, unit in _RANGES:
        if name in training["ranges"]:
            low, high = map(_format_amount, training["ranges"][name])
            rows.append([title, f"{low} to {high} {unit}".rstrip()])
    if "force_rms" in training:
        rms = _format_amount(training["force_rms"])
        rows.append(["root mean square force", f"{rms} eV/Å"])
    if training["groups"]:
        more = training["n_groups"] - len(training["groups"])
        named = ", ".join(training["groups"]) + (f" and {more} more" if more else "")
        rows.append(["groups", named])
    return rows


def _format_amount(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else format_number(value)


def _list_origins(facts: Facts) -> list[list[str]]:
    versions = facts.get("versions", {})
    rows = [
        ["experiment", f"{facts['experiment']}, variant {facts['variant']}"],
        ["converted from", _name_source(facts)],
        ["seed", str(facts.get("seed", ""))],
        ["epochs", f"{facts['epochs']}, the best {facts['epoch']}" if "epochs" in facts else ""],
        ["commit", facts.get("commit") or "none: not in a Git repository"],
        ["plugin source", str(facts.get("fingerprint", ""))],
        ["versions", ", ".join(f"{name} {version}" for name, version in versions.items())],
    ]
    return [row for row in rows if row[1]]


def _name_source(facts: Facts) -> str:
    """Return file and program of origin of a converted model; empty for others."""
    if "converted_from" not in facts:
        return ""
    files = ", ".join(f"{name}, SHA-256 {digest}" for name, digest in facts["inputs"].items())
    return f"{files}, of {facts['converted_from']}"

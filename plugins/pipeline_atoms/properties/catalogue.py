"""Calculation of all properties of an experiment, one after the other."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

import h5py
from ase import Atoms
from ase.calculators.calculator import Calculator
from spglib.error import SpglibError

from pipeline_atoms.config.inference import InferOptions
from pipeline_atoms.config.properties import (
    GROUP,
    NebOptions,
    PropertyOptions,
    SurfaceOptions,
    VacancyOptions,
    name_structure,
)
from pipeline_atoms.properties.barriers import compute_barrier, list_hops
from pipeline_atoms.properties.elasticity import compute_elastic_constants
from pipeline_atoms.properties.equation_of_state import compute_equation_of_state
from pipeline_atoms.properties.findings import Findings, Tasks, refuse
from pipeline_atoms.properties.glasses import compute_glass
from pipeline_atoms.properties.phonons import compute_phonons
from pipeline_atoms.properties.relaxation import compute_relaxation
from pipeline_atoms.properties.surfaces import list_surfaces
from pipeline_atoms.properties.vacancies import list_vacancies

Read = Callable[[str, str], Atoms]
"""Function (start, key of the experiment) -> structure."""

_PROBLEMS: Final = (ValueError, ArithmeticError, RuntimeError, SpglibError)
"""Errors raised for structures outside the training data, here and in libraries."""
_OF_STRUCTURE: Final[Mapping[str, Callable[..., Findings]]] = {
    "relax": compute_relaxation,
    "eos": compute_equation_of_state,
    "elastic": compute_elastic_constants,
    "phonons": compute_phonons,
    "melt_quench": compute_glass,
}


def compute_properties(
    options: InferOptions, calculator: Calculator, read: Read, file: h5py.File
) -> dict[str, Any]:
    """Calculate all properties, and write each when it is done: section / entry / structure.

    If the property of a structure fails, the error is written as its `problem`, and the others
    follow.

    Args:
        options: Properties to calculate.
        calculator: Any calculator of ASE.
        read: Function that reads a structure.
        file: Receives the group `properties`, if there are any.

    Returns:
        Summaries by section, entry and structure.

    Raises:
        ValueError: A structure cannot be read.
    """
    found: dict[str, Any] = {}
    for section, entry in options.list_properties():
        group = file.create_group(f"{GROUP}/{section}/{entry.name}", track_order=True)
        summaries = found.setdefault(section, {}).setdefault(entry.name, {})
        for name, formula, compute in _list_tasks(section, entry, calculator, read):
            findings = _try(formula, compute)
            findings.store(group.create_group(name, track_order=True))
            summaries[name] = dict(findings.summary)
    return found


def _list_tasks(
    section: str, entry: PropertyOptions, calculator: Calculator, read: Read
) -> Iterator[tuple[str, str, Callable[[], Findings]]]:
    """Yield the name and the formula of a structure, with a function that computes the property."""
    place = f"infer.{section}"
    list_parts = _choose_parts(entry, calculator, lambda start: read(start, place))
    for start in entry.structures:
        atoms, name = read(start, place), name_structure(start)
        formula = _name_formula(atoms)
        if list_parts is None:
            yield name, formula, partial(_OF_STRUCTURE[section], atoms, calculator, entry)
        else:
            tasks = _list_sites(name, list_parts(atoms))
            yield from ((one, formula, task) for one, task in tasks)
    if isinstance(entry, NebOptions):
        for path in entry.paths:
            ends = read(path.initial, place), read(path.final, place)
            task = partial(compute_barrier, *ends, calculator, entry)
            yield path.name, _name_formula(ends[0]), task


def _choose_parts(
    entry: PropertyOptions, calculator: Calculator, read: Callable[[str], Atoms]
) -> Callable[[Atoms], Tasks] | None:
    """Return a function that lists the tasks of a structure; None if it has a single task."""
    if isinstance(entry, VacancyOptions):
        reservoirs = {symbol: read(start) for symbol, start in entry.reservoirs.items()}
        return lambda atoms: list_vacancies(atoms, calculator, entry, reservoirs)
    if isinstance(entry, SurfaceOptions):
        return lambda atoms: list_surfaces(atoms, calculator, entry)
    if isinstance(entry, NebOptions):
        return lambda atoms: list_hops(atoms, calculator, entry)
    return None


def _name_formula(atoms: Atoms) -> str:
    return str(atoms.symbols.get_chemical_formula(empirical=True))


def _list_sites(name: str, tasks: Tasks) -> Tasks:
    """Yield the tasks of one structure; if listing them fails, one task that raises the error."""
    try:
        for site, compute in tasks:
            yield f"{name}: {site}", compute
    except ValueError as error:
        yield name, partial(refuse, error)


def _try(formula: str, compute: Callable[[], Findings]) -> Findings:
    """Return the findings with the formula of the structure, or the reason of a failure."""
    try:
        found = compute()
    except _PROBLEMS as error:
        return Findings({"formula": formula, "problem": str(error) or type(error).__name__})
    return replace(found, summary={"formula": formula, **found.summary})

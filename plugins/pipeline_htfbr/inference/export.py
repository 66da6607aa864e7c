"""A fitted surface as files for other programs: sum of products and hierarchical form."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from pipeline_core.artifacts import store
from pipeline_core.project.run import Run
from pipeline_core.units import HARTREE
from pipeline_htfbr.data.molecule import Molecule
from pipeline_htfbr.graph.build import TreeStructure
from pipeline_htfbr.inference import read_surface
from pipeline_htfbr.inference.terms import Terms, TooManyTerms, expand
from pipeline_htfbr.model import Surface
from pipeline_htfbr.options import HTInferOptions

SCHEMA = "plugin/htfbr/hierarchical"


def export_surface(
    run: Run, surface: Surface, structure: TreeStructure, molecule: Molecule | None
) -> dict[str, Any]:
    """Write `hierarchical.h5`, `sum_of_products.txt` and their reader program beside the results.

    If too many products would be needed, no text is written.

    Args:
        run: The run.
        surface: The surface in float64, on the CPU.
        structure: Coordinates, leaves and tree of the surface.
        molecule: The coordinates as functions of atomic positions; None if unknown.

    Returns:
        Number of products, the largest error of the dropped ones (hartree), the files.
    """
    pairs = zip(structure.coordinates, structure.leaves, strict=True)
    coordinates = [asdict(coordinate) | asdict(leaf) for coordinate, leaf in pairs]
    content = molecule.to_dict() if molecule else None
    names = ("hierarchical.h5", "read_surface.py", "sum_of_products.txt")
    binary, reader, text = (run.folder / name for name in names)
    with store.create(binary, SCHEMA, run.make_provenance("infer")) as file:
        file.attrs["coordinates"] = json.dumps(coordinates)
        file.attrs["molecule"] = json.dumps(content)
        file.attrs["energy_unit"] = "hartree"
        file.attrs["shift"] = float(surface.shift) / HARTREE
        file.attrs["scale"] = float(surface.scale) / HARTREE
        _write_tree(file, surface)
    with store.write_atomic(reader) as temporary:
        shutil.copyfile(read_surface.__file__, temporary)
    terms, problem = _expand_terms(surface, run.get_section("infer", HTInferOptions))
    if terms is None:
        text.unlink(missing_ok=True)
        return {"terms": None, "problem": problem, "files": list(names[:2])}
    write_text(text, terms, coordinates, content)
    return {"terms": len(terms.c), "error_bound": terms.error_bound, "files": list(names)}


def _expand_terms(surface: Surface, options: HTInferOptions) -> tuple[Terms | None, str]:
    """Return the products, or the reason why there are none."""
    try:
        return expand(surface, options.export_tolerance, options.max_terms), ""
    except TooManyTerms as error:
        return None, (
            f"infer.max_terms = {options.max_terms} products do not reach infer.export_tolerance = "
            f"{options.export_tolerance:g} hartree ({error}), so the hierarchical form alone was "
            "written; raise one of the two"
        )


def write_text(
    path: Path, terms: Terms, coordinates: list[dict[str, Any]], molecule: dict[str, Any] | None
) -> None:
    """Write terms as a self-describing text file."""
    head = [f"# {line}".rstrip() for line in _HEADER.splitlines()]
    if molecule:
        head += [f"# {_MOLECULE}", f"# {json.dumps(molecule)}"]
    head += ["format 1", f"shift {terms.shift:.17g}", f"error_bound {terms.error_bound:.3g}"]
    keys = ("family", "degree", "lower", "upper", "period", "unit", "name")
    for one in coordinates:
        head.append(" ".join(["coordinate", *(_encode_word(one[key]) for key in keys)]))
    head.append(f"terms {len(terms.c)}")
    with store.write_atomic(path) as temporary, temporary.open("wb") as file:
        file.write(("\n".join(head) + "\n").encode())
        width = len(str(terms.functions.max(initial=0)))
        columns = ["%24.16e", *[f"%{width}d"] * terms.functions.shape[1]]
        np.savetxt(file, np.column_stack([terms.c, terms.functions]), columns)


def _encode_word(value: Any) -> str:
    if value is None:
        return "nan"
    return f"{value:.17g}" if isinstance(value, float) else str(value)


def _write_tree(group: h5py.Group, surface: Surface) -> None:
    children = np.array([(node.left, node.right) for node in surface.shape.nodes])
    group.create_dataset("children", data=children)
    for i, B in enumerate(surface.shape.split_transfers(surface.transfers)):
        group.create_dataset(f"B_{i}", data=B.detach().numpy())
    for mu, matrix in enumerate(surface.maps):
        group.create_dataset(f"map_{mu}", data=matrix.detach().numpy())


_HEADER = """A potential energy surface as a sum of products of functions of one coordinate each,

    V(x) = shift + sum_t c[t] prod_mu phi_mu,f[t, mu](x_mu)          hartree

Anywhere in the domain it differs from the fitted surface by no more than error_bound.

Lines:
    shift        shift, hartree
    error_bound  hartree
    coordinate   family, degree, lower a, upper b, period p (nan: none), unit, name; one line for
                 each coordinate mu = 0, 1, ...
    terms        number of the lines that follow
    c f f ...    coefficient (hartree), then the number of the function of each coordinate

Functions of x, numbered from 0, with s = 2 (x - a)/(b - a) - 1:
    chebyshev    T_0(s), T_1(s), ..., T_degree(s)           first kind
    legendre     sqrt(2 m + 1) P_m(s), m = 0, 1, ..., degree
    cosine       1, cos(2 pi x/p), ..., cos(2 pi degree x/p)
    fourier      1, cos(2 pi x/p), sin(2 pi x/p), ..., sin(2 pi degree x/p)

read_surface.py evaluates this file."""

_MOLECULE = (
    "Molecule: atoms are numbered from 0, masses in atomic mass units, positions in angstrom."
)

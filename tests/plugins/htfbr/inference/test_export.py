"""Exported surfaces. Oracle: the surface itself, and the exported program where no project is."""

import json
import subprocess
import sys
import textwrap
from dataclasses import replace

import h5py
import numpy as np
import pytest
import torch
import yaml

from pipeline_core.units import HARTREE
from pipeline_htfbr.data.hono import HONO
from pipeline_htfbr.data.points import Coordinate
from pipeline_htfbr.graph.basis import Leaf
from pipeline_htfbr.graph.build import TreeStructure
from pipeline_htfbr.graph.dimension_tree import build_balanced, make_nodes
from pipeline_htfbr.inference.export import export_surface, write_text
from pipeline_htfbr.inference.read_surface import load
from pipeline_htfbr.inference.terms import Terms, TooManyTerms, expand
from pipeline_htfbr.model import Surface
from pipeline_kernels.tree import TreeShape
from plugins.htfbr.additive import (
    build_additive,
    draw_hono_points,
    make_hono_leaves,
    make_hono_sections,
)

FAMILIES = ("chebyshev", "legendre", "cosine", "fourier")

GUARD = """
    import runpy, sys
    class Guard:
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] in ("torch", "scipy", "ase") or name.startswith("pipeline_"):
                raise ImportError(f"{name} must not be needed")
    sys.meta_path.insert(0, Guard())
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
"""


def draw_surface(families, degree=4, rank=5, *, leaf_ranks=None, nesting=None, decay=0.0, seed=0):
    """A tree with random weights; `decay` makes those of higher numbers smaller."""
    d = len(families)
    leaves = [
        Leaf(family=family, degree=degree, lower=1.0 + mu, upper=2.5 + mu, period=3.0)
        for mu, family in enumerate(families)
    ]
    counts = tuple(leaf_ranks or (leaf.count for leaf in leaves))
    tree = make_nodes(nesting or build_balanced(range(d)), [rank] * (d - 2) + [1])
    module = Surface(leaves, TreeShape(counts, tree), gradients=False).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            draws = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(0.3 * draws)
        for B in module.shape.split_transfers(module.transfers):
            i, j, _ = torch.meshgrid(*map(torch.arange, B.shape), indexing="ij")
            B.mul_(torch.exp(-decay * (i + j).double()))
        module.shift.fill_(-40.0)
        module.scale.fill_(2.5)
    return module


def read_structure(module):
    d = len(module.leaves)
    coordinates = [Coordinate(name=f"x {mu}", unit="1", period=3.0) for mu in range(d)]
    return TreeStructure(tuple(coordinates), module.leaves, build_balanced(range(d)))


def draw_places(module, n=20, seed=1):
    lower, upper = np.array([(leaf.lower, leaf.upper) for leaf in module.leaves]).T
    return np.random.default_rng(seed).uniform(lower, upper, (n, len(lower)))


def compute_expected(module, x):
    """Energies and gradients by torch, hartree."""
    place = torch.from_numpy(x).requires_grad_()
    energy = module.energies(place)
    (gradient,) = torch.autograd.grad(energy.sum(), place)
    return energy.detach().numpy() / HARTREE, gradient.numpy() / HARTREE


def add_up(terms, module, x):
    """Return the sum of products at some points, hartree."""
    tables = [
        leaf.functions(torch.from_numpy(column)).numpy()
        for leaf, column in zip(module.leaves, x.T, strict=True)
    ]
    values = np.full(len(x), terms.shift)
    for start in range(0, len(terms.c), 5000):
        rows = slice(start, start + 5000)
        product = terms.c[rows, None]
        for table, numbers in zip(tables, terms.functions[rows].T, strict=True):
            product = product * table[numbers]
        values += product.sum(0)
    return values


@pytest.fixture(scope="module")
def run(tmp_path_factory, project):
    return project(tmp_path_factory.mktemp("export"), draw_hono_points(), make_hono_sections())


def export_into(run, module, folder, **options):
    """Export into a folder of its own."""
    section = run.sections["infer"].model_copy(update=options)
    run = replace(run, folder=folder, sections={**run.sections, "infer": section})
    summary = export_surface(run, module, read_structure(module), None)
    return run.folder, summary


@pytest.mark.parametrize("name", ["sum_of_products.txt", "hierarchical.h5"])
@pytest.mark.parametrize("leaf_ranks", [None, (3, 2, 4, 3, 2)])
def test_files_give_the_surface(run, tmp_path, name, leaf_ranks):
    """All families, an unbalanced tree, leaves with and without maps."""
    module = draw_surface(
        [*FAMILIES, "legendre"], leaf_ranks=leaf_ranks, nesting=[[2, [0, 4]], [1, 3]]
    )
    folder, summary = export_into(run, module, tmp_path, export_tolerance=1e-9)
    x = draw_places(module)
    energy, gradient = compute_expected(module, x)

    surface = load(folder / name)

    assert summary["error_bound"] <= 1e-9
    assert np.allclose(surface.energy(x), energy, rtol=1e-13, atol=1e-9)
    assert np.allclose(surface.gradient(x), gradient, rtol=1e-10, atol=1e-7)
    assert surface.energy(x[0]) == pytest.approx(energy[0], abs=1e-9)
    assert surface.gradient(x[0]).shape == (5,)
    assert [one.name for one in surface.coordinates] == [f"x {mu}" for mu in range(5)]


@pytest.mark.slow
def test_the_program_needs_nothing_of_the_project(run, tmp_path):
    module = draw_surface(FAMILIES)
    folder, _ = export_into(run, module, tmp_path)
    x = draw_places(module, 1)
    energy, gradient = compute_expected(module, x)

    for file in ("sum_of_products.txt", "hierarchical.h5"):
        command = [sys.executable, "-c", textwrap.dedent(GUARD), "read_surface.py", file]
        numbers = [repr(float(one)) for one in x[0]]
        done = subprocess.run(
            [*command, *numbers], cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.stderr == ""
        words = [line.split() for line in done.stdout.splitlines()]
        assert float(words[0][1]) == pytest.approx(energy[0], abs=1e-8)
        assert np.allclose([float(line[-2]) for line in words[1:]], gradient[0], atol=1e-6)


@pytest.mark.parametrize("family", ["chebyshev", "legendre"])
@pytest.mark.parametrize("tolerance", [1e-8, 1e-4, 1e-2])
def test_dropped_terms_stay_below_the_tolerance(family, tolerance):
    module = draw_surface([family] * 6, degree=5, rank=6, decay=0.7)
    terms = expand(module, tolerance, 10**6)
    corners = np.array([(leaf.lower, leaf.upper) for leaf in module.leaves])
    mesh = np.stack(np.meshgrid(*corners, indexing="ij"), -1).reshape(-1, 6)
    x = np.concatenate(
        [draw_places(module, 100), mesh]
    )  # the bound is reached in corners, if anywhere

    error = np.abs(add_up(terms, module, x) - compute_expected(module, x)[0]).max()

    assert 0 < error <= terms.error_bound <= tolerance
    assert len(terms.c) < 6**6  # something was dropped


def test_twelve_coordinates_are_pruned_on_the_way():
    """All 5^12 products would be 2 GB; those of a decaying tree are few."""
    module = draw_surface(["chebyshev"] * 12, degree=4, rank=10, decay=2.0)
    terms = expand(module, 1e-8, 2_000_000)
    x = draw_places(module, 10)
    error = np.abs(add_up(terms, module, x) - compute_expected(module, x)[0]).max()
    assert error <= terms.error_bound <= 1e-8


def test_too_many_terms_leave_the_hierarchical_form(run, tmp_path):
    module = draw_surface(FAMILIES)
    folder, _ = export_into(run, module, tmp_path)
    folder, summary = export_into(run, module, tmp_path, max_terms=100)

    assert summary["terms"] is None
    assert "infer.max_terms = 100 products do not reach" in summary["problem"]
    assert not (folder / "sum_of_products.txt").exists()
    x = draw_places(module)
    result = load(folder / "hierarchical.h5").energy(x)
    assert np.allclose(result, compute_expected(module, x)[0], rtol=1e-13)


def test_what_too_few_terms_would_miss_is_told():
    """Oracle: with that as its tolerance, the same number of terms suffices."""
    module = draw_surface(["chebyshev"] * 4, degree=5)
    with pytest.raises(TooManyTerms, match=r"the largest 200 leave up to \S+ hartree") as error:
        expand(module, 1e-8, 200)
    missing = float(str(error.value).split()[-2])
    assert 100 < len(expand(module, 1.2 * missing, 10**6).c) <= 200


def test_the_text_explains_itself(run, tmp_path):
    module = draw_surface(FAMILIES)
    folder, summary = export_into(run, module, tmp_path)
    lines = (folder / "sum_of_products.txt").read_text().splitlines()
    head = [line for line in lines if line.startswith("#")]
    body = [line for line in lines if not line.startswith("#")]

    for word in ("hartree", *FAMILIES, "shift", "error_bound"):
        assert any(word in line for line in head)
    assert body[3].split() == ["coordinate", "chebyshev", "4", "1", "2.5", "3", "1", "x", "0"]
    assert body[7] == f"terms {summary['terms']}"
    assert len(body) == 8 + summary["terms"]
    assert len(set(map(len, body[8:]))) == 1


def test_a_surface_of_which_no_term_is_left_is_flat(tmp_path):
    leaf = {"family": "chebyshev", "degree": 2, "lower": 0.0, "upper": 1.0, "period": None}
    coordinates = [{**leaf, "unit": "bohr", "name": name} for name in "xy"]
    path = tmp_path / "sum_of_products.txt"
    write_text(path, Terms(np.zeros(0), np.zeros((0, 2), np.int16), -1.5, 0.0), coordinates, None)
    surface = load(path)
    assert surface.energy([0.3, 0.4]) == -1.5
    assert surface.gradient([0.3, 0.4]).tolist() == [0, 0]


def test_the_file_says_what_the_coordinates_are(run, tmp_path):
    module = build_additive(make_hono_leaves(), [np.cos] * 6)
    hono = HONO()
    structure = TreeStructure(hono.coordinates, module.leaves, build_balanced(range(6)))
    run = replace(run, folder=tmp_path)
    export_surface(run, module, structure, hono.molecule)

    with h5py.File(run.folder / "hierarchical.h5") as file:
        coordinates = json.loads(file.attrs["coordinates"])
        assert json.loads(file.attrs["molecule"])["symbols"] == ["H", "O", "N", "O"]
    assert [one["unit"] for one in coordinates] == ["bohr", "bohr", "bohr", "1", "1", "radian"]
    text = (run.folder / "sum_of_products.txt").read_text()
    line = next(one for one in text.splitlines() if one.startswith('# {"symbols"'))
    assert yaml.safe_load(line[2:])["internal"][5]["kind"] == "dihedral"


def test_a_wrong_number_of_coordinates_is_explained(run, tmp_path):
    folder, _ = export_into(run, draw_surface(FAMILIES), tmp_path)
    surface = load(folder / "sum_of_products.txt")
    with pytest.raises(
        ValueError, match=r"3 numbers per point, expected one each for x 0, x 1, x 2"
    ):
        surface.energy([1.0, 2.0, 3.0])

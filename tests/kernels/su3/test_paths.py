"""Products along paths.

Oracles: torch.linalg.multi_dot path by path; torch's own derivatives of the formula (`reference`).
"""

import torch
from hypothesis import strategies as st
from torch.testing import assert_close

from kernels.contract import Call
from kernels.su3.family import LinkContract
from kernels.su3.matrices import draw_normal
from pipeline_kernels.su3 import path_products
from pipeline_kernels.su3.paths import reference


class TestPaths(LinkContract):
    folder = "su3/paths"
    tolerances = {torch.float64: 1e-13, torch.float32: 6e-5}
    # Length, places and numbers of paths.
    options = {"batch": [2], "n_links": [4], "shape": [(3, 2, 2), (1, 3, 2)], "n_colours": [3, 2]}
    few = {"batch": 1, "n_links": 3, "n_colours": 2}
    many = {"batch": 21, "n_links": 8, "shape": (3, 17, 2)}
    empty = {"batch": 0}
    random = {
        "batch": st.integers(0, 5),
        "n_links": st.integers(1, 9),
        "shape": st.tuples(st.integers(1, 5), st.integers(0, 40), st.integers(1, 4)),
    }
    interpreted = (
        {"n_links": 3, "shape": (3, 2, 2), "n_colours": 2},
        {"batch": 65, "n_links": 2, "shape": (2, 1, 2)},  # more samples than a program takes
        {"batch": 3, "n_links": 2, "shape": (4, 1, 1)},
        {"n_links": 3, "shape": (1, 3, 2), "n_colours": 2},
        {"n_links": 2, "shape": (2, 0, 1), "n_colours": 2},
    )
    refused = [
        (0, lambda links: links[0], r"links: expected \(batch, n_links, N, N\)"),
        (0, lambda links: links.real, "links: expected one dtype"),
        (1, lambda table: table[0], r"table: expected \(length, n_places, n_paths\) of .*int64"),
        (1, lambda table: table[:0], "a length above 0"),
        (2, lambda adjoint: adjoint[:, :1], r"adjoint: expected \(3, 2\) of torch.bool"),
        (2, lambda adjoint: adjoint.long(), "adjoint: expected .* of torch.bool"),
        (1, lambda table: table + 4, "table: expected numbers of 4 links"),
        (1, lambda table: table - 4, "table: expected numbers of 4 links"),
    ]

    def draw(self, generator, batch, n_links, shape, n_colours):
        seed = generator.initial_seed()
        links = draw_normal(batch, n_links, n_colours, n_colours, seed=seed)
        table = torch.randint(n_links, shape, generator=generator)
        adjoint = torch.rand(shape[0], shape[2], generator=generator) < 0.5
        return Call(path_products, reference.path_products, [links], [table, adjoint])


def test_paths_are_multiplied_one_by_one(implementation):
    call = TestPaths().make(n_links=6, shape=(4, 3, 5))
    (links,), (table, adjoint) = call.tensors, call.constants
    result = path_products(links, table, adjoint)
    for a, p in torch.cartesian_prod(torch.arange(3), torch.arange(5)):
        for b in range(len(links)):
            factors = [
                links[b, n].mH if backwards else links[b, n]
                for n, backwards in zip(table[:, a, p], adjoint[:, p], strict=True)
            ]
            assert_close(result[b, a, p], torch.linalg.multi_dot(factors))

"""The libraries in C: of which files each is made, with which macros it is compiled.

Imported by `setup.py` too, so nothing but numpy is needed here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import NamedTuple

from pipeline_kernels.equivariant.couplings import COMMON, write_couplings

FOLDER = Path(__file__).parent
REAL: Mapping[str, tuple[str, ...]] = {"REAL": ("float", "double")}


class Source(NamedTuple):
    """A library in C.

    Attributes:
        files: its C, one file after the other, relative to this folder.
        macros: values of each macro for which it is compiled.
        preludes: writes what stands before the files; each makes libraries of its own.
    """

    files: tuple[str, ...]
    macros: Mapping[str, tuple[str, ...]] = REAL
    preludes: Callable[[], Sequence[str]] = lambda: ("",)

    @property
    def variants(self) -> Iterator[dict[str, str]]:
        """Macros of each library that is made of it."""
        for values in product(*self.macros.values()):
            yield dict(zip(self.macros, values, strict=True))


LAYOUTS = tuple((lmax, mmax) for lmax in range(1, 5) for mmax in (0, lmax))  # of eGNN-ESP


def write_layout(lmax: int, mmax: int) -> str:
    """Write the macros of a layout for native.c of `so2`."""
    degrees = " ".join(f"F({degree})" for degree in range(lmax + 1))
    return f"#define LMAX {lmax}\n#define MMAX {mmax}\n#define DEGREES(F) {degrees}\n"


COLOURS: Mapping[str, tuple[str, ...]] = {"N": ("2", "3"), **REAL}
DOUBLE = {"REAL": ("double",)}
LANES, SIGMOID = "lanes.c", "sigmoid.c"  # the second uses the first
PRODUCTS = (LANES, "products.c")
ACTIVATED = (*PRODUCTS, SIGMOID)
SPLINES = (LANES, "hermite/polynomials.c")
MATRICES = ("su3/vectors.c", "su3/matrices.c", "su3/blocks.c")  # where each matrix stands alone
SAMPLES = (LANES, "su3/fields.c")  # where links of a sample meet

SOURCES = {
    "contraction": Source((LANES, "equivariant/contraction/native.c")),
    "density": Source((*ACTIVATED, "equivariant/density/native.c"), DOUBLE),
    "dirac": Source(
        (*SAMPLES, *(f"dirac/{part}.c" for part in ("lattice", "hops", "gradient", "solver"))),
        {**COLOURS, "D": ("2", "4")},
    ),
    "edges": Source((*SPLINES, "equivariant/edges/native.c")),
    "feed_forward": Source((*ACTIVATED, "equivariant/feed_forward/native.c")),
    "gated": Source((LANES, SIGMOID, "message/gated/native.c")),
    "hermite": Source((*SPLINES, "hermite/native.c")),
    "linear": Source((*PRODUCTS, "equivariant/linear/native.c")),
    "segments": Source((LANES, "message/segments/native.c")),
    "silu": Source((LANES, SIGMOID, "message/silu/native.c")),
    "softmax": Source((LANES, "message/softmax/native.c")),
    "so2": Source(
        (*PRODUCTS, "equivariant/so2/native.c", "equivariant/so2/passes.c"),
        preludes=lambda: [write_layout(lmax, mmax) for lmax, mmax in LAYOUTS],
    ),
    "su3_exponential": Source((*MATRICES, "su3/exponential/native.c"), COLOURS),
    "su3_paths": Source((*SAMPLES, "su3/paths/native.c"), COLOURS),
    "su3_projection": Source((*MATRICES, "su3/projection/native.c"), COLOURS),
    "su3_residual": Source(
        (
            *(*MATRICES, "su3/exponential/native.c", "su3/algebra.c"),
            *("su3/residual/psi.c", "su3/residual/native.c"),
        ),
        COLOURS,
    ),
    "su3_spectral": Source(
        (
            *(*MATRICES, "su3/spectral/decomposition.c", "su3/splines/native.c"),
            "su3/spectral/native.c",
        ),
        COLOURS,
    ),
    "su3_staples": Source((*SAMPLES, "su3/staples/native.c"), COLOURS),
    "tall": Source((*PRODUCTS, "message/tall/native.c")),
    "tensor_product": Source(
        (
            *PRODUCTS,
            *(f"equivariant/tensor_product/{x}.c" for x in ("native", "interpolated", "tangents")),
            "equivariant/mixed_product/native.c",
        ),
        preludes=lambda: [write_couplings(COMMON)],
    ),
    "thread_pool": Source(("thread_pool.c",), {}),
    "tree": Source((LANES, "tree/native.c")),
    "wigner": Source((*PRODUCTS, "equivariant/wigner/native.c"), DOUBLE),
}


@cache
def write_source(name: str, prelude: str = "") -> str:
    """Return the C of a library, with a prelude in place of its first one."""
    source = SOURCES[name]
    return (prelude or source.preludes()[0]) + "".join(
        (FOLDER / file).read_text() for file in source.files
    )

"""Couplings of two representations as C, for native.c of the tensor product."""

from collections.abc import Iterable
from math import sqrt

import numpy as np

from pipeline_kernels.equivariant.clebsch_gordan import clebsch_gordan

Degrees = tuple[int, int, int]  # of a feature, of a harmonic, of the result

# What comes compiled with the package: features up to degree 2, harmonics and results up to 3.
COMMON: tuple[Degrees, ...] = tuple(
    (l1, l2, l3)
    for l1 in range(3)
    for l2 in range(4)
    for l3 in range(abs(l1 - l2), min(l1 + l2, 3) + 1)
)


def compute_coefficients(degrees: Degrees) -> np.ndarray:
    """Return the coefficients `C[m1, m2, m3]`, with `sqrt(2 l3 + 1)`, as float64."""
    return sqrt(2 * degrees[2] + 1) * clebsch_gordan(*degrees)


def write_couplings(couplings: Iterable[Degrees]) -> str:
    """Write couplings as macros and tables in C.

    | name                       | content                                                      |
    |----------------------------|--------------------------------------------------------------|
    | `COUPLINGS(F)`             | `F(i, d1, d3, n)` for each: its number, dimensions, and how  |
    |                            | many `T[m1, m3] = sum C[m1, m2, m3] Y[m2]` are not zero      |
    | `places_<i>`               | where `T[m1, m3]` lies among these, or -1                    |
    | `COUPLE_<i>`, `UNCOUPLE_<i>`| `T` from `Y`, `dY` from `dT`                                |
    | `MAX_D1`, `MAX_D3`         | largest dimensions                                           |
    """
    lines, calls, sizes = ["#include <stdint.h>"], [], []
    for i, degrees in enumerate(couplings):
        C = compute_coefficients(degrees)
        present = C.any(1)  # (m1, m3)
        places = np.where(present, np.cumsum(present).reshape(present.shape) - 1, -1)
        numbers = ", ".join(map(str, places.flatten()))
        lines.append(f"static const int16_t places_{i}[] = {{{numbers}}};")
        couple, uncouple = [], []
        for t, (m1, m3) in enumerate(np.argwhere(present)):
            pairs = [(f"(REAL){float(C[m1, m, m3])!r}", m) for m in np.flatnonzero(C[m1, :, m3])]
            couple.append(f"T[{t}] = " + " + ".join(f"{c} * Y[{m}]" for c, m in pairs) + ";")
            uncouple += [f"dY[{m}] += {c} * dT[{t}];" for c, m in pairs]
        lines += [f"#define COUPLE_{i} {' '.join(couple)}"]
        lines += [f"#define UNCOUPLE_{i} {' '.join(uncouple)}"]
        d1, _, d3 = C.shape
        calls.append(f"F({i}, {d1}, {d3}, {present.sum()})")
        sizes.append((d1, d3))
    largest = np.max(sizes, axis=0)
    lines += [f"#define MAX_D1 {largest[0]}", f"#define MAX_D3 {largest[1]}"]
    lines += [f"#define COUPLINGS(F) {' '.join(calls)}"]
    return "\n".join(lines) + "\n"

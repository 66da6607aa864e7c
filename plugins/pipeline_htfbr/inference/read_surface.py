"""Read and evaluate an exported potential energy surface. Needs numpy, and h5py for `.h5` files.

    python read_surface.py sum_of_products.txt X1 X2 ... Xd

prints the energy in hartree and its gradient in hartree per unit of each coordinate. In Python:

    from read_surface import load
    surface = load("sum_of_products.txt")         # or "hierarchical.h5"
    surface.energy(x), surface.gradient(x)        # x: (d,) or (n, d)

Two forms of one surface are stored. `sum_of_products.txt` holds

    V(x) = shift + sum_t c[t] prod_mu phi_mu,f[t, mu](x_mu),

`hierarchical.h5`, as multi-layer methods use it,

    V(x) = shift + scale u_root(x),   u_t[k](x) = sum_ij B_t[i, j, k] u_left[i](x) u_right[j](x),

where a leaf passes on its functions phi_mu, or combinations of them, sum_f phi_mu,f map_mu[f, k].
The functions of a coordinate x with domain [a, b] and period p are, with
s = 2 (x - a)/(b - a) - 1:

    chebyshev  T_0(s), T_1(s), ...               first kind
    legendre   sqrt(2 m + 1) P_m(s), m = 0, 1, ...
    cosine     1, cos(2 pi x/p), cos(2 pi 2 x/p), ...
    fourier    1, cos(2 pi x/p), sin(2 pi x/p), cos(2 pi 2 x/p), ...
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Tables = list[tuple[Floats, Floats]]

CHUNK = 2_000_000
"""Values of one coordinate that are processed at once."""


class Coordinate(NamedTuple):
    """A variable: name, unit, domain, period if it has one, and its functions."""

    name: str
    unit: str
    lower: float
    upper: float
    period: float | None
    family: str
    degree: int

    def functions(self, x: Floats) -> tuple[Floats, Floats]:
        """Return the functions at x (n,) and their derivatives, both (count, n)."""
        if self.family in ("chebyshev", "legendre"):
            slope = 2 / (self.upper - self.lower)
            values, derivatives = self._compute_polynomials(slope * (x - self.lower) - 1)
            return values, slope * derivatives
        assert self.period is not None, "all other functions are periodic"
        m = np.arange(1, self.degree + 1)[:, None]
        w = m * 2 * np.pi / self.period
        even, odd = (np.cos(w * x), -w * np.sin(w * x)), (np.sin(w * x), w * np.cos(w * x))
        both = []
        for first, cosine, sine in zip((1.0, 0.0), even, odd, strict=True):
            rows = cosine if self.family == "cosine" else np.stack([cosine, sine], axis=1)
            rest = rows.reshape(-1, len(x))
            both.append(np.concatenate([np.full((1, len(x)), first), rest]))
        return both[0], both[1]

    def _compute_polynomials(self, s: Floats) -> tuple[Floats, Floats]:
        values, derivatives = [np.ones_like(s), s], [np.zeros_like(s), np.ones_like(s)]
        for m in range(1, self.degree):
            up, down = (
                (2, 1) if self.family == "chebyshev" else ((2 * m + 1) / (m + 1), m / (m + 1))
            )
            values.append(up * s * values[-1] - down * values[-2])
            # Derivative of the recurrence; s multiplies values[-2].
            inner = values[-2] + s * derivatives[-1]
            derivatives.append(up * inner - down * derivatives[-2])
        norms = np.ones(self.degree + 1)
        if self.family == "legendre":
            norms = np.sqrt(2 * np.arange(self.degree + 1) + 1)
        count, column = self.degree + 1, norms[:, None]
        return column * np.stack(values[:count]), column * np.stack(derivatives[:count])


class _Surface:
    """Common base of both forms: coordinates, energy, gradient."""

    def __init__(self, coordinates: list[Coordinate], shift: float) -> None:
        self.coordinates, self.shift = coordinates, shift

    def energy(self, x: ArrayLike) -> Floats:
        """Return the energy at x, (d,) or (n, d): hartree, a number or (n,)."""
        energy, _ = self._evaluate(self._check_points(x), gradients=False)
        return energy if np.ndim(x) == 2 else energy[0]

    def gradient(self, x: ArrayLike) -> Floats:
        """Return the gradient at x, (d,) or (n, d): hartree per unit, of the shape of x."""
        _, gradient = self._evaluate(self._check_points(x), gradients=True)
        return gradient if np.ndim(x) == 2 else np.asarray(gradient[0])

    def _evaluate(self, points: Floats, gradients: bool) -> tuple[Floats, Floats]:
        """Return energies (n,) and gradients (n, d), which are zero without `gradients`."""
        raise NotImplementedError

    def _check_points(self, x: ArrayLike) -> Floats:
        points = np.atleast_2d(np.asarray(x, dtype=float))
        if points.shape[1] != len(self.coordinates):
            names = ", ".join(one.name for one in self.coordinates)
            raise ValueError(f"{points.shape[1]} numbers per point, expected one each for {names}")
        return points

    def _tabulate(self, points: Floats) -> Tables:
        return [one.functions(x) for one, x in zip(self.coordinates, points.T, strict=True)]


class SumOfProducts(_Surface):
    """The sum of products: c (n_terms,) hartree and function numbers f (n_terms, d)."""

    def __init__(
        self, coordinates: list[Coordinate], shift: float, c: Floats, f: NDArray[np.intp]
    ) -> None:
        super().__init__(coordinates, shift)
        self.c, self.f = c, f

    def _evaluate(self, points: Floats, gradients: bool) -> tuple[Floats, Floats]:
        energy, gradient = np.full(len(points), self.shift), np.zeros(points.shape)
        n_points = min(len(points), 64)
        n_terms = max(1, CHUNK // max(1, n_points))
        for i in range(0, len(points), n_points):
            rows = slice(i, i + n_points)
            tables = self._tabulate(points[rows])
            for start in range(0, len(self.c), n_terms):
                c, f = self.c[start : start + n_terms], self.f[start : start + n_terms]
                factors = [values[k] for (values, _), k in zip(tables, f.T, strict=True)]
                before = [c[:, None] * np.ones((1, factors[0].shape[1]))]
                for factor in factors:
                    before.append(before[-1] * factor)
                energy[rows] += before[-1].sum(0)
                if gradients:
                    gradient[rows] += self._compute_slopes(tables, f, factors, before)
        return energy, gradient

    @staticmethod
    def _compute_slopes(
        tables: Tables, f: NDArray[np.intp], factors: list[Floats], before: list[Floats]
    ) -> Floats:
        slopes, after = [], np.ones(())
        for mu in reversed(range(len(factors))):
            slopes.append((before[mu] * tables[mu][1][f[:, mu]] * after).sum(0))
            after = after * factors[mu]
        return np.stack(slopes[::-1], axis=1)


class Tree(_Surface):
    """The hierarchical form.

    `maps` holds a matrix (count, rank) for each leaf, or None where the functions are passed on as
    they are; `nodes` the left slot, right slot and tensor B of each interior node, children before
    parents. Slots 0 ... d-1 are the leaves, slot d + i is node i.
    """

    def __init__(
        self,
        coordinates: list[Coordinate],
        shift: float,
        scale: float,
        maps: Sequence[Floats | None],
        nodes: Sequence[tuple[int, int, Floats]],
    ) -> None:
        super().__init__(coordinates, shift)
        self.scale, self.maps, self.nodes = scale, maps, nodes

    def _evaluate(self, points: Floats, gradients: bool) -> tuple[Floats, Floats]:
        slots: list[Floats] = []
        slopes: list[Floats] = []
        for table, matrix in zip(self._tabulate(points), self.maps, strict=True):
            for rows, values in zip((slots, slopes), table, strict=True):
                rows.append(values if matrix is None else matrix.T @ values)
        for left, right, B in self.nodes:
            slots.append(np.einsum("in,jn,ijk->kn", slots[left], slots[right], B, optimize=True))
        energy = self.shift + self.scale * slots[-1][0]
        if not gradients:
            return energy, np.zeros(points.shape)
        outer = [np.ones((1, len(points))) for _ in slots]
        for i in reversed(range(len(self.nodes))):
            left, right, B = self.nodes[i]
            above = outer[len(self.coordinates) + i]
            outer[left] = np.einsum("ijk,jn,kn->in", B, slots[right], above, optimize=True)
            outer[right] = np.einsum("ijk,in,kn->jn", B, slots[left], above, optimize=True)
        gradient = [(g * slope).sum(0) for g, slope in zip(outer, slopes, strict=False)]
        return energy, self.scale * np.stack(gradient, axis=1)


def load(path: str | Path) -> SumOfProducts | Tree:
    """Read a surface: the sum of products from `.txt`, the hierarchical form from `.h5`."""
    path = Path(path)
    if path.suffix == ".txt":
        return _load_text(path)
    import h5py

    with h5py.File(path, "r") as file:
        coordinates = [Coordinate(**one) for one in json.loads(file.attrs["coordinates"])]
        maps = [
            file[f"map_{mu}"][()] if f"map_{mu}" in file else None for mu in range(len(coordinates))
        ]
        nodes = [
            (int(left), int(right), file[f"B_{i}"][()])
            for i, (left, right) in enumerate(file["children"][()])
        ]
        scale, shift = float(file.attrs["scale"]), float(file.attrs["shift"])
    return Tree(coordinates, shift, scale, maps, nodes)


def _load_text(path: Path) -> SumOfProducts:
    coordinates: list[Coordinate] = []
    shift = 0.0
    with path.open(encoding="utf-8") as file:
        for line in file:
            key, _, rest = line.partition(" ")
            if key == "shift":
                shift = float(rest)
            elif key == "coordinate":
                family, degree, lower, upper, period, unit, name = rest.split(maxsplit=6)
                numbers = float(lower), float(upper), float(period)
                coordinates.append(Coordinate(name.strip(), unit, *numbers, family, int(degree)))
            elif key == "terms":
                break
        table = np.zeros((0, 1 + len(coordinates)))
        if int(rest):
            table = np.loadtxt(file, ndmin=2, max_rows=int(rest))
    return SumOfProducts(coordinates, shift, table[:, 0], table[:, 1:].astype(np.intp))


def main(arguments: Sequence[str] | None = None) -> None:
    """Evaluate a surface at a point given on the command line."""
    parser = argparse.ArgumentParser(description="Evaluate an exported potential energy surface.")
    parser.add_argument("file", help="sum_of_products.txt or hierarchical.h5")
    parser.add_argument("x", nargs="+", type=float, help="the coordinates")
    options = parser.parse_args(arguments)
    try:
        surface = load(options.file)
        energy, gradient = surface.energy(options.x), surface.gradient(options.x)
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
    sys.stdout.write(f"energy {energy:.12g} hartree\n")
    for one, slope in zip(surface.coordinates, gradient, strict=True):
        sys.stdout.write(f"d/d {one.name} {slope:.12g} hartree/{one.unit}\n")


if __name__ == "__main__":
    main()

"""Wilson's operator with a twisted mass for given links: on all sites and on the odd ones."""

from collections.abc import Sequence

import torch
from torch import Tensor

from pipeline_kernels.checks import check_tensor
from pipeline_kernels.dirac import cpu
from pipeline_kernels.dirac.geometry import ALL, EVEN, ODD, choose_boundary
from pipeline_kernels.dirac.op import check_links, combine_hops, gather_gradient
from pipeline_kernels.dirac.reference import multiply_diagonal


class DiracOperator:
    """M = 1 - kappa H + i mu~ gamma5 and its even-odd preconditioned form, for given links.

    Args:
        links: U, `(batch, D, V, N, N)`, complex64 or complex128; not to be changed afterwards.
            Results are differentiable by them if they require it.
        extents: sites along each direction, time first, all even.
        kappa: hopping parameter.
        two_kappa_mu: mu~ = 2 kappa mu; the other flavour of a doublet has -mu~.
        boundary: a sign for each direction; by default -1 for time, 1 for space.

    Raises:
        ValueError: if links and extents do not fit together.
    """

    def __init__(
        self,
        links: Tensor,
        extents: Sequence[int],
        kappa: float,
        two_kappa_mu: float = 0.0,
        boundary: Sequence[int] | None = None,
    ) -> None:
        boundary = choose_boundary(extents) if boundary is None else boundary
        check_links(links, extents, boundary)
        self.links, self.extents, self.boundary = links, tuple(extents), tuple(boundary)
        self.kappa, self.two_kappa_mu = kappa, two_kappa_mu
        self.packed = cpu.pack_links(links, self.extents, self.boundary)

    def with_mass(self, two_kappa_mu: float) -> "DiracOperator":
        """Return the operator of the same links and kappa with another twisted mass."""
        other = object.__new__(DiracOperator)
        other.__dict__.update(self.__dict__, two_kappa_mu=two_kappa_mu)
        return other

    def convert(self, dtype: torch.dtype) -> "DiracOperator":
        """Return the operator with links of another type."""
        links = self.links.detach().to(dtype)
        return DiracOperator(links, self.extents, self.kappa, self.two_kappa_mu, self.boundary)

    def apply(self, psi: Tensor, *, adjoint: bool = False) -> Tensor:
        """Return M psi or M^dagger psi, of spinors `(batch, n_rhs, V, S, N)`."""
        self.check("psi", psi, ALL)
        mu = -self.two_kappa_mu if adjoint else self.two_kappa_mu
        return self._combine(psi, psi, (-self.kappa, 0.0, 1.0, mu), ALL, adjoint)

    def apply_even_odd(self, psi: Tensor, *, adjoint: bool = False) -> Tensor:
        """Return Mhat psi or Mhat^dagger psi, spinors on odd sites `(batch, n_rhs, V/2, S, N)`."""
        self.check("psi", psi, ODD)
        mu = -self.two_kappa_mu if adjoint else self.two_kappa_mu
        even = self._hop_to_even(psi, adjoint)
        return self._combine(even, psi, (-(self.kappa**2), 0.0, 1.0, mu), ODD, adjoint)

    def hop(self, psi: Tensor, parity: int = ALL, *, adjoint: bool = False) -> Tensor:
        """Return H psi; of one parity from spinors of the other."""
        self.check("psi", psi, parity)
        return self._combine(psi, None, (1.0, 0.0, 0.0, 0.0), parity, adjoint)

    def differentiate_even_odd(self, chi: Tensor, psi: Tensor) -> Tensor:
        """Return the derivative of Re(chi^dagger Mhat psi) by the links, summed over `n_rhs`.

        Args:
            chi: spinors on odd sites, `(batch, n_rhs, V/2, S, N)`.
            psi: spinors of the same shape.

        Returns:
            G, `(batch, D, V, N, N)`, with d Re(chi^dagger Mhat psi) = Re sum conj(G) dU.
        """
        self.check("chi", chi, ODD)
        self.check("psi", psi, ODD)
        tables = [*self.extents], [*self.boundary]
        by_hops = gather_gradient(chi, self._hop_to_even(psi, False), *tables, ODD, False)
        by_hops = by_hops + gather_gradient(self._hop_to_even(chi, True), psi, *tables, EVEN, False)
        return -(self.kappa**2) * by_hops

    def invert_diagonal(self, psi: Tensor) -> Tensor:
        """Return (1 + i mu~ gamma5)^-1 psi."""
        scale = 1 / (1 + self.two_kappa_mu**2)
        return multiply_diagonal(psi, scale, -self.two_kappa_mu * scale)

    def _hop_to_even(self, psi: Tensor, adjoint: bool) -> Tensor:
        """Return (1 + i mu~ gamma5)^-1 H_eo psi, or the same with both adjoint."""
        scale, mu = 1 / (1 + self.two_kappa_mu**2), self.two_kappa_mu
        turn = (mu if adjoint else -mu) * scale
        return self._combine(psi, None, (scale, turn, 0.0, 0.0), EVEN, adjoint)

    def _combine(
        self,
        psi: Tensor,
        other: Tensor | None,
        factors: tuple[float, float, float, float],
        parity: int,
        adjoint: bool,
    ) -> Tensor:
        return combine_hops(
            psi,
            other,
            self.links,
            self.packed,
            factors,
            self.extents,
            self.boundary,
            parity,
            adjoint,
        )

    def check(self, name: str, psi: Tensor, parity: int) -> None:
        """Refuse spinors that the operator does not take.

        Args:
            name: of the argument, for the message.
            psi: the argument.
            parity: its sites: `geometry.ALL`, or one of the others for half of them.

        Raises:
            ValueError: if so.
        """
        if parity not in (EVEN, ODD, ALL):
            raise ValueError(f"parity: expected 0 (even), 1 (odd) or 2 (all sites), got {parity}")
        batch, n_dimensions, n_sites, *_, n_colours = self.links.shape
        n_sites = n_sites if parity == ALL else n_sites // 2
        shape = batch, "n_rhs", n_sites, n_dimensions, n_colours
        check_tensor(name, psi, shape, (self.links.dtype,), self.links.device)

"""Wilson's operator in plain PyTorch as one would write it for speed: the peer of `dirac`.

Both ways multiply links with half spinors only. Colours come before spins and right-hand sides, so
that a link multiplies all of them in one product of matrices; kappa and the boundary are in the
links.
"""

import torch
from torch import Tensor

from pipeline_kernels.dirac.geometry import apply_signs, find_neighbours
from pipeline_kernels.dirac.reference import make_gammas


def order_plain(psi: Tensor) -> Tensor:
    """Return spinors (1, n_rhs, V, S, N) as (V, N, S, n_rhs)."""
    return psi[0].permute(1, 3, 2, 0).contiguous()


class DirectionByDirection:
    """One direction after the other, in place.

    Args:
        links: (1, D, V, N, N).
        extents: Sites along each direction.
        kappa: Hopping parameter.
        boundary: Signs of the boundary.
    """

    def __init__(self, links: Tensor, extents: tuple[int, ...], kappa: float, boundary) -> None:
        scaled = -kappa * apply_signs(links, extents, boundary)[0]
        self.ahead, self.behind = find_neighbours(tuple(extents), links.device)
        self.forward = scaled
        self.backward = torch.stack(
            [U.mH[behind] for U, behind in zip(scaled, self.behind, strict=True)]
        ).resolve_conj()
        gammas, _ = make_gammas(len(extents), links.device)
        half = len(extents) // 2
        corners = gammas[:, :half, half:]
        self.columns = [[int(row.abs().argmax()) for row in corner] for corner in corners]
        phases = corners.sum(2).to(links.dtype)  # one number a row
        self.phases = phases[:, :, None]
        self.back = torch.stack(
            [phase[column].conj() for phase, column in zip(phases, self.columns, strict=True)]
        )[:, :, None].resolve_conj()
        self.half = half

    def __call__(self, psi: Tensor) -> Tensor:
        """Return M psi, (V, N, S, n_rhs)."""
        V, N, _, n_rhs = psi.shape
        out, half = psi.clone(), self.half
        for mu, column in enumerate(self.columns):
            swapped = column[0] != 0
            for sites, links, sign in (
                (self.ahead[mu], self.forward[mu], -1),
                (self.behind[mu], self.backward[mu], 1),
            ):
                there = psi.index_select(0, sites)
                lower = there[:, :, half:]
                lower = lower.flip(2) if swapped else lower
                h = torch.addcmul(there[:, :, :half], lower, self.phases[mu], value=sign)
                moved = torch.bmm(links, h.reshape(V, N, half * n_rhs)).view(V, N, half, n_rhs)
                out[:, :, :half].add_(moved)
                moved = moved.flip(2) if swapped else moved
                out[:, :, half:].addcmul_(moved, self.back[mu], value=sign)
        return out


class AllAtOnce:
    """All hops gathered into one product of matrices, spins by matrix products too.

    Args:
        links: (1, D, V, N, N).
        extents: Sites along each direction.
        kappa: Hopping parameter.
        boundary: Signs of the boundary.
    """

    def __init__(self, links: Tensor, extents: tuple[int, ...], kappa: float, boundary) -> None:
        each = DirectionByDirection(links, extents, kappa, boundary)
        self.sites = torch.cat([each.ahead, each.behind]).flatten()
        self.links = torch.cat([each.forward, each.backward]).flatten(0, 1)
        gammas, _ = make_gammas(len(extents), links.device)
        one, half = torch.eye(len(extents)), len(extents) // 2
        projectors = torch.cat([one - gammas, one + gammas]).to(links.dtype)  # (2 D, S, S)
        self.project = projectors[:, None, :half]
        # lower rows of a projector are multiples of its upper ones
        spread = projectors[:, :, :half].clone()
        self.spread = spread[:, None]
        self.volume = links.shape[2]

    def __call__(self, psi: Tensor) -> Tensor:
        """Return M psi, (V, N, S, n_rhs)."""
        V, N, S, n_rhs = psi.shape
        n_hops = len(self.project)
        there = psi.index_select(0, self.sites).view(n_hops, V * N, S, n_rhs)
        h = torch.matmul(self.project, there).view(n_hops * V, N, -1)
        moved = torch.bmm(self.links, h).view(n_hops, V * N, S // 2, n_rhs)
        return psi + torch.matmul(self.spread, moved).sum(0).view_as(psi)

"""The side of the benchmark `dirac` that runs qcd_ml (github.com/daknuett/qcd_ml, GPL-3.0)."""

import itertools
from typing import Any

import numpy as np
import torch
from qcd_ml.qcd.dirac import dirac_wilson
from qcd_ml.qcd.static import gamma

torch.set_default_dtype(torch.float64)


class Operator:
    """Its Wilson operator on each right-hand side, periodic, in double precision.

    Args:
        arrays: `links` (D, V, N, N), `psi` (n_rhs, V, S, N), `gammas` (D, S, S) of ours.
        options: `extents` and `kappa`.
    """

    def __init__(self, arrays: dict[str, np.ndarray], options: dict[str, Any]) -> None:
        links, psi, ours = (torch.tensor(arrays[name]) for name in ("links", "psi", "gammas"))
        extents, self.kappa = options["extents"], options["kappa"]
        self.basis = match_gammas(ours, torch.stack(list(gamma)))
        self.shape = psi.shape
        self.operator = dirac_wilson(links.view(4, *extents, 3, 3), 1 / (2 * self.kappa) - 4)
        theirs = torch.einsum("ts,rxsi->rxti", self.basis, psi)
        self.psi = list(theirs.reshape(len(psi), *extents, 4, 3).contiguous())
        self.calls = {"operator": self.run}

    def run(self) -> list[torch.Tensor]:
        """Apply it to all right-hand sides."""
        return [self.operator(psi) for psi in self.psi]

    def result(self) -> dict[str, np.ndarray]:
        """M psi in our basis and normalisation."""
        images = 2 * self.kappa * torch.stack(self.run()).reshape(self.shape)
        return {"psi": torch.einsum("ts,rxti->rxsi", self.basis.conj(), images).numpy()}


def match_gammas(ours: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
    """Return the unitary B with B ours = theirs B: by Schur's lemma a sum over all products."""
    total = torch.zeros(4, 4, dtype=torch.complex128)
    start = torch.arange(16.0).reshape(4, 4).sin() + 0j
    for powers in itertools.product((0, 1), repeat=4):
        left = right = torch.eye(4, dtype=torch.complex128)
        for mu, power in enumerate(powers):
            if power:
                left, right = left @ theirs[mu], right @ ours[mu]
        total = total + left @ start @ right.mH
    return total / (total[0].abs().square().sum().sqrt())

"""Options of the studies: the rival as a method of training, and shares of the points."""

from __future__ import annotations

from typing import Literal

from pipeline_core.config.limits import Ranks
from pipeline_core.config.profile import Network, ProfileOptions
from pipeline_htfbr.options import HTTrainOptions


class RivalTrainOptions(HTTrainOptions):
    """Methods of fitting, with the baseline of the paper as one more."""

    method: Literal["solver", "resident", "dataloader", "trainer"] = "solver"  # type: ignore[assignment]
    """As `HTTrainOptions`; dataloader: the steps of resident by autograd, with torch's Dataset and
    DataLoader."""


class SharingOptions(ProfileOptions):
    """Epochs of which several devices share the points, projected from measured shares."""

    shares: list[Ranks] = []
    """Numbers of devices, such as [1, 2, 4, 8]; none to measure nothing."""
    network: Network | None = None
    """Between the devices; null to measure it between two processes of this machine."""

    @property
    def has_work(self) -> bool:
        """As `ProfileOptions.has_work`."""
        return super().has_work or bool(self.shares)

"""Options of the studies: the baseline as a training method, and shares of the points."""

from typing import Literal

from pipeline_core.config.limits import Ranks
from pipeline_core.config.profile import ProfileOptions
from pipeline_core.config.sections import Link
from pipeline_htfbr.options import HTTrainOptions


class RivalTrainOptions(HTTrainOptions):
    """Training options with the baseline of the paper as a further method."""

    method: Literal["solver", "resident", "dataloader", "trainer"] = "solver"  # type: ignore[assignment]
    """As `HTTrainOptions`; dataloader: the steps of resident by autograd, with torch's Dataset and
    DataLoader."""


class SharingOptions(ProfileOptions):
    """Data parallel epochs on several devices, projected from measured shares of the points."""

    shares: list[Ranks] = []
    """Numbers of devices, such as [1, 2, 4, 8]; none to measure nothing."""
    network: Link | None = None
    """Network between the devices; null to measure it between two processes of this machine."""

    @property
    def has_work(self) -> bool:
        """As `ProfileOptions.has_work`."""
        return super().has_work or bool(self.shares)

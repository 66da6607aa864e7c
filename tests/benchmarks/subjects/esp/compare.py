"""The sides of the benchmarks of eGNN-ESP, and the structure that they are given."""

from argparse import Namespace
from collections.abc import Sequence
from typing import Any, NamedTuple

from harness.command import ROOT, find_peer
from harness.sides import Place, read_side_versions

FRAME = ROOT / "workflows/datasets/hfo2/matrices/tetragonal-2000K.h5"
_PACKAGES = ["torch", "numpy", "e3nn", "dptb", "torch-geometric"]
OURS = Place("subjects.esp.ours")


class Peer(NamedTuple):
    """Whom ours is compared with.

    Attributes:
        place: Where it computes.
        calls: What is measured.
        same: Whether it computes the same.
    """

    place: Place | None
    calls: Sequence[str] = ("step",)
    same: bool = False

    def list_places(self, options: dict[str, Any]) -> dict[str, Place]:
        """Return both sides, told the same, but for a peer that is not there."""
        sides = {"ours": OURS, "peer": self.place}
        return {
            name: Place(one.module, {**options, **one.options}, one.python)
            for name, one in sides.items()
            if one is not None
        }


def find_dptb(args: Namespace) -> Place | None:
    """Return DeePTB if it is there."""
    python = find_peer("dptb", args.peers_python)
    return Place("subjects.esp.dptb", {}, python) if python else None


def read_esp_versions(dptb: Place | None) -> dict[str, Any]:
    """Return the versions of what both environments import."""
    return read_side_versions({"ours": OURS} | ({"peers": dptb} if dptb else {}), _PACKAGES)

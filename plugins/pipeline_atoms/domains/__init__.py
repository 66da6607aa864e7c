"""Domain decomposition of a structure: owners of atoms, ghost atoms, and exchanges between them."""

from pipeline_atoms.domains.construction import build_domain
from pipeline_atoms.domains.division import DividedSplits, StructureSamples
from pipeline_atoms.domains.owners import choose_owners
from pipeline_atoms.domains.regions import build_region
from pipeline_atoms.domains.transports import choose_transport

__all__ = [
    "DividedSplits",
    "StructureSamples",
    "build_domain",
    "build_region",
    "choose_owners",
    "choose_transport",
]

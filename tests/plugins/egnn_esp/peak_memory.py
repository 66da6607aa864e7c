"""A program that predicts a cell of hafnia; prints the work planned, the peak planned and measured.

In a process of its own, since what others have left in its memory would add to the peak or hide it.
"""

import json
import sys

import numpy as np
import torch
from ase import Atoms

from pipeline_atoms.domains.construction import build_domain
from pipeline_atoms.structure import Structure
from pipeline_core.profiling.memory import measure_peak
from pipeline_egnn_esp.data.baselines import TwoCentre
from pipeline_egnn_esp.inference.forward import predict_blocks
from pipeline_egnn_esp.inference.memory import plan_memory
from pipeline_egnn_esp.inference.slots import assign_slots
from pipeline_egnn_esp.model.network import Network
from pipeline_egnn_esp.model.scaling import ScaledNetwork, Sizes
from pipeline_egnn_esp.options import ESPOptions
from pipeline_kernels.halo import SelfTransport
from plugins.egnn_esp import reference

CUTOFF = 5.0


def tile_hafnia(repeat: tuple[int, int, int]) -> Structure:
    """Return copies of the shipped cell of tetragonal hafnia."""
    one = reference.read_shipped("tetragonal-2000K").structure
    atoms = Atoms(one.atomic_numbers, one.positions, cell=one.cell, pbc=one.pbc).repeat(repeat)
    return Structure(atoms.numbers, atoms.positions, np.asarray(atoms.cell), atoms.pbc)


def main() -> None:
    """Predict twice: what is loaded once does not count."""
    sizes, work = json.loads(sys.argv[1]), int(sys.argv[2])
    module = ScaledNetwork(
        Network(ESPOptions(layers=2, **sizes), reference.BASIS, CUTOFF),
        TwoCentre(reference.BASIS, CUTOFF),
        Sizes(reference.BASIS, CUTOFF),
        uses_edges=True,
    )
    structure = tile_hafnia((3, 3, 4))
    owners = np.zeros(len(structure.positions), dtype=np.int64)
    slots = assign_slots(build_domain(structure, CUTOFF, owners, SelfTransport()))
    plan = plan_memory(module.network, slots, work, 0)

    def call() -> None:
        predict_blocks(module, slots, plan.chunk)

    call()
    print(json.dumps([plan.work, plan.peak, measure_peak(call, torch.device("cpu"))]))


if __name__ == "__main__":
    main()

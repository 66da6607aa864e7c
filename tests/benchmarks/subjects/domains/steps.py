"""A program for several ranks: energies, forces and stress of a crystal that they divide.

Prints as its last line, on rank 0, the seconds of each step, the part of them that ranks wait for
messages, the bytes that they send in a step, and the size of their parts.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from ase.build import bulk

from harness.ranks import TimedTransport
from pipeline_atoms.calculators import part_builders
from pipeline_atoms.calculators.calculator import PotentialCalculator
from pipeline_atoms.calculators.divided import DividedCalculator
from pipeline_atoms.config.graph import GraphOptions
from pipeline_atoms.domains import transports
from pipeline_chgnet.model.network import CHGNet
from pipeline_chgnet.options import CHGNetGraphOptions, CHGNetOptions
from pipeline_core.distributed.ranks import connect_ranks
from pipeline_mace.model.network import MACE, Facts
from pipeline_mace.options import MACEOptions

_WARM = 2
_MOVE = 0.01
"""Å by which atoms move from step to step: edges change, and neighbours are kept."""


def make_calculator(model, channels):
    """Return a calculator of random weights, for hafnia."""
    torch.manual_seed(0)
    if model == "mace":
        options = MACEOptions(channels=channels)
        graph = GraphOptions(cutoff=5.0)
        module = MACE(options, Facts(("O", "Hf"), 40.0), graph)
    else:
        sizes = {f"{kind}_features": channels for kind in ("atom", "bond", "angle", "hidden")}
        graph = CHGNetGraphOptions(cutoff=6.0)
        module = CHGNet(CHGNetOptions(**sizes), graph)
    return PotentialCalculator(module, graph, ["O", "Hf"], dtype=torch.float32)


def measure(calculator, atoms, steps, transport):
    """Return the seconds of each step, and of all of them what `count` counts."""
    rng, seconds, before = np.random.default_rng(0), [], np.zeros(3)
    for step in range(_WARM + steps):
        if step == _WARM:
            before = count(transport)
        moved = atoms.copy()
        moved.positions += rng.uniform(-_MOVE, _MOVE, atoms.positions.shape)
        begin = time.perf_counter()
        calculator.calculate(moved)
        seconds.append(time.perf_counter() - begin)
    return seconds[_WARM:], count(transport) - before


def count(transport):
    """Return seconds of waiting, bytes sent and exchanges until now."""
    return np.array([transport.waited, transport.bytes_sent, transport.n_exchanges], dtype=float)


def main():
    case = json.loads(sys.argv[1])
    atoms = bulk("HfO2", "fluorite", a=5.1, cubic=True).repeat(case["repeat"])
    atoms.rattle(0.05, seed=0)
    kept = []

    def choose(ranks):
        kept.append(TimedTransport(transports.choose_transport(ranks)))
        return kept[0]

    part_builders.choose_transport = choose
    with connect_ranks("cpu", Path(tempfile.gettempdir())) as ranks:
        divided = DividedCalculator(make_calculator(case["model"], case["channels"]), ranks)
        if not ranks.is_rank_zero:
            divided.follow()
            return
        with divided.lead():
            seconds, counts = measure(divided, atoms, case["steps"], kept[0])
            waited, sent, exchanges = counts.tolist()
            report = {
                "atoms": len(atoms),
                "ranks": ranks.size,
                "threads": torch.get_num_threads(),
                "seconds": seconds,
                "waiting_share": waited / sum(seconds),
                "bytes_sent": sent / case["steps"],
                "exchanges": exchanges / case["steps"],
                "own": len(divided.part.own),
                "searches": divided.neighbours.n_searches,
            }
        print(json.dumps(report))


if __name__ == "__main__":
    main()

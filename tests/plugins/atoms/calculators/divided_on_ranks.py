"""A program for several ranks: dynamics and mistakes with calculators that ranks divide."""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from ase import Atoms, units
from ase.build import bulk
from ase.md.verlet import VelocityVerlet

from pipeline_atoms.calculators.calculator import PotentialCalculator
from pipeline_atoms.calculators.divided import DividedCalculator
from pipeline_atoms.config.dynamics import MolecularDynamics
from pipeline_atoms.config.graph import GraphOptions
from pipeline_chgnet.model.network import CHGNet
from pipeline_chgnet.options import CHGNetGraphOptions, CHGNetOptions
from pipeline_core.distributed.ranks import connect_ranks
from pipeline_core.system import memory
from pipeline_mace.model.network import MACE, Facts
from pipeline_mace.options import MACEOptions
from plugins.atoms.dynamics.interruptions import simulate
from plugins.atoms.lennard_jones import GRAPH, LennardJones

STEPS = 12
NAMES = ("energy", "forces", "stress", "magmoms")


def make_calculators():
    """Return calculators of random models, by name; the pairs know nothing of ranks.

    Those of constants exchange features and their derivatives without autograd.
    """
    torch.manual_seed(0)
    pair = LennardJones()
    pair.receptive_field = 1
    mace = MACEOptions(channels=4, lmax=2, correlation=2, radial_functions=4, radial_features=[8])
    sizes = {f"{kind}_features": 6 for kind in ("atom", "bond", "angle", "hidden")}
    chgnet = CHGNetOptions(**sizes, readout_features=[6], angular_functions=5)
    graphs = GraphOptions(cutoff=5.0), CHGNetGraphOptions(cutoff=5.0, angle_cutoff=4.2)
    models = {
        "pair": (pair, GRAPH),
        "mace": (MACE(mace, Facts(("Ar",), 12.0), graphs[0]), graphs[0]),
        "chgnet": (CHGNet(chgnet, graphs[1]), graphs[1]),
    }
    for name in ("mace", "chgnet"):
        module, graph = models[name]
        models[f"compiled {name}"] = module.compile_inference(), graph
    return {
        name: PotentialCalculator(module, graph, ["Ar"], dtype=torch.float64)
        for name, (module, graph) in models.items()
    }


def make_gas():
    """Return warm argon, whose atoms soon change places."""
    atoms = bulk("Ar", "fcc", 5.5, cubic=True).repeat((4, 2, 2))
    atoms.rattle(0.2, seed=2)
    speeds = np.random.default_rng(1).normal(0, 12.0, (len(atoms), 3))
    atoms.set_momenta(atoms.get_masses()[:, None] * speeds * 1e-3 / units.fs)
    return atoms


def follow_atoms(atoms):
    """Return what is predicted at the start, and energies of some steps."""
    names = [name for name in NAMES if name in atoms.calc.implemented_properties]
    results = {name: np.array(atoms.calc.get_property(name, atoms)).tolist() for name in names}
    dynamics = VelocityVerlet(atoms, 4.0 * units.fs)
    energies = [atoms.get_potential_energy() for _ in dynamics.irun(STEPS)]
    return {"start": results, "energies": energies}


def list_mistakes(calculator):
    """Return what the calculator says of structures that cannot be."""
    two = Atoms("Ar2", [[0, 0, 0], [0, 0, 1e-9]], cell=[9, 9, 9], pbc=True).repeat((2, 1, 1))
    alone = Atoms("Ar4", 30.0 * np.arange(12).reshape(4, 3))
    other = bulk("Cu", cubic=True)
    words = []
    for atoms in (two, alone, other, Atoms("Ar2", [[0, 0, 0], [0, 0, 3.8]])):
        try:
            calculator.calculate(atoms)
        except ValueError as error:
            words.append(str(error))
    return words


def simulate_gas(divided, folder, last=-1):
    """Return the trajectory of some dynamics, None where its process dies."""
    options = MolecularDynamics(
        name="test", steps=9, every=3, restart_every=4, timestep=4.0, temperature=200.0
    )
    done = simulate(folder, options, divided, make_gas(), last)
    return done and done[1]


def starve(folder, starved):
    """Calculate where a rank has no memory for neighbours."""
    with connect_ranks("cpu", folder) as ranks:
        if ranks.rank == starved:
            memory._UNASKED, memory.find_free_memory = 0, lambda: 0
        divided = DividedCalculator(make_calculators()["pair"], ranks)
        if ranks.is_rank_zero:
            with divided.lead():
                try:
                    divided.calculate(make_gas())
                except memory.NoRoomError as error:
                    sys.stderr.write(f"{error}\n")
                    divided.calculate(make_gas())
        else:
            divided.follow()


def lead(ranks, names):
    """Yield the calculators that rank 0 leads, by name; others follow meanwhile."""
    calculators = make_calculators()
    for name in names:
        divided = DividedCalculator(calculators[name], ranks)
        if ranks.is_rank_zero:
            with divided.lead():
                yield name, divided
        else:
            divided.follow()


def main(folder, names):
    outcome = {}
    with connect_ranks("cpu", folder) as ranks:
        for name, divided in lead(ranks, names):
            atoms = make_gas()
            atoms.calc = divided
            outcome[name] = follow_atoms(atoms)
            searches, migrated = divided.neighbours.n_searches, divided.part.n_migrated
            outcome[name] |= {"searches": searches, "migrated": migrated}
            outcome[name]["mistakes"] = list_mistakes(divided)
            simulate_gas(divided, folder / f"{name}-whole")
            outcome[name]["broken"] = simulate_gas(divided, folder / f"{name}-broken", last=8)
        for name, divided in lead(ranks, names):  # new ones, as a new process has
            again = simulate_gas(divided, folder / f"{name}-broken")
            whole = (folder / f"{name}-whole/md/test.extxyz").read_text()
            outcome[name]["goes_on"] = again == whole
        if ranks.is_rank_zero:
            (folder / "outcome.json").write_text(json.dumps(outcome))


if __name__ == "__main__":
    place, *rest = sys.argv[1:]
    if rest[0].isdigit():
        starve(Path(place), int(rest[0]))
    else:
        main(Path(place), rest)

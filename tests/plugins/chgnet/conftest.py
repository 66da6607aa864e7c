"""Batches of structures; as the oracle the package `chgnet` by the authors of the model."""

import contextlib
import io
import warnings
from collections.abc import Callable, Iterator, Sequence

import ase
import ase.io
import numpy as np
import pytest
import torch

from pipeline_atoms.config.graph import GraphOptions
from pipeline_atoms.testing.potentials import build_batch
from pipeline_chgnet.model.network import CHGNet
from pipeline_core.batch import Batch
from real_data import find

GRAPH = GraphOptions(cutoff=6.0, angle_cutoff=3.0)


def make_batch(
    structures: Sequence[ase.Atoms], dtype: torch.dtype, graph: GraphOptions = GRAPH
) -> Batch:
    """Structures with their graphs; the geometry stays in double precision."""
    exact = build_batch(structures, graph, torch.float64)
    rounded = exact if dtype == torch.float64 else build_batch(structures, graph, dtype)
    return rounded | {name: exact[name] for name in ("positions", "cell")}


@pytest.fixture(scope="session")
def batch_of() -> Callable[..., Batch]:
    return make_batch


@pytest.fixture(scope="session")
def crystal() -> ase.Atoms:
    """Four atoms in a skewed cell, without collinear bonds."""
    cell = [[4.1, 0.2, -0.1], [0.5, 3.8, 0.3], [-0.4, 0.6, 4.4]]
    fractions = [[0.02, 0.05, 0.01], [0.47, 0.55, 0.08], [0.52, 0.1, 0.46], [0.07, 0.45, 0.57]]
    return ase.Atoms("MgOFeO", scaled_positions=fractions, cell=cell, pbc=True)


@pytest.fixture(scope="session")
def mptrj() -> list[ase.Atoms]:
    return ase.io.read(find("mattersim_benchmarks/mptrj-random-1k.xyz"), ":")


@pytest.fixture(scope="session")
def trained() -> Callable[[torch.dtype], torch.nn.Module]:
    """The published model in a chosen precision; its reference energies stay exact."""
    pytest.importorskip("chgnet")

    def in_precision(dtype: torch.dtype) -> torch.nn.Module:
        model = CHGNet.published()
        energies = model.atom_energies
        model.to(dtype).atom_energies = energies
        return model.eval()

    return in_precision


class Peer:
    """The published model as its authors run it, in single or double precision."""

    def __init__(self) -> None:
        from chgnet.model import model as module

        self.module = module
        with contextlib.redirect_stdout(io.StringIO()):
            self.model = module.CHGNet.load(use_device="cpu", verbose=False)
        self.composition = self.model.composition_model.fc.weight[0].detach().double()
        # It converts to single precision whatever the model computes in; added by `__call__`.
        self.model.composition_model = None

    def __call__(self, atoms: ase.Atoms, dtype: torch.dtype) -> dict[str, np.ndarray]:
        """Energy in eV an atom, forces in eV/Å, stress in eV/Å³, magnetic moments in µB."""
        with self._precision(dtype), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            graph = self._graph(atoms, dtype)
            outputs = self.model.to(dtype)([graph], task="efsm")
        energy = outputs["e"].detach().double() + self.composition[graph.atomic_number - 1].mean()
        return {
            "energy": energy.numpy(),
            "forces": outputs["f"][0].detach().double().numpy(),
            "stress": outputs["s"][0].detach().double().numpy() / 160.21766208,
            "magmoms": outputs["m"][0].detach().double().numpy(),
        }

    def n_angles(self, atoms: ase.Atoms) -> int:
        return len(self._graph(atoms, torch.float32).bond_graph)

    def _graph(self, atoms: ase.Atoms, dtype: torch.dtype) -> object:
        from pymatgen.io.ase import AseAtomsAdaptor

        structure = AseAtomsAdaptor.get_structure(atoms)
        graph = self.model.graph_converter(structure)
        graph.atom_frac_coord = torch.tensor(structure.frac_coords, dtype=dtype, requires_grad=True)
        graph.lattice = torch.tensor(structure.lattice.matrix, dtype=dtype, requires_grad=True)
        graph.neighbor_image = graph.neighbor_image.to(dtype)
        return graph

    @contextlib.contextmanager
    def _precision(self, dtype: torch.dtype) -> Iterator[None]:
        before = torch.get_default_dtype(), self.module.TORCH_DTYPE
        torch.set_default_dtype(dtype)
        self.module.TORCH_DTYPE = dtype
        try:
            yield
        finally:
            torch.set_default_dtype(before[0])
            self.module.TORCH_DTYPE = before[1]


@pytest.fixture(scope="session")
def peer() -> Peer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of its imports
        pytest.importorskip("chgnet", reason="needs the extra 'peers'")
        return Peer()

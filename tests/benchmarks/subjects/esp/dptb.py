"""The SLEM network of DeePTB (package dptb), as `harness/worker.py` measures it in its environment.

It is another SO(2) network for the same task. Lmax, channels and layers are set as ours; it has
neither attention nor feed-forward layers, and updates a third kind of features on edges in place of
the second convolution of a node block. Its scalars of edges are as wide as ours. All else is the
package's own: features, loss (means of magnitudes and roots of mean squares), labels.
"""

import sys
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.utils import scatter

from harness.structures import Arrays
from harness.training import TrainedNetwork

# The package imports torch_scatter, which has to be compiled, for averages that SLEM hardly uses.
torch_scatter = ModuleType("torch_scatter")
torch_scatter.scatter = scatter
torch_scatter.scatter_mean = partial(scatter, reduce="mean")
sys.modules["torch_scatter"] = torch_scatter

from dptb.data import AtomicData  # noqa: E402
from dptb.data.interfaces.ham_to_feature import block_to_feature  # noqa: E402
from dptb.nn.deeptb import NNENV  # noqa: E402
from dptb.nnops.loss import Loss  # noqa: E402

SHELLS = "spdf"


class Network(TrainedNetwork):
    """`NNENV` with the embedding `slem`."""

    def __init__(self, arrays: Arrays, options: dict[str, Any]) -> None:
        torch.manual_seed(0)
        names = {z: name_shells(shells) for z, shells in options["basis"].items()}
        n_edges, n_atoms = len(arrays["edge_index"]), len(arrays["positions"])
        embedding = make_embedding(options["model"], options["cutoff"], n_edges / n_atoms)
        dtype = options.get("dtype", "float32")
        torch.set_default_dtype(getattr(torch, dtype))  # parts of the package follow it
        super().__init__(NNENV(embedding, {"method": "e3tb"}, basis=names, dtype=dtype))
        mapper = self.model.idp
        self.criterion = Loss("hamil_abs", idp=mapper)
        data = make_graph(arrays, getattr(torch, dtype))
        block_to_feature(data, mapper, split_blocks(arrays, dtype))
        self.data = AtomicData.to_AtomicDataDict(mapper(data))

    def predict(self) -> dict[str, Tensor]:
        return self.model(self.data.copy())

    def loss(self) -> Tensor:
        return self.criterion(self.predict(), self.data.copy())


def make_embedding(
    model: dict[str, Any], cutoff: float, average_neighbours: float
) -> dict[str, Any]:
    """Return the options of a network whose sizes are ours, as far as it has them."""
    channels = model["channels"]
    parts = (f"{channels}x{degree}{'eo'[degree % 2]}" for degree in range(model["lmax"] + 1))
    return {
        "method": "slem",
        "irreps_hidden": "+".join(parts),
        "n_layers": model["layers"],
        "r_max": cutoff,
        "avg_num_neighbors": average_neighbours,
        "n_radial_basis": model["radial_functions"],
        "env_embed_multiplicity": channels,
        "tp_radial_emb": True,
        "tp_radial_channels": [channels],
        "latent_channels": [channels],
        "latent_dim": channels,
    }


def name_shells(degrees: list[int]) -> str:
    """Return shells as the package names them: [0, 0, 1, 2] is 2s1p1d."""
    counts = ((degrees.count(degree), SHELLS[degree]) for degree in sorted(set(degrees)))
    return "".join(f"{count}{letter}" for count, letter in counts)


def make_graph(arrays: Arrays, dtype: torch.dtype) -> AtomicData:
    """Return the structure with the edges that all sides have."""
    return AtomicData(
        edge_index=torch.from_numpy(arrays["edge_index"].T.astype(np.int64)),
        edge_cell_shift=torch.from_numpy(arrays["edge_shift"]).to(dtype),
        pos=torch.from_numpy(arrays["positions"]).to(dtype),
        cell=torch.from_numpy(arrays["cell"]).to(dtype),
        pbc=torch.from_numpy(arrays["pbc"]),
        atomic_numbers=torch.from_numpy(arrays["atomic_numbers"]).long(),
    )


def split_blocks(arrays: Arrays, dtype: str) -> dict[str, np.ndarray]:
    """Return the blocks without padding, by atoms and image."""
    result = {
        f"{i}_{i}_0_0_0": unpad(block, dtype) for i, block in enumerate(arrays["node_blocks"])
    }
    places = np.concatenate([arrays["edge_index"], arrays["edge_shift"]], axis=1)
    for place, block in zip(places.tolist(), arrays["edge_blocks"], strict=True):
        result["_".join(map(str, place))] = unpad(block, dtype)
    return result


def unpad(block: np.ndarray, dtype: str) -> np.ndarray:
    """Return a block without what is NaN."""
    known = ~np.isnan(block)
    return block[known.any(1)][:, known.any(0)].astype(dtype)

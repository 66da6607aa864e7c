"""The package chgnet, for `_worker.py`."""

from typing import Any

from _chgnet_subjects import GPA
from _large_subjects import Crystals
from _mace_subjects import Arrays
from ase import Atoms
from chgnet.model import CHGNet as Network
from pymatgen.io.ase import AseAtomsAdaptor


class CHGNet(Crystals):
    """`predict_structure` with the task that is asked for, and no moments."""

    def __init__(self, arrays: Arrays, options: dict[str, Any]) -> None:
        super().__init__(arrays)
        assert options["dtype"] == "float32"  # the only type that it computes in
        self.model = Network.load(use_device="cpu", verbose=False)

    def predict(self, atoms: Atoms) -> dict[str, Any]:
        structure = AseAtomsAdaptor.get_structure(atoms)
        result = self.model.predict_structure(structure, task="efs")
        return {"energy": result["e"], "forces": result["f"], "stress": result["s"] / GPA}

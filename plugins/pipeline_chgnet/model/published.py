"""Published weights, read from an installed `chgnet` package without importing it."""

import importlib.util
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from pipeline_atoms.potential.potential import MAX_Z
from pipeline_chgnet.options import N_ELEMENTS

VERSIONS: Final = ("0.3.0", "r2scan")
"""Versions of this architecture: trained on MPtrj; the same fine-tuned to r2SCAN energies."""

State = dict[str, Tensor]

_RENAMED: Final = {
    "atom_embedding": "atom_embedding.embedding",
    "bond_embedding": "bond_embedding",
    "atom_weights": "bond_weights_ag",
    "bond_weights": "bond_weights_bg",
    "angle_embedding": "angle_embedding",
    "magmom": "site_wise",
    "readout_norm": "readout_norm",
    "readout.0": "mlp.layers.0",
    "readout.2": "mlp.layers.2",
    "readout.4": "mlp.layers.4",
    "readout.6": "mlp.layers.7",
}
_FREQUENCIES: Final = {
    "radial_basis": "bond_basis_expansion.rbf_expansion_ag",
    "short_radial_basis": "bond_basis_expansion.rbf_expansion_bg",
    "angular_basis": "angle_basis_expansion.fourier_expansion",
}
_ATOM_PARTS: Final = (0, 2, 1)
"""Order of our parts (receiver, sender, bond) among theirs (receiver, bond, sender)."""
_ANGLE_PARTS: Final = (3, 0, 1, 2)
"""Order of our parts (atom, first, second, angle) among theirs (first, second, angle, atom)."""


def read_published(version: str = "0.3.0") -> State:
    """Read published weights under the names of `CHGNet(CHGNetOptions())`.

    Raises:
        ValueError: The version is unknown, or the package that holds the weights is not installed.
    """
    file = torch.load(_find_file(version), map_location="cpu", weights_only=True)
    theirs: State = file["model"]["state_dict"]
    ours: State = {}
    for name, source in _RENAMED.items():
        ours |= {f"{name}.{key}": value for key, value in _select_below(theirs, source).items()}
    for name, source in _FREQUENCIES.items():
        ours[f"{name}.frequencies"] = theirs[f"{source}.frequencies"]
    for t in range(4):
        ours |= _translate_layer(
            f"atom_convolutions.{t}", _select_below(theirs, f"atom_conv_layers.{t}")
        )
    for t in range(3):
        ours |= _translate_layer(
            f"bond_convolutions.{t}", _select_below(theirs, f"bond_conv_layers.{t}")
        )
    for t in range(2):
        ours |= _translate_layer(f"angle_updates.{t}", _select_below(theirs, f"angle_layers.{t}"))
    energies = torch.zeros(MAX_Z + 1, dtype=torch.float64)
    energies[1 : N_ELEMENTS + 1] = theirs["composition_model.fc.weight"][0]
    return ours | {"atom_energies": energies}


def _find_file(version: str) -> Path:
    if version not in VERSIONS:
        raise ValueError(
            f"unknown published weights {version!r} of CHGNet; available: {', '.join(VERSIONS)}"
        )
    package = importlib.util.find_spec("chgnet")
    if package is None or package.origin is None:
        raise ValueError(
            "the published weights of CHGNet come with the package 'chgnet', which is not "
            "installed; run: pip install 'pipeline-core[peers]'"
        )
    files = list((Path(package.origin).parent / "pretrained" / version).glob("*.pth.tar"))
    if len(files) != 1:
        raise ValueError(
            f"{package.origin}: this installation of 'chgnet' lacks the weights {version!r}; "
            "run: pip install --force-reinstall 'chgnet>=0.4.2'"
        )
    return files[0]


def _select_below(state: State, prefix: str) -> State:
    return {
        key.removeprefix(f"{prefix}."): value
        for key, value in state.items()
        if key.startswith(f"{prefix}.")
    }


def _translate_layer(name: str, theirs: State) -> State:
    """Translate one convolution or update; core and gate of theirs are halves of ours."""
    (kind,) = {key.split(".")[0] for key in theirs} - {"mlp_out"}
    parts = _ATOM_PARTS if kind == "twoBody_atom" else _ANGLE_PARTS
    core, gate = (
        _select_below(theirs, f"{kind}.mlp_core.layers"),
        _select_below(theirs, f"{kind}.mlp_gate.layers"),
    )
    first, *second = sorted({key.split(".")[0] for key in core}, key=int)
    columns = torch.cat([core[f"{first}.weight"], gate[f"{first}.weight"]]).chunk(len(parts), dim=1)
    ours = {
        "first.weight": torch.cat([columns[part] for part in parts], dim=1),
        "first.bias": torch.cat([core[f"{first}.bias"], gate[f"{first}.bias"]]),
    }
    for key, source in {"gain": "weight", "shift": "bias"}.items():
        ours[key] = torch.stack([theirs[f"{kind}.bn{n}.{source}"] for n in (1, 2)])[:, None]
    for layer in second:
        ours["second_weight"] = torch.stack([half[f"{layer}.weight"].T for half in (core, gate)])
        ours["second_bias"] = torch.stack([half[f"{layer}.bias"] for half in (core, gate)])[:, None]
    result = {f"{name}.perceptron.{key}": value for key, value in ours.items()}
    if "mlp_out.layers.1.weight" in theirs:
        result[f"{name}.output.weight"] = theirs["mlp_out.layers.1.weight"]
    return result

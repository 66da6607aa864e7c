"""Structures as arrays, as both sides of a benchmark read them from a file."""

from collections.abc import Sequence
from pathlib import Path

import ase
import ase.io
import numpy as np

Arrays = dict[str, np.ndarray]


def draw_structures(path: Path, n: int) -> list[ase.Atoms]:
    """Draw n structures of a file at random, the same for every call."""
    frames = ase.io.read(path, ":")
    return [frames[i] for i in np.random.default_rng(0).permutation(len(frames))[:n]]


def draw_atoms(path: Path, n_atoms: int) -> list[ase.Atoms]:
    """Draw structures at random, the same for every call, until they have about so many atoms."""
    frames, chosen, left = ase.io.read(path, ":"), [], n_atoms
    for i in np.random.default_rng(0).permutation(len(frames)):
        if len(frames[i]) <= left:
            chosen.append(frames[i])
            left -= len(frames[i])
    return chosen


def pack_structures(structures: Sequence[ase.Atoms]) -> Arrays:
    """Return structures as arrays, one after the other."""
    return {
        "n_atoms": np.array([len(atoms) for atoms in structures]),
        "numbers": np.concatenate([atoms.numbers for atoms in structures]),
        "positions": np.concatenate([atoms.positions for atoms in structures]),
        "cells": np.stack([np.array(atoms.cell) for atoms in structures]),
    }


def pack_labels(structures: Sequence[ase.Atoms]) -> Arrays:
    """Return energies, forces and stresses of structures that have them."""
    return {
        "energy": np.array([atoms.get_potential_energy() for atoms in structures]),
        "forces": np.concatenate([atoms.get_forces() for atoms in structures]),
        "stress": np.stack([atoms.get_stress(voigt=False) for atoms in structures]),
    }


def read_structures(arrays: Arrays) -> list[ase.Atoms]:
    """Return the structures that were packed."""
    ends = np.cumsum(arrays["n_atoms"])[:-1]
    parts = (np.split(arrays[name], ends) for name in ("numbers", "positions"))
    rows = zip(*parts, arrays["cells"], strict=True)
    return [ase.Atoms(z, r, cell=cell, pbc=True) for z, r, cell in rows]

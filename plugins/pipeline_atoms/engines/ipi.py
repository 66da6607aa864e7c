"""Trained potentials as drivers of i-PI's protocol: a server moves atoms, a driver gives forces.

The server is i-PI or ASE's `SocketIOCalculator`. Messages are those of V. Kapil et al., Comput.
Phys. Commun. 236, 214 (2019), in Hartree and Bohr as ASE has them; the virial is minus the stress
times the volume.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator
from ase.calculators.socketio import IPIProtocol, SocketClosed
from numpy.typing import NDArray

_PREFIX: Final = "/tmp/ipi_"  # noqa: S108  # where i-PI and ASE look for a socket by its name
_PAUSE: Final = 0.2
"""Seconds between two attempts to reach a server."""

Forces = tuple[float, NDArray[np.float64], NDArray[np.float64]]


def answer_server(address: str, atoms: Atoms, calculator: Calculator, wait: float = 60.0) -> int:
    """Give a server the forces that it asks for, until it leaves.

    The protocol says nothing of elements, so that the server must have the atoms in the order of
    `atoms`. Where the model gives no stress or a direction is not periodic, the virial is zero.

    Args:
        address: HOST:PORT, or unix:NAME for a socket of this machine, as i-PI's `mode='unix'`.
        atoms: Elements and boundaries; where they are says the server.
        calculator: What `calculators.loading.load_calculator` returns, or a committee.
        wait: Seconds to wait for the server to start.

    Returns:
        How many structures were calculated.

    Raises:
        ValueError: The address is none, the server has another number of atoms or sends what is
            not of the protocol, or the model refuses a structure.
        OSError: There is no server.
    """
    with _connect(address, wait) as connection:
        protocol, atoms = IPIProtocol(connection), atoms.copy()
        forces: Forces | None = None
        count = 0
        while (message := _receive_message(protocol)) != "EXIT":
            if message == "STATUS":
                protocol.sendmsg("READY" if forces is None else "HAVEDATA")
            elif message == "INIT":
                protocol.recvinit()  # a number and words for programs that need them
            elif message == "POSDATA":
                _receive_structure(protocol, atoms)
                forces, count = _calculate(atoms, calculator), count + 1
            elif message == "GETFORCE" and forces is not None:
                protocol.sendforce(*forces)
                forces = None
            else:
                raise ValueError(f"{address}: the server sent {message!r}, which is not i-PI's")
        return count


@contextmanager
def _connect(address: str, wait: float) -> Iterator[socket.socket]:
    family, place = parse_address(address)
    end = time.monotonic() + wait
    while True:
        connection = socket.socket(family)
        try:
            connection.connect(place)
        except OSError as error:
            connection.close()
            if time.monotonic() > end:
                raise OSError(
                    f"{address}: no server answers ({error.strerror or error}); start i-PI first, "
                    "with the same address"
                ) from error
            time.sleep(_PAUSE)
        else:
            with connection:
                yield connection
            return


def parse_address(address: str) -> tuple[socket.AddressFamily, Any]:
    """Return the family of an address, and what `socket.connect` wants to know.

    Raises:
        ValueError: It is neither HOST:PORT nor unix:NAME.
    """
    if match := re.fullmatch(r"unix:(.+)", address):
        name = match[1]
        return socket.AF_UNIX, name if name.startswith("/") else _PREFIX + name
    if match := re.fullmatch(r"(.+):(\d+)", address):
        return socket.AF_INET, (match[1], int(match[2]))
    raise ValueError(
        f"address {address!r}: expected HOST:PORT, such as localhost:31415, or unix:NAME"
    )


def _receive_message(protocol: IPIProtocol) -> str:
    """Return the next message; a server that has closed the connection is one that has left."""
    try:
        return str(protocol.recvmsg())
    except (SocketClosed, ConnectionResetError):
        return "EXIT"


def _receive_structure(protocol: IPIProtocol, atoms: Atoms) -> None:
    cell, _, positions = protocol.recvposdata()
    if len(positions) != len(atoms):
        raise ValueError(
            f"the server has {len(positions)} atoms and the structure {len(atoms)} "
            f"({atoms.get_chemical_formula()}); give the structure that the server starts from"
        )
    if atoms.pbc.any():
        atoms.set_cell(cell)
    atoms.positions = positions


def _calculate(atoms: Atoms, calculator: Calculator) -> Forces:
    """Return energy, forces and virial, in eV and Å."""
    atoms.calc = calculator
    virial = np.zeros((3, 3))
    if atoms.pbc.all() and "stress" in calculator.implemented_properties:
        virial = -atoms.get_volume() * atoms.get_stress(voigt=False)
    return atoms.get_potential_energy(), atoms.get_forces(), virial

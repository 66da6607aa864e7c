"""Trained potentials as drivers of i-PI's protocol: a server moves atoms, a driver gives forces.

The server is i-PI or ASE's `SocketIOCalculator`. Messages follow V. Kapil et al., Comput. Phys.
Commun. 236, 214 (2019), in Hartree and Bohr with ASE's values; the virial is minus the stress times
the volume.
"""

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

_PREFIX: Final = "/tmp/ipi_"  # noqa: S108  # prefix of socket names in i-PI and ASE
_PAUSE: Final = 0.2
"""Seconds between two attempts to reach a server."""

Forces = tuple[float, NDArray[np.float64], NDArray[np.float64]]


def answer_server(address: str, atoms: Atoms, calculator: Calculator, wait: float = 60.0) -> int:
    """Calculate forces for a server until it closes the connection.

    The protocol does not transmit elements, so the server must have the atoms in the order of
    `atoms`. If the model gives no stress or a direction is not periodic, the virial is zero.

    Args:
        address: HOST:PORT, or unix:NAME for a socket of this machine, as i-PI's `mode='unix'`.
        atoms: Elements and boundaries; the server sends positions and cell.
        calculator: Calculator from `calculators.loading.load_calculator`, or a committee.
        wait: Seconds to wait for the server to start.

    Returns:
        Number of calculated structures.

    Raises:
        ValueError: The address is invalid, the server has another number of atoms or violates the
            protocol, or the model refuses a structure.
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
                protocol.recvinit()  # an index and an initialization string, not used here
            elif message == "POSDATA":
                _receive_structure(protocol, atoms)
                forces, count = _calculate(atoms, calculator), count + 1
            elif message == "GETFORCE" and forces is not None:
                protocol.sendforce(*forces)
                forces = None
            else:
                raise ValueError(f"{address}: the server sent {message!r}, not a message of i-PI")
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
    """Return the family of an address, and the argument of `socket.connect`.

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
    """Return the next message; a closed connection counts as the end of the run."""
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

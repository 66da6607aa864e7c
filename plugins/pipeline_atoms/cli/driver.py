"""The command `driver`: forces of a trained model for a server of i-PI's protocol."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline_atoms.cli.predict import Head
from pipeline_core.cli import options
from pipeline_core.cli.models import ModelPath, find_model
from pipeline_core.stages.builtin import load_registry
from pipeline_core.status.output import count

if TYPE_CHECKING:
    from ase import Atoms

StructureFile = Annotated[
    Path,
    typer.Argument(
        metavar="STRUCTURE",
        help="Elements and periodic directions, in the server's order: a file that ASE reads.",
    ),
]
Address = Annotated[
    str, typer.Option(metavar="HOST:PORT|unix:NAME", help="Where the server listens.")
]
Wait = Annotated[float, typer.Option(min=0.0, help="Seconds to wait for the server to start.")]
Double = Annotated[bool, typer.Option("--double", help="Calculate in double precision.")]
Compile = Annotated[
    bool, typer.Option("--compile", help="Compile the model for inference, faster on a CPU.")
]


def driver(
    model: ModelPath,
    structure: StructureFile,
    address: Address = "localhost:31415",
    wait: Wait = 60.0,
    head: Head = None,
    double: Double = False,
    compile: Compile = False,  # noqa: A002 (the name of the option)
    device: options.Device = "auto",
) -> None:
    """Calculate forces for i-PI, or for another program that uses its protocol.

    Start the server with the same address; the command ends when the server has finished.
    """
    path = find_model(model)

    import torch

    from pipeline_atoms.calculators.committee import is_committee, load_committee
    from pipeline_atoms.calculators.loading import load_calculator
    from pipeline_atoms.engines.ipi import answer_server, parse_address
    from pipeline_core.distributed.ranks import connect_ranks
    from pipeline_core.distributed.world import find_world

    parse_address(address)
    if (n_ranks := find_world().size) > 1:
        raise ValueError(
            f"driver runs on one rank, and there are {n_ranks}; leave out srun or mpiexec"
        )
    atoms = _read_structure(structure)
    with connect_ranks(device, path.parent) as ranks:
        if model.is_dir() and is_committee(model):
            if double or compile:
                raise ValueError(
                    f"{model}: a committee is calibrated in the precision of its training, and "
                    f"without compilation; remove --double and --compile, or name {path} for one "
                    "member"
                )
            calculator = load_committee(model, str(ranks.device), load_registry(), head)
        else:
            dtype = torch.float64 if double else None
            place = "cpu" if compile and device == "auto" else str(ranks.device)
            calculator = load_calculator(path, place, dtype, compile=compile, head=head)
        n_structures = answer_server(address, atoms, calculator, wait)
    typer.echo(f"calculated {count(n_structures, 'structure')} for {address}")


def _read_structure(path: Path) -> Atoms:
    """Return the last frame of a file.

    Raises:
        ValueError: ASE cannot read it.
    """
    import ase.io

    try:
        return ase.io.read(path)
    except Exception as error:  # ASE's readers raise errors of any type
        raise ValueError(
            f"{path}: ASE cannot read a structure from it ({type(error).__name__}: {error}); give "
            "for example a POSCAR, CIF or extended XYZ"
        ) from error


COMMANDS = {"driver": driver}

"""The argument that names a trained model."""

from pathlib import Path
from typing import Annotated, Final

import typer

from pipeline_core.training.trained_model import MODEL, find_model_file

_ARCHIVE: Final = b"PK\x03\x04"  # first bytes of torch files

ModelPath = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A model.pt, or the folder of a run that holds one.")
]


def find_model(path: Path) -> Path:
    """Return the model file at a path, or in the folder at a path.

    For an unfinished training it is the best model so far, with a warning.

    Raises:
        ValueError: There is none.
    """
    model = find_model_file(path)
    if model.is_file():
        with model.open("rb") as file:
            if file.read(len(_ARCHIVE)) == _ARCHIVE:
                return model
        raise ValueError(
            f"{model}: is not a model; give a {MODEL} or the folder of a run first, and files "
            "of structures behind it"
        )
    if not path.is_dir():
        raise ValueError(f"{path}: no such file or folder; give a {MODEL} or the folder of a run")
    inner = [str(one.parent) for one in sorted(path.glob(f"*/{MODEL}"))]
    hint = f"name {' or '.join(inner)}" if inner else "train one, or name the folder of another run"
    raise ValueError(f"{path}: holds no {MODEL}; {hint}")

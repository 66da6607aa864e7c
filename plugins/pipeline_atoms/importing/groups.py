"""Names of the groups that samples belong to."""

from pathlib import PurePosixPath

from pipeline_atoms.importing.sources import RawSource
from pipeline_atoms.readers import Frame
from pipeline_core.suggestions import suggest


def name_group(source: RawSource, file: str, frame: Frame, formula: str) -> str:
    """Return the group of a frame as its source declares it; empty if it declares none.

    Folders and files are named relative to the part of the source's pattern without wildcards: for
    `runs/*/*.xyz` the file `runs/hot/1.xyz` lies in the folder `hot`.

    Args:
        source: The source.
        file: Name of the file, relative to the dataset file.
        frame: The frame.
        formula: Its reduced formula.

    Raises:
        ValueError: The frame does not have the declared key.
    """
    match source.options.group:
        case None:
            return ""
        case "composition":
            return formula
        case "file":
            return str(PurePosixPath(file).relative_to(source.root))
        case "folder":
            folder = PurePosixPath(file).parent
            if folder == source.root:
                return source.files[file].resolve().parent.name
            return str(folder.relative_to(source.root))
        case key:
            return (
                str(frame.info[key])
                if key in frame.info
                else _refuse_missing(source, file, frame, key)
            )


def _refuse_missing(source: RawSource, file: str, frame: Frame, key: str) -> str:
    choices = ["folder", "file", "composition", *sorted(frame.info)]
    raise ValueError(
        f"{source.name}: group {key!r} is not in {file}, frame {frame.index}; set `group` to one "
        f"of {', '.join(choices)}{suggest(key, choices)}"
    )

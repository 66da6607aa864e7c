"""Where tests and benchmarks find real data: what was downloaded, else a folder beside the clone.

Data that other people published are no part of the project. Names are those of the folder
`../shared/data`; the sets that dataset files describe are looked for where `pipeline-core download`
and the dataset files put them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
BESIDE: Final = ROOT.parent / "shared"

DATASETS: Final = {
    "botnet/dataset_acac": "acac",
    "fitsnap": "w_be",
    "mattersim_benchmarks": "mptrj_1k",
}
"""Folders whose files are those of a dataset."""


def locate(name: str) -> Path:
    """Return the path of a file or folder of real data.

    Args:
        name: Path below `../shared/data`, such as "mattersim_benchmarks/mptrj-random-1k.xyz".

    Raises:
        FileNotFoundError: It is nowhere; the message says how to get it.
    """
    folder, _, file = name.rpartition("/")
    if name in DATASETS:
        folder, file = name, ""
    dataset, places = DATASETS.get(folder), [BESIDE / "data" / name]
    if dataset is not None:
        places.insert(0, ROOT / "workflows/datasets" / dataset / file)
    for place in places:
        if place.exists():
            return place
    if dataset is None:
        raise FileNotFoundError(f"needs {name}: put it at ../shared/data")
    raise FileNotFoundError(
        f"needs {places[0].relative_to(ROOT)}: pipeline-core download --dataset {dataset}, or see "
        f"workflows/datasets/{dataset}.yaml"
    )


def find(name: str) -> Path:
    """As `locate`, but skip the test that needs what is not there."""
    import pytest

    try:
        return locate(name)
    except FileNotFoundError as error:
        pytest.skip(str(error))


def read_paper(name: str) -> str:
    """Return the text of a paper, such as "chgnet", or skip the test that needs it."""
    import pytest

    path = BESIDE / "papers" / f"{name}.txt"
    if not path.exists():
        pytest.skip(f"needs the text of the paper at ../shared/papers/{path.name}")
    return path.read_text(encoding="utf-8")

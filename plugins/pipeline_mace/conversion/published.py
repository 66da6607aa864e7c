"""Networks published by the authors of mace-torch, and the addresses of their files.

Addresses are from mace-torch 0.3.16 (`mace/calculators/foundations_models.py`); data and licences
from https://github.com/ACEsuit/mace-foundations and .../mace-off. The hashes of MACE-OFF are from
the files in the Git repository https://github.com/ACEsuit/mace-off
(commit 91a78c5a9c300d1104700d9352c8bfe449227737); no published hashes of the others were found.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pipeline_core.artifacts.foreign import PublishedFile

_MP: Final = "https://github.com/ACEsuit/mace-mp/releases/download"
_FOUNDATIONS: Final = "https://github.com/ACEsuit/mace-foundations/releases/download"
_OFF: Final = "https://raw.githubusercontent.com/ACEsuit/mace-off/main/mace_off23"
_ACADEMIC: Final = "ASL (academic use)"


def _list_published() -> Iterator[PublishedFile]:
    of_mp = {
        "mp-0-small": "mace_mp_0/2023-12-10-mace-128-L0_energy_epoch-249.model",
        "mp-0-medium": "mace_mp_0/2023-12-03-mace-128-L1_epoch-199.model",
        "mp-0-large": "mace_mp_0/MACE_MPtrj_2022.9.model",
        "mp-0b-small": "mace_mp_0b/mace_agnesi_small.model",
        "mp-0b-medium": "mace_mp_0b/mace_agnesi_medium.model",
        "mp-0b2-small": "mace_mp_0b2/mace-small-density-agnesi-stress.model",
        "mp-0b2-medium": "mace_mp_0b2/mace-medium-density-agnesi-stress.model",
        "mp-0b2-large": "mace_mp_0b2/mace-large-density-agnesi-stress.model",
        "mp-0b3-medium": "mace_mp_0b3/mace-mp-0b3-medium.model",
    }
    for name, file in of_mp.items():
        yield _make(name, f"{_MP}/{file}", "MPtrj, PBE+U", "MIT")
    mpa = f"{_MP}/mace_mpa_0/mace-mpa-0-medium.model"
    yield _make("mpa-0-medium", mpa, "MPtrj and sAlex, PBE+U", "MIT")
    for size in ("small", "medium"):
        omat = f"{_MP}/mace_omat_0/mace-omat-0-{size}.model"
        yield _make(f"omat-0-{size}", omat, "OMat24, PBE+U, VASP 54", _ACADEMIC)
    for functional in ("pbe", "r2scan"):
        matpes = f"{_FOUNDATIONS}/mace_matpes_0/MACE-matpes-{functional}-omat-ft.model"
        data = {"pbe": "MatPES, PBE", "r2scan": "MatPES, r2SCAN"}[functional]
        yield _make(f"matpes-{functional}-0", matpes, data, _ACADEMIC)
    for size, blob in {
        "small": "6c1daa4a7aebf6a9ba059214ded4645774f0a1a0",
        "medium": "51573784691d0bd80bc3b6278411d006db8f848a",
        "large": "02a50e3cfad8d263e0501f7fe522062fde9874bd",
    }.items():
        address = f"{_OFF}/MACE-OFF23_{size}.model"
        data = "organic molecules, arXiv:2312.15211"
        yield _make(f"off23-{size}", address, data, _ACADEMIC, blob)


def _make(name: str, address: str, data: str, licence: str, blob: str = "") -> PublishedFile:
    return PublishedFile(name=name, address=address, data=data, licence=licence, git_blob=blob)


PUBLISHED: Final = tuple(_list_published())
ENDING: Final = ".model"
"""Suffix of the files of mace-torch."""


def find_published(name: str) -> Path:
    """Return the file of a published network, from its path or from the cache of mace-torch.

    Args:
        name: The path of a file, or one of `PUBLISHED`.

    Raises:
        ValueError: The file is missing; the message names its address.
    """
    if Path(name).suffix == ENDING:
        return Path(name)
    published = {one.name: one for one in PUBLISHED}
    if name not in published:
        raise ValueError(
            f"published:{name}: unknown; give the path of a {ENDING} file, or one of "
            f"{', '.join(published)}"
        )
    for path in _list_places(published[name].address):
        if path.is_file():
            return path
    place = next(_list_places(published[name].address))
    raise ValueError(
        f"published:{name}: {place} does not exist; fetch {published[name].address} yourself, to "
        f"this path or to another one, and name it: published:PATH{ENDING}"
    )


def _list_places(address: str) -> Iterator[Path]:
    """Yield the paths of a download in the cache of mace-torch, by its own rules for names."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "mace"
    file = address.rpartition("/")[2]
    yield cache / file
    yield cache / "".join(letter for letter in file if letter.isalnum() or letter == "_")

"""Pack what a GPU machine without a network lacks: packages, peers and inputs.

    python tests/benchmarks/gpu/pack.py [--without-operators]

Writes `build/gpu/pack.tar.xz`, to be unpacked by `python tests/benchmarks/gpu`. See `README.md`.
"""

from __future__ import annotations

import argparse
import lzma
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[2]
BUILD: Final = ROOT / "build/gpu"
PACK: Final = BUILD / "pack.tar.xz"
MOST_BYTES: Final = 64 * 2**20
"""Of tracked files and the pack: what has to travel."""
MPTRJ: Final = "mattersim_benchmarks/mptrj-random-1k.xyz"
PLATFORMS: Final = ("2_28", "2_27", "2_24", "2_17", "2_12")
UNREAD: Final = (
    *("ase/test/*", "*/tests/*", "tests/*", "build/*", "include/*", "lib64/*", "*.h", "*.pyx"),
    *("chgnet/pretrained/r2scan/*", "chgnet/pretrained/0.2.0/*", "spglib/include/*"),
    *(
        f"pymatgen/{part}/*"
        for part in ("io/lobster", "io/qchem", "io/jdftx", "io/cp2k", "io/abinit", "io/lammps")
    ),
    "pymatgen/command_line/*",
    *("pymatgen/symmetry/symm_*.yaml", "pymatgen/symmetry/symm_*.sqlite", "*.json.bz2"),
    # What is tuned for kernels of attention, which no potential here has.
    *("cuequivariance_ops/triton/cache/*", "pymatgen/core/structure_prediction/data/*"),
    *("yaml/_yaml*", "Third_party_attr.txt", "ase/gui/po/*"),
)
"""Files of wheels that no benchmark reads."""
PURE: Final = "nvidia-ml-py3"
"""A package of Python alone that chgnet imports, and that has no wheel: installed from source."""
STAND_INS: Final = {
    "peers/pandas.py": (
        '"""Stands in for pandas, which mace-torch imports to draw its trainings."""\n\n'
        "DataFrame = Series = object\n"
    ),
    "peers/lmdb.py": '"""Stands in for lmdb, which mace-torch imports to read data sets."""\n',
    "peers/torchmetrics.py": (
        '"""Stands in for torchmetrics, of which mace-torch makes errors of trainings."""'
        "\n\nMetric = object\n"
    ),
    "site/lxml.py": (
        '"""Stands in for lxml, which pymatgen imports to read pages of the web."""\n\n'
        "etree = html = None\n"
    ),
}
"""Modules in place of large packages that are imported and never used."""
FILTERS: Final = [{"id": lzma.FILTER_LZMA2, "preset": 9, "dict_size": 2**28}]
"""The dictionary spans the libraries of operators, which repeat each other: 3 GB to pack."""


def main() -> None:
    """Download, thin, and pack."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--without-operators", action="store_true", help="leave out those of cuequivariance"
    )
    args = parser.parse_args()
    stage = BUILD / "stage"
    shutil.rmtree(stage, ignore_errors=True)
    for name in ("site", "peers"):
        for wheel in download(name):
            if not (args.without_operators and "_ops_" in wheel.name):
                unpack_wheel(wheel, stage / name)
    run_pip("install", "--no-deps", "--no-compile", "--target", str(stage / "site"), PURE)
    for name, text in STAND_INS.items():
        (stage / name).write_text(text)
    write_entry_points(stage / "site")
    copy_inputs(stage / "inputs")
    with lzma.open(PACK, "w", filters=FILTERS) as file, tarfile.open(fileobj=file, mode="w") as tar:
        tar.add(stage, ".", filter=forget_owner)
    shutil.rmtree(stage)
    require_small()


def download(name: str) -> list[Path]:
    """Download the wheels of a list for Python 3.12; return them."""
    folder = BUILD / "wheels" / name
    platforms = [f"--platform=manylinux_{version}_x86_64" for version in PLATFORMS]
    platforms += ["--platform=manylinux2014_x86_64", "--platform=any"]
    python = ["--implementation=cp", "--python-version=3.12", "--abi=cp312", "--abi=abi3"]
    run_pip(
        *("download", "--no-deps", "--only-binary=:all:", *python, "--abi=none", *platforms),
        *("--dest", str(folder), "--requirement", str(HERE / f"{name}.txt")),
    )
    return sorted(folder.glob("*.whl"))


def run_pip(*words: str) -> None:
    """Call pip, and end where it fails."""
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words]
    subprocess.run(command, check=True)


def unpack_wheel(wheel: Path, folder: Path) -> None:
    """Unpack a wheel without what nothing reads."""
    with zipfile.ZipFile(wheel) as archive:
        for name in list_read(archive):
            archive.extract(name, folder)


def list_read(archive: zipfile.ZipFile) -> list[str]:
    """Return the names of files in a wheel that something may read."""
    names = archive.namelist()
    return [name for name in names if not any(fnmatch(name, pattern) for pattern in UNREAD)]


def write_entry_points(folder: Path) -> None:
    """Write by what our plugins are found where the package is not installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    info = folder / f"pipeline_core-{project['version']}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = ["[pipeline_core]"]
    lines += [f"{k} = {v}" for k, v in project["entry-points"]["pipeline_core"].items()]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


def copy_inputs(folder: Path) -> None:
    """Copy the data that benchmarks read."""
    sys.path.append(str(ROOT / "tests"))
    from real_data import locate

    folder.mkdir(parents=True)
    shutil.copy(locate(MPTRJ), folder)


def forget_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leave out who packed a file, and when."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


def require_small() -> None:
    """Print what has to travel.

    Raises:
        ValueError: It is too much.
    """
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    names = [name for name in listed.stdout.split("\0") if name]
    tree = sum((ROOT / name).lstat().st_size for name in names)
    pack = PACK.stat().st_size
    told = f"{PACK}: {pack / 2**20:.1f} MiB, with the tree {(tree + pack) / 2**20:.1f} MiB"
    if tree + pack > MOST_BYTES:
        raise ValueError(f"{told}: at most 64 travel; see --without-operators")
    print(told)


if __name__ == "__main__":
    main()

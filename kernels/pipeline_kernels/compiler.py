"""Shared libraries from C, for processors with longer or shorter vectors.

Compiled when the package is built (`setup.py`, which is why nothing but the standard library is
imported here), or else at first use (`native.py`).
"""

import hashlib
import os
import platform
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pipeline_kernels.cache import is_private, open_cache

# No OpenMP: torch and numba bring one each, and idle threads of one take the cores of another.
FLAGS = (
    "-std=gnu11",
    "-O3",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-shared",
    "-fPIC",
    "-pthread",
)
# Written out, since compilers before 2021 lack these names.
V2 = ("-msse4.2", "-mpopcnt")
V3 = (*V2, "-mavx2", "-mfma", "-mbmi", "-mbmi2", "-mf16c", "-mlzcnt", "-mmovbe")
V4 = (*V3, "-mavx512f", "-mavx512bw", "-mavx512cd", "-mavx512dq", "-mavx512vl")
LEVELS: Mapping[str, tuple[str, ...]] = (
    {"x86-64-v4": V4, "x86-64-v3": V3, "x86-64-v2": V2}
    if platform.machine() in ("x86_64", "AMD64")
    else {platform.machine(): ()}
)
TIME_LIMIT = 300  # seconds for one source


def name_library(name: str, text: str, macros: Mapping[str, str], level: str) -> str:
    """Return the file name of a library: each source, macro and set of options has its own."""
    digest = hashlib.sha256("\0".join([text, *_list_options(macros, level)]).encode())
    return f"{name}-{level}-{digest.hexdigest()[:24]}.so"


def compile_library(text: str, macros: Mapping[str, str], level: str, path: Path) -> None:
    """Compile C.

    The library is written under a name of its own, then renamed, since other processes may do the
    same. It ends in its digest, see `is_intact`.

    Args:
        text: the C.
        macros: macros to define.
        level: a key of `LEVELS`.
        path: where to write the library.

    Raises:
        subprocess.CalledProcessError: if the compiler refuses.
        OSError: if a compiler is missing, or the folder cannot be written.
    """
    compiler = shlex.split(os.environ.get("CC", "cc"))
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".") as folder:
        code, library = Path(folder) / f"{path.stem}.c", Path(folder) / path.name
        code.write_text(text)
        subprocess.run(
            [*compiler, *_list_options(macros, level), str(code), "-o", str(library), "-lm"],
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT,
            check=True,
        )
        with library.open("ab") as file:
            file.write(hashlib.sha256(library.read_bytes()).digest())
            file.flush()
            os.fsync(file.fileno())
        library.chmod(0o700)  # whatever the umask
        library.rename(path)


def keep_library(file: str, text: str, macros: Mapping[str, str], level: str) -> Path:
    """Return the path of a library in the user's cache, after compiling it if it is missing.

    Args:
        file: its name, of `name_library`.
        text: the C.
        macros: macros to define.
        level: a key of `LEVELS`.

    Raises:
        subprocess.CalledProcessError: if the compiler refuses.
        OSError: if the compiler is missing, or the cache cannot be written.
    """
    path = open_cache() / file
    if not (is_intact(path) and is_private(path)):
        compile_library(text, macros, level, path)
    return path


def is_intact(path: Path) -> bool:
    """Test that a file ends in its own digest: to load a damaged one ends the process."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return False
    size = hashlib.sha256().digest_size
    return content[-size:] == hashlib.sha256(content[:-size]).digest()


def _list_options(macros: Mapping[str, str], level: str) -> list[str]:
    return [*FLAGS, *LEVELS[level], *(f"-D{key}={value}" for key, value in macros.items())]

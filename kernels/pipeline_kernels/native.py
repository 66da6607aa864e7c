"""C that the system compiler translates at first use, for kernels that numba cannot make fast.

The shared object is kept in a folder of the user, so a machine compiles each source once, and is
called through ctypes: nothing is linked to torch, and the interpreter's lock is free meanwhile.
Where there is no compiler `load` returns None, and the kernel falls back to numba.

| variable                 | meaning                                                              |
|--------------------------|----------------------------------------------------------------------|
| `CC`                     | the compiler, `cc` if not set                                        |
| `PIPELINE_KERNELS_CACHE` | the folder, `$XDG_CACHE_HOME/pipeline_kernels` if not set            |
"""

import ctypes
import hashlib
import logging
import os
import shlex
import subprocess
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np

# No OpenMP: torch and numba bring one each, and idle threads of one take the cores of another.
FLAGS = ("-std=gnu11", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-shared", "-fPIC")
THIS_CPU = (("-march=native",), ("-mcpu=native",), ())  # the first that the compiler knows
TIME_LIMIT = 300  # seconds for one source

_log = logging.getLogger(__name__)
_failures: dict[str, str] = {}
_thread = threading.local()


@cache
def load(name: str, source: str, **macros: str) -> ctypes.CDLL | None:
    """Compiles C, or takes it from the cache, and loads it.

    Args:
        name: what messages and files are called.
        source: the C.
        macros: macros to define, for instance a type.

    Returns:
        The library, or None where it cannot be made; `why_not` tells the reason.
    """
    try:
        return _load(name, source, [f"-D{key}={value}" for key, value in macros.items()])
    except subprocess.CalledProcessError as error:
        reason = f"{shlex.join(error.cmd)}: {error.stderr.strip()}"
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
        reason = str(error)
    _failures[name] = reason
    _log.info("%s: numba instead of C, since %s", name, reason)
    return None


def why_not() -> str:
    """Returns why sources could not be compiled or loaded, a line or more for each; or nothing."""
    return "\n".join(f"{name}: {reason}" for name, reason in _failures.items())


def parallel(work: Callable[[], None], n_threads: int) -> None:
    """Runs `work` in so many threads at once, one of them the caller's.

    Each call has to take its pieces from a counter that all share, until none is left: a thread
    that starts late then finds nothing to do, and what has not started when the caller has finished
    is cancelled.

    Args:
        work: calls C and returns when no piece is left.
        n_threads: number of threads.
    """
    helpers = [_pool(os.getpid()).submit(work) for _ in range(n_threads - 1)]
    try:
        work()
    finally:
        running = [helper for helper in helpers if not helper.cancel()]
        for helper in running:
            helper.exception()  # waits
    for helper in running:
        helper.result()


def memory(n_bytes: int) -> int:
    """Returns the address of memory of the calling thread, kept from one call to the next.

    A new allocation of this size would be handed over by the system page by page, which takes
    longer than many a kernel.
    """
    kept = getattr(_thread, "memory", None)
    if kept is None or kept.nbytes < n_bytes:
        kept = _thread.memory = np.empty(n_bytes, np.uint8)
    address: int = kept.ctypes.data
    return address


@cache
def _pool(process: int) -> ThreadPoolExecutor:
    """Threads of this process: a forked one (a data loader's worker) inherits none."""
    return ThreadPoolExecutor(os.cpu_count(), f"pipeline_kernels-{process}")


def _load(name: str, source: str, macros: list[str]) -> ctypes.CDLL:
    compiler = shlex.split(os.environ.get("CC", "cc"))
    target, description = _target(compiler)
    command = [*compiler, *FLAGS, *target, *macros]
    text = "\0".join([source, *command, description])
    path = _folder() / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:24]}.so"
    if not _intact(path):
        _compile(command, source, path)
    return ctypes.CDLL(str(path))


def _target(compiler: list[str]) -> tuple[tuple[str, ...], str]:
    """Returns the options for this processor, and every macro they predefine.

    Those name the compiler's version and each set of instructions it may use: nodes that differ
    share a folder without harm.
    """
    for options in THIS_CPU:
        command = [*compiler, *options, "-dM", "-E", "-x", "c", os.devnull]
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=TIME_LIMIT, check=False
        )
        if result.returncode == 0:
            return options, result.stdout
    raise subprocess.CalledProcessError(result.returncode, command, stderr=result.stderr)


def _folder() -> Path:
    if chosen := os.environ.get("PIPELINE_KERNELS_CACHE"):
        folder = Path(chosen)
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(base) / "pipeline_kernels"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"{error}; set PIPELINE_KERNELS_CACHE to a folder of yours") from error
    return folder


def _compile(command: list[str], source: str, path: Path) -> None:
    """Writes the library under a name of its own, then renames it: other ranks do the same."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".") as folder:
        code, made = Path(folder) / f"{path.stem}.c", Path(folder) / path.name
        code.write_text(source)
        subprocess.run(
            [*command, str(code), "-o", str(made), "-lm"],
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT,
            check=True,
        )
        with made.open("ab") as file:
            file.write(hashlib.sha256(made.read_bytes()).digest())
            file.flush()
            os.fsync(file.fileno())
        made.rename(path)


def _intact(path: Path) -> bool:
    """Whether the file ends in its own digest: to load a damaged one would kill the process."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return False
    size = hashlib.sha256().digest_size
    return content[-size:] == hashlib.sha256(content[:-size]).digest()

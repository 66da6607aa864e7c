"""Caches of numba and Triton: in no folder that others can write.

Oracle: numba's own count of what it has loaded from a file, and where the files lie.
"""

import ctypes
import os
import subprocess
import sys
import warnings

import pytest

from pipeline_kernels import cache, operators
from tiers import exhaustive

LOOP = """
from pipeline_kernels.jit import njit
from loops.constants import add
@njit()
def run(x):
    return add(x)
"""
ADD = """
from pipeline_kernels.jit import njit
@njit(inline="always")
def add(x):
    return x + ADDED
"""
CALL = """
from loops.run import run
print(run(1), sum(run.stats.cache_hits.values()))
"""


@pytest.fixture
def loops(tmp_path):
    """A package of two modules with loops, one of which the other calls."""
    folder = tmp_path / "loops"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "run.py").write_text(LOOP)
    (folder / "constants.py").write_text(ADD.replace("ADDED", "1"))
    return folder


def call(loops, preexec=None, **variables):
    """Return result, number of loaded loops and warnings of a process with a home of its own."""
    home, temporary = loops.parent / "home", loops.parent / "tmp"
    for folder in (home, temporary):
        folder.mkdir(exist_ok=True)
    chosen = {k: v for k, v in os.environ.items() if k not in ("NUMBA_CACHE_DIR", cache.VARIABLE)}
    places = {"HOME": str(home), "XDG_CACHE_HOME": "", "TMPDIR": str(temporary)}
    path = os.pathsep.join([str(loops.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", CALL],
        env=chosen | places | {"PYTHONPATH": path} | variables,
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=preexec,
    )
    assert not [*temporary.glob("pipeline_kernels_*")], "it goes with the process"
    return *map(int, done.stdout.split()), done.stderr.count("compiled anew by each process")


def find_files(folder):
    return {path.relative_to(folder).parts[0] for path in folder.rglob("*.nbi")}


@pytest.mark.slow
def test_a_loop_is_kept_beside_its_source_and_follows_those_that_it_calls(loops):
    """Of itself numba looks at the file of the loop alone."""
    assert call(loops) == (2, 0, 0)
    assert call(loops) == (2, 1, 0)
    assert find_files(loops / "__pycache__") == {"numba"}
    assert (loops / "__pycache__/numba").stat().st_mode & 0o777 == 0o700
    (loops / "constants.py").write_text(ADD.replace("ADDED", "5"))
    assert call(loops) == (6, 0, 0)


@pytest.mark.slow
def test_loops_that_others_could_have_written_are_not_loaded(loops):
    assert call(loops)[0] == 2
    (loops / "__pycache__/numba").chmod(0o777)
    assert call(loops) == (2, 0, 0)
    assert call(loops) == (2, 1, 0), "kept in the home"
    assert find_files(loops.parent / "home/.cache") == {"pipeline_kernels"}
    (loops.parent / "home/.cache/pipeline_kernels").chmod(0o770)
    assert call(loops) == (2, 0, 1)


@exhaustive
def test_a_folder_that_is_named_for_numba_is_looked_at_too(loops, tmp_path):
    named = tmp_path / "named"
    named.mkdir(mode=0o700)
    chosen = {"NUMBA_CACHE_DIR": str(named)}
    assert call(loops, **chosen) == (2, 0, 0)
    assert call(loops, **chosen) == (2, 1, 0)
    named.chmod(0o777)
    assert call(loops, **chosen) == (2, 0, 1)


def obey_modes():
    """Take from root what lets it write where modes forbid it; others have never had it."""
    drop, override, search = 24, 1, 2  # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    for capability in (override, search):
        ctypes.CDLL(None).prctl(drop, capability, 0, 0, 0)


@pytest.mark.slow
def test_loops_are_compiled_where_neither_package_nor_home_can_be_written(loops):
    """As in a container that is read only."""
    home = loops.parent / "read_only"
    for folder in (home, loops):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o555)
    assert call(loops, preexec=obey_modes, HOME=str(home)) == (2, 0, 1)
    assert not [*loops.rglob("__pycache__"), *home.iterdir()]


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty home, and a process in which no cache has been opened yet."""
    for name in ("XDG_CACHE_HOME", cache.VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TRITON_CACHE_DIR", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    cache._make_temporary.cache_clear()
    cache.protect_triton.cache_clear()
    yield tmp_path
    cache.protect_triton.cache_clear()


def test_triton_keeps_its_files_in_the_folder_of_the_user(home):
    run = operators._import_late("posixpath:basename")
    assert run("a/b") == "b"
    assert os.environ["TRITON_CACHE_DIR"] == str(home / ".cache/pipeline_kernels/triton")
    knobs = pytest.importorskip("triton").knobs
    assert knobs.cache.dir == os.environ["TRITON_CACHE_DIR"]


def test_a_folder_that_is_named_for_triton_is_looked_at_too(home, monkeypatch):
    named = home / "named"
    named.mkdir(mode=0o700)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(named))
    with warnings.catch_warnings(action="error"):
        cache.protect_triton()
    assert os.environ["TRITON_CACHE_DIR"] == str(named)
    cache.protect_triton.cache_clear()
    named.chmod(0o777)
    with pytest.warns(RuntimeWarning, match="named: others can write here .* TRITON_CACHE_DIR"):
        cache.protect_triton()
    folder = os.environ["TRITON_CACHE_DIR"]
    assert not folder.startswith(str(named))
    assert os.stat(folder).st_mode & 0o777 == 0o700  # noqa: PTH116


def test_without_any_home_there_is_one_warning_for_all(home, monkeypatch):
    monkeypatch.setenv("HOME", "/dev/null")
    (home / "a").write_text("no folder")
    with pytest.warns(RuntimeWarning) as warned:
        folder = cache.open_cache()
    assert len(warned) == 1
    assert warned[0].category is RuntimeWarning
    assert "compiled anew by each process" in str(warned[0].message)
    assert "/dev/null" not in str(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    with warnings.catch_warnings(action="error"):
        assert cache.open_cache() == folder
        assert cache.open_numba_cache(home / "a") == folder / "numba"
        cache.protect_triton()
    assert os.environ["TRITON_CACHE_DIR"] == str(folder / "triton")

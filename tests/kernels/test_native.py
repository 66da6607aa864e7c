"""Libraries in C: built with the package, compiled at first use, kept, or not to be had.

Oracle: the C standard, for the few lines below.
"""

import ctypes
import os
import shutil
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch

from pipeline_kernels import cache, compiler, native
from pipeline_kernels.cache import open_cache
from processes import finish

ANSWER = "long answer(void) { return ANSWER; }"
LOAD = f"""
from pipeline_kernels import native
print(native.open_library("answer", {ANSWER!r}, ANSWER="42").answer(), end="")
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache, and nothing loaded before."""
    monkeypatch.setenv("PIPELINE_KERNELS_CACHE", str(tmp_path))
    monkeypatch.setattr(native, "_failures", {})
    native.open_library.cache_clear()
    yield tmp_path
    native.open_library.cache_clear()


@pytest.fixture(scope="module")
def compiler_needed(tmp_path_factory):
    path = tmp_path_factory.mktemp("probe") / "probe.so"
    try:
        compiler.compile_library("int probe;", {}, native.choose_level(), path)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"needs a C compiler: {error}")


@pytest.fixture(scope="module")
def made(tmp_path_factory, compiler_needed):
    """The file that holds the library, made by another process: nothing of it is loaded here."""
    folder = tmp_path_factory.mktemp("made")
    finish(["-c", LOAD], PIPELINE_KERNELS_CACHE=str(folder))
    (path,) = folder.glob("answer-*.so")
    return path


@pytest.fixture
def answer(folder, made):
    """This file in the cache."""
    return shutil.copy2(made, folder / made.name)


def open_answer(text=ANSWER, number="42"):
    return native.open_library("answer", text, ANSWER=number).answer()


@pytest.mark.slow
def test_each_source_and_each_macro_has_its_library(answer, folder):
    assert open_answer() == 42
    assert open_answer(number="43") == 43
    assert open_answer(ANSWER + "int more;") == 42
    assert len(list(folder.glob("answer-*.so"))) == 3


@pytest.mark.slow
def test_what_another_process_compiled_is_used(answer):
    before = answer.stat()
    assert open_answer() == 42
    assert (answer.stat().st_ino, answer.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.slow
@pytest.mark.parametrize("damage", [lambda b: b"", lambda b: b[: len(b) // 2], lambda b: b[::-1]])
def test_a_damaged_file_is_made_again(answer, damage):
    whole = answer.read_bytes()
    answer.write_bytes(damage(whole))
    assert open_answer() == 42
    assert len(answer.read_bytes()) == len(whole)


@pytest.mark.slow
def test_many_processes_may_compile_at_once(folder, compiler_needed):
    command = [sys.executable, "-c", LOAD]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    assert [process.communicate()[0] for process in started] == [b"42"] * 2
    (path,) = folder.iterdir()
    assert path.name.startswith("answer-")


@pytest.mark.slow
def test_what_was_built_with_the_package_needs_no_compiler(
    answer, folder, tmp_path_factory, monkeypatch
):
    prebuilt = tmp_path_factory.mktemp("prebuilt")
    answer.rename(prebuilt / answer.name)
    monkeypatch.setattr(native, "PREBUILT", prebuilt)
    monkeypatch.setenv("CC", "/no/such/compiler")
    assert open_answer() == 42
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("CC", "/no/such/compiler", "/no/such/compiler"),
        ("CC", "false --option", "false --option -std"),
        ("PIPELINE_KERNELS_CACHE", "/dev/null/cache", "set PIPELINE_KERNELS_CACHE to a folder"),
    ],
)
def test_without_a_compiler_or_a_folder_there_is_one_warning(
    folder, monkeypatch, variable, value, reason
):
    monkeypatch.setenv(variable, value)
    with warnings.catch_warnings(record=True, action="always") as warned:
        for number in ("42", "42", "43"):
            with pytest.raises(native.UnavailableError, match=reason):
                open_answer(number=number)
    assert len(warned) == 1
    assert "times as long. Install" in str(warned[0].message)
    assert reason in str(warned[0].message)


def test_an_error_of_the_compiler_is_the_reason(folder, compiler_needed):
    with (
        pytest.warns(RuntimeWarning, match="nothing"),
        pytest.raises(native.UnavailableError, match="nothing"),
    ):
        native.open_library("wrong", "int wrong(void) { return nothing; }")
    assert not list(folder.iterdir())


SCALE = """
#include <stdint.h>
typedef struct { double factor; } Scale;
int64_t last(const double *x, int64_t n) { return x ? x[n - 1] : -1; }
void scale(const double *x, double *out, const Scale *scale, int64_t n, int64_t *counter,
           double *memory)
{
    for (int64_t i; (i = __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED)) < n;) {
        *memory = scale->factor * x[i];
        out[i] = *memory;
    }
}
"""


class Scale(ctypes.Structure):
    _fields_ = (("factor", ctypes.c_double),)


@pytest.mark.parametrize("n_threads", [1, 3])
def test_routines_take_tensors_arrays_structures_and_numbers(folder, compiler_needed, n_threads):
    library = native.open_library("scale", SCALE)
    x, out = torch.arange(100, dtype=torch.float64), np.empty(100)
    native.call_routine(library, "scale", x, out, Scale(0.5), 100, n_threads=n_threads, n_bytes=8)
    assert np.array_equal(out, 0.5 * x.numpy())
    assert native.compute_size(library, "last", x, 100) == 99
    assert native.compute_size(library, "last", x[:0], 0) == -1
    assert native.compute_size(library, "last", None, 0) == -1


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"XDG_CACHE_HOME": "xdg", "PIPELINE_KERNELS_CACHE": "own"}, "own"),
        ({"XDG_CACHE_HOME": "xdg"}, "xdg/pipeline_kernels"),
        ({}, "home/.cache/pipeline_kernels"),
    ],
)
def test_the_folder_follows_the_environment(tmp_path, monkeypatch, variables, expected):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_CACHE_HOME", "PIPELINE_KERNELS_CACHE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, str(tmp_path / value))
    assert open_cache() == tmp_path / expected
    assert (tmp_path / expected).stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("mode", "user", "reason"),
    [
        *((mode, os.geteuid(), "others can write here") for mode in (0o777, 0o770, 0o702)),
        (0o700, 12345, "or own it"),
    ],
)
def test_code_in_a_folder_of_others_is_not_executed(
    answer, folder, monkeypatch, mode, user, reason
):
    folder.chmod(mode)
    monkeypatch.setattr(cache.os, "geteuid", lambda: user)
    with (
        pytest.warns(RuntimeWarning, match=reason),
        pytest.raises(native.UnavailableError, match="chmod 700"),
    ):
        open_answer()


def test_a_library_that_others_can_write_is_compiled_anew(answer, folder):
    answer.chmod(0o777)
    before = answer.stat().st_ino
    assert open_answer(number="42") == 42
    assert answer.stat().st_ino != before
    assert answer.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_everyone_could_replace_is_refused(tmp_path, monkeypatch):
    open_to_all = tmp_path / "shared"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    monkeypatch.setenv("PIPELINE_KERNELS_CACHE", str(open_to_all / "mine"))
    with pytest.raises(OSError, match="everyone can replace it"):
        open_cache()
    open_to_all.chmod(0o1777)  # as /tmp
    assert open_cache() == open_to_all / "mine"

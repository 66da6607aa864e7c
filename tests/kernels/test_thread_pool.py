"""The threads that run routines in C.

Oracle: each piece is done once, by as many threads as can be had, whatever other threads do.
"""

import ctypes
import platform
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psutil
import pytest

from pipeline_kernels import compiler, native

SHARE = """
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
/* Count how often each piece is done, by which thread, once so many threads have come. */
void share(int64_t n, int64_t expected, int32_t *times, int64_t *threads, int64_t *present,
           int64_t *counter, char *memory)
{
    if (expected) {
        __atomic_fetch_add(present, 1, __ATOMIC_SEQ_CST);
        while (__atomic_load_n(present, __ATOMIC_SEQ_CST) < expected)
            sched_yield();
    }
    for (int64_t i; (i = __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED)) < n;) {
        times[i]++;
        threads[i] = (int64_t)pthread_self();
        memory[0] = memory[99] = (char)i;
    }
}
void many(int64_t a, int64_t b, int64_t c, int64_t d, int64_t e, int64_t f, int64_t g, int64_t h,
          int64_t i, int64_t j, int64_t k, int64_t *out, int64_t *counter, int64_t *memory)
{
    *memory = a - b + c - d + e - f + g - h + i - j + k;
    *out = *memory + *counter;
}
void halve(int64_t n, double *x, double *y, int64_t *counter)
{
    for (int64_t i; (i = __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED)) < n;)
        y[i] = x[i] / 2;
}
void fill(int64_t n_bytes, int64_t *where, int64_t *counter, char *memory)
{
    memset(memory, 1, n_bytes);
    *where = (int64_t)memory;
}
"""
FORK = """
import ctypes, os, sys, numpy as np
from pipeline_kernels import native
library = ctypes.CDLL(sys.argv[1])
def share(expected):
    times, threads = np.zeros(1000, np.int32), np.zeros(1000, np.int64)
    arrays = times, threads, np.zeros(1, np.int64)
    native.call_routine(library, "share", 1000, expected, *arrays, n_threads=2, n_bytes=100)
    return (times == 1).all()
assert share(2)
child = os.fork()
if child == 0:
    os._exit(not (share(2) and share(0)))
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) or not share(2))
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("thread_pool") / "share.so"
    try:
        compiler.compile_library(SHARE, {}, native.choose_level(), path)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"needs a C compiler: {error}")
    return path


@pytest.fixture(scope="module")
def library(path):
    return ctypes.CDLL(str(path))


def share(library, n_threads, n_pieces=1000, wait=True):
    """Count how often each piece was done, and the threads in all."""
    times, threads = np.zeros(n_pieces, np.int32), np.zeros(n_pieces, np.int64)
    expected = n_threads if wait else 0
    arrays = times, threads, np.zeros(1, np.int64)
    native.call_routine(
        library, "share", n_pieces, expected, *arrays, n_threads=n_threads, n_bytes=100
    )
    return times, len(set(threads))


@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_threads_share_the_pieces(library, n_threads):
    for _ in range(20):
        times, _ = share(library, n_threads)
        assert (times == 1).all()


def test_fewer_threads_may_be_asked_for_later(library):
    for n_threads in (4, 2, 1, 3):
        times, n_used = share(library, n_threads, 100_000, wait=False)
        assert (times == 1).all()
        assert n_used <= n_threads


@pytest.mark.slow
def test_two_callers_at_once_do_not_disturb_each_other(library):
    with ThreadPoolExecutor(3) as pool:
        results = pool.map(lambda _: share(library, 2, 10_000, wait=False)[0], range(300))
    assert all((times == 1).all() for times in results)


@pytest.mark.slow
def test_a_forked_process_has_threads_of_its_own(path):
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORK, str(path)]
    subprocess.run(command, check=True, timeout=100)


def test_more_arguments_than_registers_arrive(library):
    out = np.zeros(1, np.int64)
    native.call_routine(library, "many", *range(11), out, n_threads=1, n_bytes=8)
    assert out == [sum(range(0, 11, 2)) - sum(range(1, 11, 2))]


@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="no flush mode")
@pytest.mark.parametrize("n_threads", [1, 3])
def test_a_routine_takes_numbers_of_few_digits_for_zero_and_the_caller_does_not(library, n_threads):
    least = np.finfo(float).smallest_normal
    x = np.resize([3.0, 1.5 * least, least / 4], 30_000)
    y = np.empty_like(x)
    native.call_routine(library, "halve", len(x), x, y, n_threads=n_threads)
    assert (y.reshape(-1, 3) == [1.5, 0, 0]).all()
    assert (x[1:3] / 2 > 0).all()


def test_memory_that_cannot_be_had_is_an_error(library):
    with pytest.raises(MemoryError, match=r"2 threads of \d+ MiB each for fill"):
        native.call_routine(library, "fill", 0, None, n_threads=2, n_bytes=1 << 62)


def fill(library, n_bytes):
    """Return the address of the workspace of the calling thread."""
    where = np.zeros(1, np.int64)
    native.call_routine(library, "fill", n_bytes, where, n_threads=1, n_bytes=n_bytes)
    return int(where[0])


def test_a_thread_keeps_its_memory(library):
    first = fill(library, 100_000)
    assert first % 64 == 0
    assert fill(library, 50_000) == first


def test_a_thread_that_ends_gives_back_its_memory(library):
    measure, size = psutil.Process().memory_info, 2**24
    before = measure().rss
    for _ in range(60):
        thread = threading.Thread(target=fill, args=(library, size))
        thread.start()
        thread.join()
    assert measure().rss - before < 30 * size

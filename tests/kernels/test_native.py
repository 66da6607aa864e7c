"""C compiled at first use: the cache, what happens without a compiler, threads.

Oracle: what the C standard says the few lines below return.
"""

import subprocess
import sys
import threading
from itertools import count

import pytest

from pipeline_kernels import native

ANSWER = "long answer(void) { return ANSWER; }"
LOAD = f"""
from pipeline_kernels import native
print(native.load("answer", {ANSWER!r}, ANSWER="42").answer(), end="")
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache, and nothing loaded before."""
    monkeypatch.setenv("PIPELINE_KERNELS_CACHE", str(tmp_path))
    monkeypatch.setattr(native, "_failures", {})
    native.load.cache_clear()
    yield tmp_path
    native.load.cache_clear()


@pytest.fixture
def answer(folder):
    """The file that holds the library, made by another process: nothing of it is loaded here."""
    if native.load("probe", "int probe;") is None:
        pytest.skip(f"needs a C compiler: {native.why_not()}")
    subprocess.run([sys.executable, "-c", LOAD], check=True, capture_output=True)
    (path,) = folder.glob("answer-*.so")
    return path


def test_each_source_and_each_macro_has_its_library(answer, folder):
    assert native.load("answer", ANSWER, ANSWER="42").answer() == 42
    assert native.load("answer", ANSWER, ANSWER="43").answer() == 43
    assert native.load("answer", ANSWER + "int more;", ANSWER="42").answer() == 42
    assert len(list(folder.glob("answer-*.so"))) == 3
    assert native.why_not() == ""


def test_what_another_process_compiled_is_used(answer):
    before = answer.stat()
    assert native.load("answer", ANSWER, ANSWER="42").answer() == 42
    assert (answer.stat().st_ino, answer.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize("damage", [lambda b: b"", lambda b: b[: len(b) // 2], lambda b: b[::-1]])
def test_a_damaged_file_is_made_again(answer, damage):
    whole = answer.read_bytes()
    answer.write_bytes(damage(whole))
    assert native.load("answer", ANSWER, ANSWER="42").answer() == 42
    assert len(answer.read_bytes()) == len(whole)


def test_many_processes_may_compile_at_once(folder):
    if native.load("probe", "int probe;") is None:
        pytest.skip(f"needs a C compiler: {native.why_not()}")
    command = [sys.executable, "-c", LOAD]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(3)]
    assert [process.communicate()[0] for process in started] == [b"42"] * 3
    left = {path.name.split("-")[0] for path in folder.iterdir()}
    assert left == {"probe", "answer"}
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("CC", "/no/such/compiler", "/no/such/compiler"),
        ("CC", "false --option", "false --option -dM"),
        ("PIPELINE_KERNELS_CACHE", "/dev/null/cache", "set PIPELINE_KERNELS_CACHE to a folder"),
    ],
)
def test_without_a_compiler_or_a_folder_there_is_a_reason(
    folder, monkeypatch, variable, value, reason
):
    monkeypatch.setenv(variable, value)
    assert native.load("answer", ANSWER, ANSWER="42") is None
    assert native.why_not().startswith("answer: ")
    assert reason in native.why_not()


def test_an_error_of_the_compiler_is_the_reason(answer, folder):
    assert native.load("wrong", "int wrong(void) { return nothing; }") is None
    assert "nothing" in native.why_not()
    assert not list(folder.glob("*wrong*"))


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
    assert native._folder() == tmp_path / expected
    assert (tmp_path / expected).stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("n_threads", [1, 2])
def test_threads_share_the_pieces(n_threads):
    numbers, done, idents = count(), [], set()
    together = threading.Barrier(n_threads)

    def work():
        together.wait(10)
        idents.add(threading.get_ident())
        while (piece := next(numbers)) < 100:
            done.append(piece)

    native.parallel(work, n_threads)
    assert sorted(done) == list(range(100))
    assert len(idents) == n_threads


def test_an_error_in_a_thread_is_raised():
    here = threading.get_ident()
    started = threading.Event()

    def work():
        if threading.get_ident() != here:
            started.set()
            raise ValueError("piece 3")
        assert started.wait(10)

    with pytest.raises(ValueError, match="piece 3"):
        native.parallel(work, 2)


def test_a_thread_keeps_its_memory():
    address = native.memory(100)
    assert native.memory(50) == address
    others = []
    thread = threading.Thread(target=lambda: others.append(native.memory(100)))
    thread.start()
    thread.join()
    assert others != [address]

"""Programs in forks of one process that has imported the engine, which takes longer than most do.

`start_programs` gives a folder for the path. Its `snakemake` and `pipeline-core` hand over what
they are called with: arguments, variables, the working folder and open files. They end as their
fork does, and it ends with them; after SIGHUP it ends first. So does `forked-python`, for
`-m MODULE` and for a program on its standard input; `python` is the interpreter itself.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

TIME_LIMIT = 1200  # seconds: only what hangs takes as long, on however busy a machine

CLIENT = """\
#!{python} -IS
import json, os, signal, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    call = json.dumps([{name!r}, sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [len(call).to_bytes(8, "big")], [0, 1, 2])
    server.sendall(call)
    signal.signal(signal.SIGHUP, lambda *_: server.shutdown(socket.SHUT_WR))
    sys.exit(int.from_bytes(server.recv(1) or b"\\1", "big"))
"""


@cache
def start_programs() -> Path:
    """Start the process that forks; return the folder of the programs."""
    folder = Path(tempfile.mkdtemp(prefix="programs-"))  # short: it is part of an address
    atexit.register(shutil.rmtree, folder)
    server = subprocess.Popen(
        [sys.executable, __file__, folder],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(server.communicate)  # ends it
    assert server.stdout is not None
    assert server.stdout.readline() == "ready\n"
    for name in ("snakemake", "pipeline-core", "forked-python"):
        words = {"python": sys.executable, "address": str(folder / "socket"), "name": name}
        write_script(folder / name, CLIENT.format(**words))
    write_script(folder / "python", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    return folder


def write_script(path: Path, text: str) -> None:
    """Write a program."""
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def _serve(folder: str) -> None:
    import smart_open  # noqa: F401 - as the first rule would
    import torch._dynamo  # noqa: F401 - as the first optimizer would, in two seconds
    from snakemake import cli
    from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor

    import pipeline_core.figures.drawing
    import pipeline_core.training.trainer
    import pipeline_core.workflow.rules  # noqa: F401
    from pipeline_core.stages.builtin import load_registry

    load_registry()
    cli.get_argument_parser()
    RemoteExecutor.sleep = _wait_for_news
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{folder}/socket")
    listener.listen()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who attend
    gc.freeze()  # a collection in a fork would copy all that is imported
    print("ready", flush=True)
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:
            return
        connection, _ = listener.accept()
        if not os.fork():
            listener.close()
            _attend(connection, folder)
            os._exit(0)
        connection.close()


async def _wait_for_news(_executor: Any) -> None:
    """Wait between two questions to a cluster; Snakemake waits ten seconds longer each time."""
    await asyncio.sleep(0.5)


def _attend(connection: socket.socket, folder: str) -> None:
    """Run one program, and end it where its caller ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    head, files, _, _ = socket.recv_fds(connection, 8, 3)
    with connection.makefile("rb") as stream:
        call = json.loads(stream.read(int.from_bytes(head, "big")))
    program = os.fork()
    if not program:
        connection.close()
        _become(*call, files, folder)
    for file in files:
        os.close(file)
    ended = os.pidfd_open(program)
    ready, _, _ = select.select([ended, connection], [], [])
    if ended not in ready:
        with suppress(ProcessLookupError):  # it has no group yet where it has just been forked
            os.killpg(program, signal.SIGKILL)
        os.kill(program, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
    with suppress(BrokenPipeError):  # of a caller that has been killed
        connection.sendall(bytes([code if code >= 0 else 128 - code]))


def _become(
    name: str, words: list[str], place: str, variables: dict[str, str], files: Any, folder: str
) -> None:
    """Be a program as a new process would be, and end without taking apart what is imported.

    That takes a second, which is ten times what most of them do.
    """
    os.setsid()
    signal.alarm(TIME_LIMIT)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(place)
    os.environ.clear()
    os.environ.update(variables)
    sys.path[:0] = filter(None, variables.get("PYTHONPATH", "").split(os.pathsep))
    sys.argv = [name, *words]
    sys.executable = f"{folder}/python"  # whose folder a workflow puts first on the path
    if name == "snakemake":
        from snakemake.cli import main
    elif name == "pipeline-core":
        from pipeline_core.cli import main
    else:
        sys.path.insert(0, place)
        main = _run_python
    code = _call(main)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def _run_python() -> None:
    """Run a module by its name, or the program on standard input."""
    _, option, *arguments = sys.argv
    if option == "-m":
        sys.argv = arguments
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        return
    assert option == "-", option
    sys.argv = [option, *arguments]
    module = sys.modules["__main__"] = ModuleType("__main__")
    exec(compile(sys.stdin.read(), "<stdin>", "exec"), module.__dict__)  # noqa: S102


def _call(main: Callable[[], Any]) -> int:
    """Call the function of a program; return the status with which Python would end."""
    try:
        main()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:  # noqa: BLE001 - as Python does
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    _serve(sys.argv[1])

"""Processes that have imported PyTorch already, for tests that start many of them.

Importing it takes seconds of CPU time. One process does, and ``python -c`` commands then run in
copies of it: each a child of the test, with its own session, environment, folder and files, as
``subprocess.Popen`` starts them. Only what the kernel shows as their command line is that of the
process they are copies of.
"""

import atexit
import contextlib
import ctypes
import importlib
import json
import os
import socket
import subprocess
import sys
import time
import traceback
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

_REQUEST_BYTES = 128 * 1024
_DESCRIPTORS_MOST = 16
_PR_SET_CHILD_SUBREAPER = 36
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[2]); from tests.support.warm_torch import serve; "
    "del sys.path[0]; serve(int(sys.argv[1]))"
)


class WarmTorch:
    """The process that copies are made of; started when the first one is asked for. It imports
    these ``modules``, too."""

    def __init__(self, *modules: str) -> None:
        self._modules = modules
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, descriptors: Mapping[int, int], **request: Any) -> int:
        """Have a copy do what ``_arrange`` and ``_run`` read of the request; its PID.

        ``descriptors``: numbers there, and which of the test's files these are.
        """
        if self._socket is None:
            self._launch()
        assert self._socket is not None
        request |= {"numbers": list(descriptors), "parent": os.getpid()}
        _take_orphans(True)
        try:
            files = list(descriptors.values())
            socket.send_fds(self._socket, [json.dumps(request).encode()], files)
            return int(self._socket.recv(_REQUEST_BYTES))
        finally:
            _take_orphans(False)

    def _launch(self) -> None:
        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-c", _BOOT),
                *(str(its.fileno()), str(Path(__file__).parents[2]), *self._modules),
            ],
            stdin=subprocess.DEVNULL,
            pass_fds=[its.fileno()],
        )
        its.close()
        self._socket = mine

    @property
    def popen(self) -> type[subprocess.Popen[Any]]:
        """``subprocess.Popen`` for ``python -c`` commands, which run in copies."""
        return type("Popen", (_Popen,), {"warm": self})

    def close(self) -> None:
        if self._socket is not None and self._process is not None:
            self._socket.close()
            self._process.wait()
            self._socket = self._process = None

    @contextlib.contextmanager
    def instead_of(self, *modules: types.ModuleType) -> Iterator[None]:
        """What these modules start by ``subprocess.Popen`` is a copy."""
        warm = types.SimpleNamespace(**vars(subprocess))
        warm.Popen = self.popen
        before = [(module, vars(module)["subprocess"]) for module in modules]
        for module, _ in before:
            vars(module)["subprocess"] = warm
        try:
            yield
        finally:
            for module, its in before:
                vars(module)["subprocess"] = its


class _Popen(subprocess.Popen):  # type: ignore[type-arg]
    """``subprocess.Popen`` but for how the process comes to be."""

    warm: WarmTorch

    def _execute_child(  # type: ignore[override]
        self,
        args: Sequence[str],
        executable: object,
        preexec_fn: object,
        close_fds: object,
        pass_fds: Sequence[int],
        cwd: str | None,
        env: Mapping[str, str] | None,
        startupinfo: object,
        creationflags: object,
        shell: object,
        p2cread: int,
        p2cwrite: int,
        c2pread: int,
        c2pwrite: int,
        errread: int,
        errwrite: int,
        restore_signals: object,
        gid: object,
        gids: object,
        uid: object,
        umask: object,
        start_new_session: bool,
        *more: object,
    ) -> None:
        assert list(args[:2]) == [sys.executable, "-c"]
        standard = {0: p2cread, 1: c2pwrite, 2: errwrite}
        files = {number: number if its == -1 else its for number, its in standard.items()}
        self.pid = self.warm.start(
            {**files, **{number: number for number in pass_fds}},
            arguments=list(args[2:]),
            environment=dict(os.environ if env is None else env),
            folder=str(cwd or Path.cwd()),
            session=bool(start_new_session),
        )
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)


def _take_orphans(yes: bool) -> None:
    """Descendants whose parent dies become children of this process (prctl(2)), or not."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, int(yes), 0, 0, 0)


# --- in the process that is copied -----------------------------------------------------------


def serve(descriptor: int) -> NoReturn:
    with contextlib.suppress(ModuleNotFoundError):
        import numpy  # noqa: F401
    import torch  # noqa: F401

    for module in sys.argv[3:]:
        importlib.import_module(module)
    connection = socket.socket(fileno=descriptor)
    while True:
        data, files, _, _ = socket.recv_fds(connection, _REQUEST_BYTES, _DESCRIPTORS_MOST)
        if not data:
            os._exit(0)
        request = json.loads(data)
        reading, writing = os.pipe()
        between = os.fork()
        if between == 0:
            _copy(request, files, writing)
        os.close(writing)
        # Once it has ended, its child is the test's.
        os.waitpid(between, 0)
        connection.send(os.read(reading, 32))
        for one in (reading, *files):
            os.close(one)


def _copy(request: dict[str, Any], files: list[int], writing: int) -> NoReturn:
    child = os.fork()
    if child:
        os.write(writing, str(child).encode())
        os._exit(0)
    while os.getppid() != request["parent"]:
        time.sleep(0.0005)
    code = 1
    try:
        _arrange(request, files)
        code = _run(request["arguments"])
        atexit._run_exitfuncs()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)


def _arrange(request: dict[str, Any], files: list[int]) -> None:
    """Its own session, folder, environment, and no files but those that it is given."""
    if request["session"]:
        os.setsid()
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    numbers = request["numbers"]
    taken = [int(name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208 - by name
    free = max(*numbers, *taken) + 1
    for place, one in enumerate(files):
        os.dup2(one, free + place)
    os.closerange(3, free)
    for place, number in enumerate(numbers):
        os.dup2(free + place, number)
    os.closerange(free, free + len(files))


def _run(arguments: list[str]) -> int:
    code, *rest = arguments
    sys.argv = ["-c", *rest]
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    try:
        exec(compile(code, "<string>", "exec"), vars(main))
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0

"""The command line from Python: `chairlift` as it is installed, and the commands that are functions."""

from __future__ import annotations

import inspect as introspection
import os
import pathlib
import signal
import socket
import subprocess
import sys
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

from ._errors import Error, InvalidArgument, Unavailable

PROGRAM = pathlib.Path(__file__).with_name("chairlift")
FAILED, USAGE = 1, 2  # exit codes


def _environment() -> dict[str, str]:
    """Workers of Python functions run what runs this."""
    return {"CHAIRLIFT_PYTHON": sys.executable, **os.environ} if sys.executable else dict(os.environ)


def main() -> None:
    """The console script."""
    os.execve(PROGRAM, ["chairlift", *sys.argv[1:]], _environment())


def _flags(flags: dict[str, Any]) -> Iterator[str]:
    """http_port=0 as --http-port 0; True: the flag alone; a list: once for each."""
    for name, value in flags.items():
        flag = "--" + name.replace("_", "-")
        for one in value if isinstance(value, (list, tuple, set)) else [value]:
            if one is True:
                yield flag
            elif one is not None and one is not False:
                yield from (flag, os.fspath(one) if isinstance(one, os.PathLike) else str(one))


def path_of(model: str | os.PathLike[str] | Callable[..., Any] | type) -> str:
    """What the command line calls a model: its path, or "file.py:name" of a function or class."""
    if isinstance(model, (str, os.PathLike)):
        path = os.fspath(model)
        if isinstance(path, str) and "\0" in path:
            raise InvalidArgument(f"{path!r} is no path: it has a zero byte")
        return path
    if not callable(model) or not hasattr(model, "__qualname__"):
        raise TypeError(f"a model is a path, or a function or class of a Python file; this is {model!r}")
    name = model.__qualname__
    try:
        file = introspection.getsourcefile(introspection.unwrap(model))
    except TypeError:
        file = None
    if file is None or not os.path.isfile(file):
        raise InvalidArgument(f"'{name}' is of no file that a worker process could import: write it to one")
    if "<" in name:
        raise InvalidArgument(f"'{name}' is made inside a function, or has no name: a worker process finds functions "
                              "and classes of the file itself only")
    return f"{os.path.abspath(file)}:{name}"


def inspect(model: str | os.PathLike[str] | Callable[..., Any] | type, **flags: Any) -> str:
    """What `chairlift inspect` says of a model: signature, operators, passes, memory, how its requests share batches.

        print(chairlift.inspect("model.onnx", passes=True))

    flags: those of the command line (`chairlift inspect --help`), with underscores.
    """
    command = [PROGRAM, "inspect", path_of(model), *_flags(flags)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=_environment())
    if done.returncode:
        raise _error(done.returncode, done.stderr)
    return done.stdout


def _error(code: int, said: str) -> Error:
    lines = [line for line in said.strip().splitlines() if not line.startswith("`chairlift")]
    text = lines[-1] if lines else f"chairlift ended with status {code}"
    return (InvalidArgument if code == USAGE else Unavailable if code < 0 else Error)(text)


class Server:
    """A `chairlift serve` in a process of its own, for as long as a `with` block:

        with chairlift.Server("models", http_port=0) as server:
            requests.post(server.url + "/v2/models/minilm/infer", …)

    Models and flags as for `chairlift.serve()`. Returns once the models are loaded. It ends with the block, `close()` or
    this process, after its requests in flight.
    """

    def __init__(self, *models: str | os.PathLike[str] | Callable[..., Any] | type, **flags: Any) -> None:
        _refuse_in_worker()
        command = [PROGRAM, "serve", *map(path_of, models), *_flags(flags)]
        ours, theirs = socket.socketpair()
        self._socket = ours
        with theirs:
            # A session of its own: a terminal's Ctrl-C reaches this process alone.
            self._process = subprocess.Popen([*command, "--parent-fd", str(theirs.fileno())], env=_environment(),
                                             pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
                                             start_new_session=True)
        try:
            addresses = ours.recv(4096).decode().split()
        except BaseException:
            self._process.kill()
            self._process.wait()
            ours.close()
            raise
        if not addresses:
            ours.close()
            code = self._process.wait()
            raise _error(code, f"the server did not start (status {code}); what it printed says why")
        self.url = f"http://{addresses[0]}"
        """Where it answers: "http://127.0.0.1:8000"."""
        self.metrics_url = f"http://{addresses[1]}/metrics" if len(addresses) > 1 else None

    @property
    def port(self) -> int:
        port = urllib.parse.urlsplit(self.url).port
        assert port is not None
        return port

    def wait(self) -> None:
        """Until the server has ended. Ctrl-C has it end after its requests in flight, a second one at once."""
        while True:
            try:
                code = self._process.wait()
                break
            except KeyboardInterrupt:
                self._process.send_signal(signal.SIGINT)
        self._socket.close()
        if code not in (0, -signal.SIGINT, -signal.SIGTERM):
            raise _error(code, f"the server ended with status {code}; what it printed says why")

    def close(self) -> None:
        """Has the server end after its requests in flight, and waits for that."""
        self._process.send_signal(signal.SIGINT)  # unlike SIGTERM, without waiting for --drain-seconds
        self._process.wait()
        self._socket.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(*models: str | os.PathLike[str] | Callable[..., Any] | type, **flags: Any) -> None:
    """Serves models over HTTP until Ctrl-C, as `chairlift serve` does: ONNX files, models' folders, folders of models,
    Python functions and classes.

        chairlift.serve("model.onnx", http_port=8080)

        if __name__ == "__main__":        # for the worker processes of a function import its file
            chairlift.serve(predict)

    flags: those of the command line (`chairlift serve --help`), with underscores.
    """
    try:
        with Server(*models, **flags) as server:
            server.wait()
    except KeyboardInterrupt:  # while it started
        pass


def _refuse_in_worker() -> None:
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    if file and os.path.realpath(file) == os.path.realpath(PROGRAM.with_name("_worker.py")):
        raise InvalidArgument("a worker process that loads a function's file must not serve it again: put the call under "
                              '`if __name__ == "__main__":`')

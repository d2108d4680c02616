"""The command line from Python: the installed program `chairlift`, and functions that run its commands."""

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
    """Python models run in the interpreter that runs this process."""
    return {"CHAIRLIFT_PYTHON": sys.executable, **os.environ} if sys.executable else dict(os.environ)


def main() -> None:
    """Entry point of the console script."""
    os.execve(PROGRAM, ["chairlift", *sys.argv[1:]], _environment())


def _flags(flags: dict[str, Any]) -> Iterator[str]:
    """Flags from keyword arguments: http_port=0 is --http-port 0, True is the flag alone, a list repeats the flag."""
    for name, value in flags.items():
        flag = "--" + name.replace("_", "-")
        for one in value if isinstance(value, (list, tuple, set)) else [value]:
            if one is True:
                yield flag
            elif one is not None and one is not False:
                yield from (flag, os.fspath(one) if isinstance(one, os.PathLike) else str(one))


def path_of(model: str | os.PathLike[str] | Callable[..., Any] | type) -> str:
    """What the command line takes for a model: a path, or "file.py:name" for a function or class."""
    if isinstance(model, (str, os.PathLike)):
        path = os.fspath(model)
        if isinstance(path, str) and "\0" in path:
            raise InvalidArgument(f"{path!r} is no path: it has a zero byte")
        return path
    if not callable(model) or not hasattr(model, "__qualname__"):
        raise TypeError(f"a model is a path, or a function or class of a Python file, not {model!r}")
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
    """Returns what `chairlift inspect` prints for a model: inputs and outputs, operators, memory, and how requests
    share batches.

        print(chairlift.inspect("model.onnx", passes=True))

    flags: flags of the command, with underscores (`chairlift inspect --help`).
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
    """A `chairlift serve` process that ends with a `with` block:

        with chairlift.Server("models", http_port=0) as server:
            requests.post(server.url + "/v2/models/minilm/infer", …)

    It takes the models and flags of `chairlift.serve()`, and returns when the models are loaded. The process ends after
    the requests in flight, at the end of the block, on `close()`, or with this process.
    """

    def __init__(self, *models: str | os.PathLike[str] | Callable[..., Any] | type, **flags: Any) -> None:
        _refuse_in_worker()
        command = [PROGRAM, "serve", *map(path_of, models), *_flags(flags)]
        ours, theirs = socket.socketpair()
        self._socket = ours
        with theirs:
            # The server gets its own session, so that a terminal's Ctrl-C reaches only this process.
            self._process = subprocess.Popen([*command, "--parent-fd", str(theirs.fileno())], env=_environment(),
                                             pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
                                             start_new_session=True)
        try:
            told = ours.recv(4096).decode(errors="replace")
        except BaseException:
            self._process.kill()
            self._process.wait()
            ours.close()
            raise
        addresses = [] if told.startswith("error ") else told.split()
        if not addresses:
            ours.close()
            code = self._process.wait()
            why = told.removeprefix("error ").strip() or "what it printed says why"
            raise _error(code, f"the server did not start (status {code}): {why}")
        self.url = f"http://{addresses[0]}"
        """The server's address, such as "http://127.0.0.1:8000"."""
        self.metrics_url = f"http://{addresses[1]}/metrics" if len(addresses) > 1 else None

    @property
    def port(self) -> int:
        """The port of `url`."""
        port = urllib.parse.urlsplit(self.url).port
        assert port is not None
        return port

    def wait(self) -> None:
        """Waits until the server ends. Ctrl-C ends it after its requests in flight; a second Ctrl-C ends it at once."""
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
        """Ends the server after its requests in flight, and waits for that."""
        self._process.send_signal(signal.SIGINT)  # unlike SIGTERM, without waiting for --drain-seconds
        self._process.wait()
        self._socket.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(*models: str | os.PathLike[str] | Callable[..., Any] | type, **flags: Any) -> None:
    """Serves models over HTTP until Ctrl-C, as `chairlift serve` does. A model is an ONNX file, the folder of a model, a
    repository, or a Python function or class.

        chairlift.serve("model.onnx", http_port=8080)

        if __name__ == "__main__":        # needed because worker processes import this file
            chairlift.serve(predict)

    flags: flags of the command, with underscores (`chairlift serve --help`).
    """
    try:
        with Server(*models, **flags) as server:
            server.wait()
    except KeyboardInterrupt:  # during the start
        pass


def _refuse_in_worker() -> None:
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    if file and os.path.realpath(file) == os.path.realpath(PROGRAM.with_name("_worker.py")):
        raise InvalidArgument("a worker process that loads a function's file must not serve it again: put the call under "
                              '`if __name__ == "__main__":`')

"""serving.py FOLDER FD ARGUMENT...: a server of one block, until the tests say so or have ended, or a minute has passed."""

import json
import os
import pathlib
import sys
import time

import sandbox


def main():
    folder, fd = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    stop_at = folder / f"stop.{os.getpid()}"
    try:
        server = sandbox.Server(sys.argv[3:], folder, pathlib.Path.cwd())
    except RuntimeError as error:
        os.write(fd, str(error).encode()[:60000])
        os.close(fd)
        sys.exit(1)
    earlier = folder / "serving.pid"
    if earlier.exists():
        (folder / f"stop.{earlier.read_text()}").touch()
    earlier.write_text(str(os.getpid()))
    (folder / "ports.json").write_text(json.dumps(server.ports))
    os.write(fd, b"ready")
    os.close(fd)
    end = time.monotonic() + 60
    tests = pathlib.Path("/proc", os.environ["DOCS_TESTS_PID"])
    while not stop_at.exists() and tests.exists() and time.monotonic() < end and server.process.poll() is None:
        time.sleep(0.02)
    server.stop()


if __name__ == "__main__":
    main()

"""`chairlift serve` as the tests start it, on free ports of the loopback."""

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build/release/bin/chairlift"

sys.path.insert(0, str(ROOT / "tests/support"))
import ending  # noqa: E402


class Serving:
    """After `serve`: `url` and `metrics` are addresses of the server, `log` is what it has printed."""

    def serve(self, *arguments, program=PROGRAM, environment=None):
        self.process = ending.start(
            [program, "serve", *arguments, "--no-autotune", "--http-port", "0", "--metrics-port", "0", "--workers", "2",
             "--drain-seconds", "0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=environment or {**os.environ, "CHAIRLIFT_PYTHON": sys.executable})
        self.log = ""
        for line in self.process.stdout:
            self.log += line
            if found := re.search(r"models? on (http://[0-9.]+:[0-9]+)", line):
                self.url = found.group(1)
            if found := re.search(r"metrics on (http://[0-9.]+:[0-9]+)", line):
                self.metrics = found.group(1)
                return
        raise RuntimeError(self.log)

    def close(self):
        self.process.terminate()
        self.process.wait(timeout=60)

#!/usr/bin/env python3
"""Runs unmodified clients of other projects against a server of the example models.

    python tests/clients/run.py --chairlift build/release/bin/chairlift --models build/models

It needs the packages of tools/requirements-clients.txt. The server uses a free port on loopback.
"""

import argparse
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import ending  # noqa: E402

MODELS = ["g2p", "identity", "lstm_classifier", "minilm", "silero_vad_16k"]
LIMIT_S = 180  # of everything


def start_server(chairlift, models):
    """The process, and its host:port once it answers."""
    command = [chairlift, "serve", "--model-repository", models, "--no-autotune", "--http-port", "0",
               "--metrics-port", "-1", "--workers", "2", "--drain-seconds", "0"]
    for model in MODELS:
        command += ["--load-model", model]
    # Texts are made tokens by this interpreter, which has what that needs.
    environment = {**os.environ, "CHAIRLIFT_PYTHON": sys.executable}
    process = ending.start(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for line in process.stdout:
        print(line, end="", flush=True)
        found = re.search(r"models on http://([0-9.]+:[0-9]+)", line)
        if found:
            threading.Thread(target=process.stdout.read, daemon=True).start()
            return process, found.group(1)
    sys.exit(f"the server ended with {process.wait()}")


def give_up(_signal, _frame):
    raise TimeoutError(f"the clients were not done after {LIMIT_S} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--chairlift", required=True, help="the program")
    parser.add_argument("--models", required=True, help="the example models, as a repository")
    flags = parser.parse_args()
    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(LIMIT_S)
    process, address = start_server(flags.chairlift, flags.models)
    try:
        os.environ["CHAIRLIFT_ADDRESS"] = address
        folder = pathlib.Path(__file__).resolve().parent
        tests = unittest.defaultTestLoader.discover(str(folder), pattern="*_test.py")
        result = unittest.TextTestRunner(verbosity=2).run(tests)
    finally:
        process.terminate()
        process.wait(timeout=40)
    return 0 if result.wasSuccessful() and result.testsRun > 0 else 1


if __name__ == "__main__":
    sys.exit(main())

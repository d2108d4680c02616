"""What stands for the commands of the pages: the same commands, at the ports of the sandbox's server."""

import json
import os
import pathlib
import re
import subprocess
import sys

REPOSITORY = ({"models"}, {"--model-repository", "models"})  # what the server of all pages has
FEW = "models-few"  # stands for `models` where a page serves it with other flags: loading all takes seconds


def at_ports(argument, folder):
    http, metrics = json.loads((pathlib.Path(folder) / "ports.json").read_text())
    argument = re.sub(r"(localhost|127\.0\.0\.1):8000", f"127.0.0.1:{http}", argument)
    return re.sub(r"(localhost|127\.0\.0\.1):8002", f"127.0.0.1:{metrics}", argument)


def curl(arguments, folder):
    fail = [] if os.environ.get("DOCS_ERRORS_ARE_SHOWN") else ["--fail-with-body"]
    os.execv("/usr/bin/curl", ["curl", *fail, "-sS", *(at_ports(one, folder) for one in arguments)])


def chairlift(arguments, folder):
    folder = pathlib.Path(folder)
    program = os.environ.get("CHAIRLIFT_PROGRAM")
    if arguments[:1] == ["serve"] and "--help" not in arguments:
        if set(arguments[1:]) in REPOSITORY and pathlib.Path.cwd() == folder:
            return
        if pathlib.Path.cwd() == folder:
            arguments = [FEW if one == "models" else one for one in arguments]
        ready, write = os.pipe()
        child = subprocess.Popen([sys.executable, str(pathlib.Path(__file__).with_name("serving.py")), str(folder),
                                  str(write), *arguments[1:]], pass_fds=[write], start_new_session=True,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(write)
        with os.fdopen(ready) as said:
            answer = said.read()
        if answer != "ready":
            sys.exit(f"{answer}\n(status {child.wait()})")
        return
    arguments = [at_ports(one, folder) for one in arguments]
    if arguments[:1] == ["bench"] and "--seconds" not in arguments:
        searches = {"--peak", "--tune-delay"} & set(arguments)  # many runs
        arguments += ["--seconds", "0.1" if searches else "0.5", "--warmup-seconds", "0.1"]
        arguments += ["--requests", "8"] if searches else []
    os.execv(program, ["chairlift", *arguments])


def python(arguments, folder):
    """`.venv/bin/python examples/….py`, and anything else."""
    real = os.environ["CHAIRLIFT_PYTHON"]
    if arguments[:2] == ["-m", "onnxruntime_genai.models.builder"]:
        return _downloads().builder(arguments[2:])
    if arguments and pathlib.Path(arguments[0]).parent.name == "examples":
        return _example(arguments[0], arguments[1:], folder)
    os.execv(real, [real, *arguments])


def example(arguments, folder):
    _example(sys.argv[0], arguments, folder)


def _example(script, arguments, folder):
    real = pathlib.Path(__file__).resolve().parents[2] / "examples" / pathlib.Path(script).name
    at = at_ports("http://localhost:8000", folder)
    os.execv(os.environ["CHAIRLIFT_PYTHON"], [os.environ["CHAIRLIFT_PYTHON"], str(real), *arguments, "--url", at])


def _downloads():
    import downloads  # needs what `curl` and `chairlift` start faster without
    return downloads


def pip(arguments, folder):
    _downloads().pip(arguments)


def python3(arguments, folder):
    if arguments[:2] != ["-m", "venv"]:
        os.execv("/usr/bin/python3", ["python3", *arguments])
    _downloads().venv(arguments[2])


def hf(arguments, folder):
    _downloads().hf(arguments)


def optimum(arguments, folder):
    _downloads().optimum(arguments)

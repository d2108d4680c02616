"""One sandbox and one server of all example models for the pages' commands."""

import json
import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))
import sandbox  # noqa: E402


@pytest.fixture(scope="session")
def box(tmp_path_factory):
    if not sandbox.PROGRAM.exists() or not sandbox.EXAMPLES.is_dir():
        pytest.fail(f"{sandbox.PROGRAM} and {sandbox.EXAMPLES} must be built first: `make build`, "
                    "examples/build_models.py --output build/models")
    folder = tmp_path_factory.mktemp("docs") / "box"
    sandbox.make(folder)
    os.environ["CHAIRLIFT_PROGRAM"] = str(sandbox.PROGRAM)
    os.environ["DOCS_TESTS_PID"] = str(os.getpid())
    server = sandbox.Server(["--model-repository", "models"], folder)
    (folder / "ports.json").write_text(json.dumps(server.ports))
    (folder / "all.json").write_text(json.dumps(server.ports))
    yield folder
    server.stop()

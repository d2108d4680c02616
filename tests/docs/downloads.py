"""What stands for programs that download models, in a block of a page: the same commands write small models from here.

A block with such a command runs in an empty folder, so its next commands find only what these have written.
"""

import json
import pathlib
import re
import shutil
import sys

import sandbox
from pages import ROOT

USED = re.compile(r"\b(hf download|optimum-cli export|onnxruntime_genai\.models\.builder|pip install)\b")
# Packages that the pages install, apart from those of the tooling.
PACKAGES = {"huggingface_hub", "jinja2", "onnxruntime-genai", "optimum-onnx"}
DECODERS = ROOT / "tests/models/decoders"
TRANSLATORS = ROOT / "tests/models/encoder_decoders"


def stop(why):
    sys.exit(f"tests/docs/downloads.py: {why}")


def pip(arguments):
    """`pip install [-U] PACKAGE…`: the names must be packages that the tooling or the pages know."""
    known = set(PACKAGES)
    for file in (ROOT / "tools").glob("requirements*.txt"):
        known.update(re.findall(r"^([\w.-]+)==", file.read_text(), re.MULTILINE))
    if arguments[:1] != ["install"]:
        stop(f"pip {arguments}")
    for argument in arguments[1:]:
        name = re.fullmatch(r"([\w.-]+)(\[[\w,]+\])?", argument)
        if argument != "-U" and (name is None or name[1] not in known):
            stop(f"pip install {argument}: no such package is known; the pages and tools/requirements*.txt have the names")


def venv(folder):
    """`python3 -m venv FOLDER`: with a pip and a Python of the tooling."""
    commands = pathlib.Path(folder) / "bin"
    commands.mkdir(parents=True)
    for name in ("pip", "python"):
        (commands / name).symlink_to(shutil.which("pip") if name == "pip" else sandbox.PYTHON)


def hf(arguments):
    """`hf download REPOSITORY --local-dir FOLDER`: an encoder as the hub has it, its ONNX file in a folder of its own."""
    if len(arguments) != 4 or arguments[0] != "download" or arguments[2] != "--local-dir":
        stop(f"hf {arguments}")
    folder = pathlib.Path(arguments[3])
    write_encoder(folder, folder / "onnx")


def write_encoder(folder, onnx):
    onnx.mkdir(parents=True)
    for file in (sandbox.EXAMPLES / "minilm").iterdir():
        if file.name != "1":
            (shutil.copytree if file.is_dir() else shutil.copy)(file, folder / file.name)
    (onnx / "model.onnx").symlink_to(sandbox.EXAMPLES / "minilm/1/model.onnx")


def optimum(arguments):
    """`optimum-cli export onnx --model NAME [--no-post-process] FOLDER`: an encoder, or a pair of files for opus-mt."""
    if arguments[:3] != ["export", "onnx", "--model"] or set(arguments[4:-1]) - {"--no-post-process"}:
        stop(f"optimum-cli {arguments}")
    folder = pathlib.Path(arguments[-1])
    if "opus-mt" not in arguments[3]:
        write_encoder(folder, folder)
        return
    shutil.copytree(TRANSLATORS / "marian_hf4_optimum_eager", folder)
    sandbox.tokenizer(folder / "tokenizer.json")


def builder(arguments):
    """`python -m onnxruntime_genai.models.builder -m NAME -o FOLDER -p int4 -e cpu`."""
    flags = dict(zip(arguments[::2], arguments[1::2], strict=True))
    if set(flags) != {"-m", "-o", "-p", "-e"} or flags["-p"] not in ("int4", "fp32") or flags["-e"] != "cpu":
        stop(f"builder {arguments}")
    folder = pathlib.Path(flags["-o"])
    folder.mkdir(parents=True)
    shutil.copy(DECODERS / "qwen3_genai018_int4.onnx", folder / "model.onnx")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 1}))
    sandbox.tokenizer(folder / "tokenizer.json")

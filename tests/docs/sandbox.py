"""A folder in which printed commands run: models by the names that the pages use, a server, and commands that find it.

Commands are the built program and the system's curl, behind wrappers that direct ports 8000 and 8002 to the server of
the folder. `chairlift serve` starts a server and returns when it is ready; of the example models one server runs for all.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import sys
import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers
from tokenizers import models as tokenizer_models

import pages
from pages import ROOT

sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT / "examples")]
import ending  # noqa: E402
from models import bert  # noqa: E402
from wrappers import FEW  # noqa: E402

PROGRAM = pathlib.Path(os.environ.get("CHAIRLIFT", ROOT / "build/release/bin/chairlift"))
EXAMPLES = pathlib.Path(os.environ.get("CHAIRLIFT_MODELS", ROOT / "build/models"))
PYTHON = ROOT / ".venv/bin/python"
CLIENTS = ROOT / "build/clients/bin/python"
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64

WRAPPER = """#!{python}
import sys
sys.path.insert(0, {here!r})
import wrappers
wrappers.{name}(sys.argv[1:], {folder!r})
"""


def save(path, nodes, inputs, outputs, constants=(), domains=(), opset=17):
    graph = helper.make_graph(
        [helper.make_node(*node[:3], **(node[3] if len(node) > 3 else {})) for node in nodes], "graph",
        [helper.make_tensor_value_info(*value) for value in inputs],
        [helper.make_tensor_value_info(*value) for value in outputs],
        [numpy_helper.from_array(array, name) for name, array in constants])
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(name, version) for name, version in domains)]
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)


def doubling(path, batch="batch", width="n"):
    """y = x + x."""
    save(path, [("Add", ["x", "x"], ["y"])], [("x", FLOAT, [batch, width])], [("y", FLOAT, [batch, width])])


def image_classifier(path, size, fixed):
    """A small network for images, in place of the large one that the pages name."""
    rng = np.random.default_rng(1)
    sizes = [size, size] if fixed else ["height", "width"]
    weights = [(name, (rng.standard_normal(shape) * 0.1).astype(np.float32))
               for name, shape in [("w1", (8, 3, 3, 3)), ("w2", (16, 8, 3, 3)), ("w3", (16, 16, 3, 3)), ("d", (16, 10))]]
    conv = {"kernel_shape": [3, 3], "strides": [4, 4], "pads": [1, 1, 1, 1]}
    save(path, [("Conv", ["image", "w1"], ["a"], conv), ("Relu", ["a"], ["b"]), ("Conv", ["b", "w2"], ["c"], conv),
                ("Relu", ["c"], ["e"]), ("Conv", ["e", "w3"], ["f"], conv), ("Relu", ["f"], ["g"]),
                ("GlobalAveragePool", ["g"], ["h"]), ("Flatten", ["h"], ["i"]), ("MatMul", ["i", "d"], ["logits"])],
         [("image", FLOAT, ["batch", 3, *sizes])], [("logits", FLOAT, ["batch", 10])], weights)


def iris(path):
    """As skl2onnx writes a logistic regression without maps."""
    rng = np.random.default_rng(1)
    attributes = {"domain": "ai.onnx.ml", "classlabels_ints": [0, 1, 2], "multi_class": 1, "post_transform": "SOFTMAX",
                  "coefficients": rng.standard_normal(12).astype(np.float32).tolist(), "intercepts": [0.0, 0.1, 0.2]}
    save(path, [("LinearClassifier", ["X"], ["label", "probabilities"], attributes)], [("X", FLOAT, ["batch", 4])],
         [("label", INT64, ["batch"]), ("probabilities", FLOAT, ["batch", 3])], domains=[("ai.onnx.ml", 1)])


def shop(path):
    """A column of strings, one-hot, as skl2onnx writes a OneHotEncoder."""
    save(path, [("OneHotEncoder", ["colour"], ["encoded"], {"domain": "ai.onnx.ml", "cats_strings": ["blue", "red"]})],
         [("colour", TensorProto.STRING, ["batch", 1])], [("encoded", FLOAT, ["batch", 1, 2])], domains=[("ai.onnx.ml", 1)])


def reranker(folder):
    """A small cross-encoder with seeded weights."""
    (folder / "1").mkdir(parents=True)
    onnx.save(bert.bert(bert.BertShape(layers=1, hidden=32, heads=2, intermediate=32), seed=1, pooling="score"),
              folder / "1/model.onnx")
    shutil.copy(EXAMPLES / "minilm/tokenizer.json", folder)


FILES = """
from PIL import Image
Image.new("RGB", (640, 480), "white").save("page.jpg")
import joblib
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
joblib.dump(RandomForestClassifier(5).fit(*load_iris(return_X_y=True)), "forest.joblib")
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
mood = make_pipeline(TfidfVectorizer(), LogisticRegression())
joblib.dump(mood.fit(["a lovely day", "it rained"], ["good", "bad"]), "mood.joblib")
"""


def write_files(page, folder):
    """The files that a page prints: Python and YAML that begin with their names."""
    for block in pages.blocks(page):
        named = re.match(r"# ([\w/]+\.(?:py|yaml))\n", block.text)
        if named and block.language in ("python", "yaml"):
            path = folder / named[1].replace("models/", f"{FEW}/", 1)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)


def tokenizer(path):
    """A token for each of 61 characters, for the small decoders of tests/models."""
    characters = ["<s>", "</s>", "?", *" abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,!'"]
    one = Tokenizer(tokenizer_models.WordLevel({c: i for i, c in enumerate(characters)}, unk_token="?"))
    one.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    one.decoder = decoders.Fuse()
    one.save(str(path))


def decoder(folder, file):
    (folder / "1").mkdir(parents=True)
    shutil.copy(ROOT / "tests/models/decoders" / file, folder / "1/model.onnx")
    (folder / "1/generation_config.json").write_text(json.dumps({"eos_token_id": 1}))
    tokenizer(folder / "tokenizer.json")


def make(folder):
    """Everything that the pages name."""
    repository = folder / "models"
    repository.mkdir(parents=True)
    for model in sorted(EXAMPLES.iterdir()):
        (repository / model.name).symlink_to(model)
    decoder(repository / "llama", "llama_hf5_torchscript_sdpa_17.onnx")
    decoder(repository / "gpt2", "gpt2_hf5_torchscript_sdpa_17.onnx")
    doubling(repository / "NAME/1/model.onnx")
    few = folder / FEW
    few.mkdir()
    for name in ("NAME", "ocr_orientation", "lstm_classifier"):
        (few / name).symlink_to((repository / name).resolve())
    doubling(folder / "model.onnx")
    doubling(folder / "fixed.onnx", batch=1)
    image_classifier(folder / "resnet18.onnx", 224, fixed=True)
    image_classifier(repository / "resnet18/1/model.onnx", 224, fixed=True)
    image_classifier(folder / "vgg19.onnx", 64, fixed=True)
    iris(folder / "iris.onnx")
    shop(repository / "shop/1/model.onnx")
    reranker(repository / "reranker")
    subprocess.run([PYTHON, "-c", FILES], cwd=folder, check=True)
    shutil.copy(EXAMPLES / "lstm_classifier/1/model.onnx", folder / "lstm.onnx")
    (folder / "minilm").mkdir()
    for file in (EXAMPLES / "minilm").iterdir():
        (folder / "minilm" / file.name).symlink_to(file)
    (folder / "minilm/model_q4.onnx").symlink_to(EXAMPLES / "minilm/1/model.onnx")
    np.save(folder / "x.npy", np.ones((1, 4), np.float32))
    np.save(folder / "prompt.npy", np.array([[5, 6, 7]], np.int64))
    (folder / "request.json").write_text(json.dumps(
        {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]}))
    (folder / "lengths.json").write_text(json.dumps({"histogram": {"8": 3, "16": 1}}))
    (folder / "costs.csv").write_text("whole,1,1750\nwhole,8,7000\nstage1,1,1000\nstage1,8,1000\nstage2,1,750\n"
                                      "stage2,8,6000\n")
    (folder / "COSTS.csv").write_text("".join(f"step,{n},{1000 + 10 * n}\n" for n in (1, 8, 64, 256)))
    (folder / "my.py").write_text("import numpy as np\n\ndef predict(x: np.ndarray) -> np.ndarray:\n    return np.tanh(x)\n")
    (folder / "build").mkdir()
    (folder / "build/release").symlink_to(ROOT / "build/release")
    for name in ("bench", "deploy", "Makefile"):
        (folder / name).symlink_to(ROOT / name)
    write_files("docs/guides/vision-and-ocr.md", folder)
    (few / "decode/1").mkdir(parents=True)
    shutil.copy(folder / "decode.py", few / "decode/1")
    (few / "decode/model.yaml").write_text("python: decode.py:predict\n")
    commands = folder / "bin"
    commands.mkdir()
    for name in ("chairlift", "curl", "python", "python3", "pip", "hf"):
        script(commands / name, name, folder)
    script(commands / "optimum-cli", "optimum", folder)
    shutil.copy(ROOT / "README.md", folder)  # a file to classify
    (folder / "examples").mkdir()
    for example in (ROOT / "examples").glob("*.py"):
        script(folder / "examples" / example.name, "example", folder)
    (folder / "examples/embed").symlink_to(ROOT / "examples/embed")
    (folder / ".venv/bin").mkdir(parents=True)
    script(folder / ".venv/bin/python", "python", folder)


def script(path, name, folder):
    path.write_text(WRAPPER.format(python=sys.executable, here=str(pathlib.Path(__file__).parent), name=name,
                                   folder=str(folder)))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


class Server:
    """`chairlift serve` with the arguments that a page prints, on free ports of the loopback."""

    def __init__(self, arguments, folder, cwd=None):
        said_to = folder / f"server.{os.getpid()}.log"
        self.log = open(said_to, "w", encoding="utf-8")
        command = [str(PROGRAM), "serve", *without_ports(arguments), "--http-port", "0", "--metrics-port", "0",
                   "--drain-seconds", "0"]
        if "--no-timing" not in command:
            command.append("--no-timing")
        self.process = ending.start(command, cwd=cwd or folder, env=environment(folder), stdout=self.log,
                                    stderr=self.log, stdin=subprocess.DEVNULL)
        self.ports = None
        for _ in range(900):
            said = said_to.read_text(encoding="utf-8", errors="replace")
            http = re.search(r"models? on http://[0-9.]+:([0-9]+)", said)
            metrics = re.search(r"metrics on http://[0-9.]+:([0-9]+)", said)
            if http:
                self.ports = (int(http[1]), int(metrics[1]) if metrics else 1)
                break
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        if self.ports is None:
            self.stop()
            raise RuntimeError(f"{' '.join(command)}:\n{said}")

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()


def without_ports(arguments):
    kept, skip = [], False
    for argument in arguments:
        if skip:
            skip = False
        elif argument in ("--http-port", "--metrics-port", "--address"):
            skip = True
        else:
            kept.append(argument)
    return kept


def environment(folder):
    return {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "CHAIRLIFT_PYTHON": str(PYTHON),
            "XDG_CACHE_HOME": str(ROOT / "build/docs-cache")}

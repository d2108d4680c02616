"""Where mistakes are made: a folder of models, the program on them, and one server that all requests are sent to."""

import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import typing

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("CHAIRLIFT", str(ROOT / "build/release/bin/chairlift"))
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "tests/support")]

import ending  # noqa: E402
from models import bert  # noqa: E402

# Nothing here may listen on a port that others use, or run on when it should have been refused.
SERVE = ["--http-port", "0", "--metrics-port", "-1", "--no-autotune", "--drain-seconds", "0"]
TIMEOUT = 30


class Mistake(typing.NamedTuple):
    """What a user does, and what the message must say: what is wrong, why, and what would work."""
    name: str
    make: typing.Callable  # of a Workshop; returns the message
    what: str
    why: str
    works: str


def graph(nodes, inputs, outputs, constants=(), opset=17, domains=()):
    """A model; `inputs` and `outputs`: (name, type, shape), `constants`: (name, array)."""
    return helper.make_model(helper.make_graph(
        [helper.make_node(*node[:3], **(node[3] if len(node) > 3 else {})) for node in nodes], "graph",
        [helper.make_tensor_value_info(*value) for value in inputs],
        [helper.make_tensor_value_info(*value) for value in outputs],
        [numpy_helper.from_array(array, name) for name, array in constants]),
        opset_imports=[helper.make_opsetid("", opset), *(helper.make_opsetid(name, 1) for name in domains)], ir_version=8)


def doubling(batch="batch"):
    """y = x + x: [batch, 4]."""
    return graph([("Add", ["x", "x"], ["y"])], [("x", TensorProto.FLOAT, [batch, 4])],
                 [("y", TensorProto.FLOAT, [batch, 4])])


def lookup():
    """Rows of a table of 8, by their indices."""
    return graph([("Gather", ["table", "ids"], ["rows"])], [("ids", TensorProto.INT64, ["batch", "length"])],
                 [("rows", TensorProto.FLOAT, ["batch", "length", 3])], [("table", np.ones((8, 3), np.float32))])


def tagger():
    """An RNN over x [batch, time, 2] of tokens that index a table, which runs as cells."""
    rng = np.random.default_rng(1)
    weights = [(name, rng.standard_normal(shape).astype(np.float32))
               for name, shape in [("w", (1, 3, 2)), ("r", (1, 3, 3)), ("b", (1, 6)), ("table", (8, 2))]]
    return graph(
        [("Gather", ["table", "tokens"], ["x"]), ("Transpose", ["x"], ["xt"], {"perm": [1, 0, 2]}),
         ("RNN", ["xt", "w", "r", "b"], ["h", ""], {"hidden_size": 3}),
         ("Squeeze", ["h", "one"], ["s"]), ("Transpose", ["s"], ["y"], {"perm": [1, 0, 2]})],
        [("tokens", TensorProto.INT64, ["batch", "time"])], [("y", TensorProto.FLOAT, ["batch", "time", 3])],
        [*weights, ("one", np.array([1], np.int64))])


def words():
    """A tokenizer of letters."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(["[PAD]", *alphabet])}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def letters():
    """A tokenizer of the 61 tokens of the small decoders of tests/models."""
    names = ["<s>", "</s>", *(chr(c) for c in range(ord("!"), ord("!") + 59))]
    tokenizer = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def nobody(w):
    """For run(): a user without rights, except to enter the folder."""
    for path in [w.folder, *w.folder.parents]:
        if path.owner() == w.folder.owner() and not path.stat().st_mode & 0o001:
            path.chmod(path.stat().st_mode | 0o011)

    def leave():
        if os.geteuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
    return leave


class Workshop:
    def __init__(self, folder):
        self.folder = folder
        self.server = None
        self.put("doubling.onnx", doubling())
        self.put("model/1/model.onnx", doubling())
        np.save(folder / "x.npy", np.ones((1, 4), np.float32))
        np.save(folder / "wide.npy", np.ones((1, 5), np.float32))
        np.save(folder / "double.npy", np.ones((1, 4)))
        self.text("ok.py", "import numpy as np\ndef predict(x: np.ndarray) -> np.ndarray:\n    return x\n")

    def put(self, path, model):
        """Writes a model, or bytes."""
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
        return str(self.folder / path)

    def text(self, path, text):
        return self.put(path, text.encode())

    def model(self, name, yaml=None, model=None, **files):
        """The folder of a model with a model.yaml, or other files by their names."""
        self.put(f"{name}/1/model.onnx", model or doubling())
        if yaml is not None:
            self.text(f"{name}/model.yaml", yaml)
        for file, text in files.items():
            self.text(f"{name}/{file.replace('_', '.')}", text)
        return str(self.folder / name)

    def run(self, *args, env=None, preexec_fn=None, wrapper=()):
        """What the program prints, in the folder; it must fail."""
        # Its workers hold its output open, so it goes by itself, with all of them.
        process = ending.start(
            [*wrapper, PROGRAM, *args], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, before=preexec_fn, start_new_session=True,
            env={**os.environ, "CHAIRLIFT_PYTHON": sys.executable, **(env or {})})
        try:
            said, _ = process.communicate(timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise AssertionError(f"it was not refused:\n{process.communicate()[0]}") from None
        assert process.returncode not in (0, None) and process.returncode > 0, f"{process.returncode}: {said}"
        return said

    def serve(self, *args, **options):
        return self.run("serve", *args, *SERVE, **options)

    def python(self, code, env=None):
        """The last line of what a Python program prints, which must fail."""
        done = subprocess.run([sys.executable, "-c", code], cwd=self.folder, capture_output=True, text=True,
                              timeout=TIMEOUT, env={**os.environ, **(env or {})})
        assert done.returncode != 0, done.stdout
        return done.stderr.strip()

    def start(self):
        served = self.folder / "served"
        self.put("served/doubling/1/model.onnx", doubling())
        self.put("served/lookup/1/model.onnx", lookup())
        self.put("served/tagger/1/model.onnx", tagger())
        self.put("served/embedder/1/model.onnx", bert.bert(
            bert.BertShape(layers=1, hidden=16, heads=2, intermediate=16), seed=1, pooling=None))
        words().save(str(served / "embedder/tokenizer.json"))
        self.text("served/embedder/config.json", '{"max_position_embeddings": 16}')
        self.text("served/embedder/model.yaml", "pooling: mean\n")
        (served / "writer/1").mkdir(parents=True)
        shutil.copy(ROOT / "tests/models/decoders/gpt2_hf5_torchscript_sdpa_17.onnx", served / "writer/1/model.onnx")
        letters().save(str(served / "writer/tokenizer.json"))
        self.text("served/python/1/user.py", "import numpy as np\n\nSECRET = 'swordfish'\n\n\n"
                  "def predict(x: np.ndarray) -> np.ndarray:\n    return np.stack([1 / 0, SECRET])\n")
        self.text("served/python/model.yaml", "python: user.py:predict\n")
        self.text("served/names/1/user.py", "def predict(name: list[str]) -> list[str]:\n    return name\n")
        self.text("served/names/model.yaml", "python: user.py:predict\n")
        self.server = Server(served)

    def ask(self, path, body=None, method=None, headers=None):
        """What the server answers, which must be a refusal."""
        if self.server is None:
            self.start()
        return self.server.ask(path, body, method, headers)

    def infer(self, model="doubling", **change):
        """As ask, of a request that is right but for `change`."""
        tensor = {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}
        rest = {key: change.pop(key) for key in ("outputs", "parameters", "id") if key in change}
        tensor = {key: value for key, value in {**tensor, **change}.items() if value is not None}
        return self.ask(f"/v2/models/{model}/infer", {"inputs": [tensor], **rest})

    def close(self):
        if self.server is not None:
            self.server.close()


class Server:
    def __init__(self, folder):
        self.log = folder.parent / "log.txt"
        with open(self.log, "w") as log:
            self.process = ending.start(
                [PROGRAM, "serve", "--model-repository", folder, "--no-autotune", "--http-port", "0", "--metrics-port", "-1",
                 "--workers", "1", "--drain-seconds", "0", "--allow-plugins", "--max-body-bytes", "1MiB",
                 "--parent-fd", "0"], stdin=(pair := socket.socketpair())[1], stdout=log, stderr=subprocess.STDOUT,
                env={**os.environ, "CHAIRLIFT_PYTHON": sys.executable})
        self.parent = pair[0]
        pair[1].close()
        line = self.parent.makefile().readline()  # once its models are loaded; its port is in it
        found = re.search(r"127\.0\.0\.1:(\d+)", line)
        assert found, (line, self.log.read_text())
        self.port = int(found.group(1))

    def ask(self, path, body=None, method=None, headers=None):
        headers = headers or {}
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)
        try:
            connection.request(method or ("GET" if body is None else "POST"), path, body, headers)
            answer = connection.getresponse()
            said = answer.read().decode()
        finally:
            connection.close()
        assert answer.status >= 400, f"it was answered: {said}"
        if "event-stream" in (answer.getheader("content-type") or ""):
            return said
        error = json.loads(said)["error"]
        return error["message"] if isinstance(error, dict) else error

    def close(self):
        self.parent.close()
        self.process.wait(timeout=TIMEOUT)

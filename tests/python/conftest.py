"""Models of the tests, written to a temporary folder of the session."""

import pathlib
import signal
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import chairlift

# A run in the background ignores interrupts, which its children would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples"))


def onnx_file(path, nodes, inputs, outputs, constants=()):
    """Writes a model; `inputs` and `outputs`: (name, type, shape), `constants`: (name, array)."""
    graph = helper.make_graph(
        [helper.make_node(*node[:3], **(node[3] if len(node) > 3 else {})) for node in nodes], "graph",
        [helper.make_tensor_value_info(*value) for value in inputs],
        [helper.make_tensor_value_info(*value) for value in outputs],
        [numpy_helper.from_array(array, name) for name, array in constants])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def doubling_file(folder):
    """y = x + x: [batch, 4]."""
    return onnx_file(folder / "doubling.onnx", [("Add", ["x", "x"], ["y"])], [("x", TensorProto.FLOAT, ["batch", 4])],
                     [("y", TensorProto.FLOAT, ["batch", 4])])


@pytest.fixture(scope="session")
def doubling(doubling_file):
    return chairlift.load(doubling_file)


@pytest.fixture(scope="session")
def several(folder):
    """sum = a + b, difference = a - b, same = a: any shape of two dimensions."""
    value = [TensorProto.FLOAT, ["n", "m"]]
    return chairlift.load(onnx_file(
        folder / "several.onnx",
        [("Add", ["a", "b"], ["sum"]), ("Sub", ["a", "b"], ["difference"]), ("Identity", ["a"], ["same"])],
        [("a", *value), ("b", *value)], [("sum", *value), ("difference", *value), ("same", *value)]))


@pytest.fixture(scope="session")
def tagger(folder):
    """y[batch, time, 3], the states of an RNN over x [batch, time, 2], which runs as cells."""
    rng = np.random.default_rng(1)
    weights = [(name, rng.standard_normal(shape).astype(np.float32))
               for name, shape in [("w", (1, 3, 2)), ("r", (1, 3, 3)), ("b", (1, 6))]]
    return chairlift.load(onnx_file(
        folder / "tagger.onnx",
        [("Transpose", ["x"], ["xt"], {"perm": [1, 0, 2]}),
         ("RNN", ["xt", "w", "r", "b"], ["h", ""], {"hidden_size": 3}),
         ("Squeeze", ["h", "one"], ["s"]), ("Transpose", ["s"], ["y"], {"perm": [1, 0, 2]})],
        [("x", TensorProto.FLOAT, ["batch", "time", 2])], [("y", TensorProto.FLOAT, ["batch", "time", 3])],
        [*weights, ("one", np.array([1], np.int64))]))


class Gate:
    """A function model that answers once its gate is open, one request after the other."""

    def __init__(self, folder):
        self.path = folder / "gate"
        (folder / "gated.py").write_text(
            "import pathlib, time\nimport numpy as np\n"
            "def predict(x: np.ndarray) -> np.ndarray:\n"
            f"    while not pathlib.Path({str(self.path)!r}).exists():\n        time.sleep(0.001)\n    return x + 1\n")
        self.model = chairlift.load(f"{folder / 'gated.py'}:predict", max_batch_size=1)

    def open(self):
        self.path.touch()

    def occupy(self):
        """Sends requests for all batches that the worker may have. The next request waits in the engine's queue."""
        return [self.model.submit(np.ones((1, 2), np.float32)) for _ in range(2)]

    def failures(self):
        return self.model.stats()["failures"]


@pytest.fixture
def gate(tmp_path):
    gate = Gate(tmp_path)
    yield gate
    gate.open()
    gate.model.close()

"""Outputs of models that run as cells: wherever time and batch lie in them, they are what the file says."""

import itertools

import numpy as np
import pytest
from conftest import onnx_file
from onnx import TensorProto

import chairlift

FEATURES, HIDDEN, DIRECTIONS = 3, 2, 2
# Nodes after y [time, directions, batch, hidden], and what `shape` is among their constants.
OUTPUTS = {
    "softmax over time": ([("Softmax", ["y"], ["out"], {"axis": 0})], []),
    "sums over time": ([("CumSum", ["y", "zero"], ["out"])], []),
    "time backwards": ([("Slice", ["y", "last", "before", "axis", "back"], ["out"])], []),
    "time last, after a softmax over it": ([("Transpose", ["y"], ["t"], {"perm": [2, 1, 3, 0]}),
                                            ("Softmax", ["t"], ["out"], {"axis": 3})], []),
    "batch last": ([("Transpose", ["y"], ["t"], {"perm": [0, 1, 3, 2]}), ("Softmax", ["t"], ["out"], {"axis": 0})], []),
    "nothing": ([("ReduceSum", ["y", "axis"], ["sums"], {"keepdims": 0}),
                 ("Slice", ["sums", "far", "end", "axis"], ["out"])], []),
} | {f"{perm} as {shape}": ([("Transpose", ["y"], ["t"], {"perm": perm}), ("Reshape", ["t", "shape"], ["out"])], shape)
     for perm, shape in itertools.product([[2, 0, 1, 3], [2, 1, 0, 3], [2, 3, 1, 0], [3, 2, 1, 0]],
                                          [[0, -1], [0, 0, -1], [0, -1, 2, 0]])}


def files(folder, nodes, shape):
    """The model, and alone its layer and what follows it."""
    rng = np.random.default_rng(1)
    constants = [(n, rng.normal(0, 0.5, s).astype(np.float32))
                 for n, s in [("w", (DIRECTIONS, HIDDEN, FEATURES)), ("r", (DIRECTIONS, HIDDEN, HIDDEN))]]
    constants += [(n, np.array(v, np.int64)) for n, v in
                  [("zero", 0), ("last", [-1]), ("before", [-(1 << 31)]), ("axis", [0]), ("back", [-1]),
                   ("far", [1000]), ("end", [2000]), ("shape", shape)]]
    layer = ("RNN", ["x", "w", "r"], ["y"], {"hidden_size": HIDDEN, "direction": "bidirectional"})
    x = [("x", TensorProto.FLOAT, ["time", "batch", FEATURES])]
    y = ("y", TensorProto.FLOAT, ["time", DIRECTIONS, "batch", HIDDEN])
    out = [("out", TensorProto.FLOAT, None)]
    whole = onnx_file(folder / "whole.onnx", [layer, *nodes], x, out, constants)
    return whole, onnx_file(folder / "layer.onnx", [layer], x, [y], constants), onnx_file(
        folder / "rest.onnx", nodes, [y], out, constants)


@pytest.mark.parametrize("case", OUTPUTS)
def test_an_output_is_what_its_layer_and_the_rest_give(tmp_path, case):
    whole, layer, rest = (chairlift.load(path) for path in files(tmp_path, *OUTPUTS[case]))
    rng = np.random.default_rng(2)
    xs = [rng.normal(0, 1, (time, batch, FEATURES)).astype(np.float32)
          for time, batch in [(4, 1), (2, 3), (6, 2), (4, 3)]]
    answers = [whole.submit(x) for x in xs]
    for x, answer in zip(xs, answers):
        np.testing.assert_allclose(answer.result(), rest(layer(x)), rtol=1e-5, atol=1e-6)

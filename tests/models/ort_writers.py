#!/usr/bin/env python3
"""Checks that models of ONNX Runtime's transformer optimizer and quantizers load, agree with ONNX Runtime, and batch.

The inputs are exported encoders (encoders/) and a small convolutional network. onnxruntime.transformers and
onnxruntime.quantization rewrite them. The largest difference stays within a share of the output's range.
"""

import argparse
import logging
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import (CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic,
                                      quantize_static)
from onnxruntime.transformers import optimizer

ENCODERS = pathlib.Path(__file__).parent / "encoders"
EXACT = 1e-4
# If a sum falls on the border between two integers, either may follow, and what reads it differs by a step.
ROUNDED = 0.05


def convolutional(path):
    """Convolutions, a residual, pooling and a product, [batch, 3, 16, 16] to [batch, 10]."""
    rng = np.random.default_rng(2)

    def weight(name, *shape):
        return numpy_helper.from_array(rng.normal(0, 0.3, shape).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1] * 4),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2", "b2"], ["c2"], pads=[1] * 4),
        helper.make_node("LeakyRelu", ["c2"], ["l2"], alpha=0.1),
        helper.make_node("Add", ["r1", "l2"], ["a"]),
        helper.make_node("Sigmoid", ["a"], ["s"]),
        helper.make_node("Mul", ["a", "s"], ["m"]),
        helper.make_node("Concat", ["m", "r1"], ["both"], axis=1),
        helper.make_node("AveragePool", ["both"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["p"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", "w3", "b3"], ["h"], transB=1),
        helper.make_node("Softmax", ["h"], ["y"], axis=-1),
    ]
    graph = helper.make_graph(
        nodes, "convolutional", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 16, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 10])],
        [weight("w1", 8, 3, 3, 3), weight("b1", 8), weight("w2", 8, 8, 3, 3), weight("b2", 8), weight("w3", 10, 16),
         weight("b3", 10)])
    onnx.save(helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)]), path)


def lstm(path):
    """Two directions over [length, batch, 6]."""
    rng = np.random.default_rng(3)
    weights = [numpy_helper.from_array(rng.uniform(-0.4, 0.4, shape).astype(np.float32), name)
               for name, shape in (("w", (2, 32, 6)), ("r", (2, 32, 8)), ("b", (2, 64)))]
    node = helper.make_node("LSTM", ["x", "w", "r", "b"], ["y", "h"], hidden_size=8, direction="bidirectional")
    graph = helper.make_graph(
        [node], "lstm", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["length", "batch", 6])],
        [helper.make_tensor_value_info("h", TensorProto.FLOAT, [2, "batch", 8])], weights)
    onnx.save(helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)]), path)


def requests(model, rng):
    """Inputs of several sizes for any of the models."""
    names = [i.name for i in onnx.load(model, load_external_data=False).graph.input]
    for batch, length in ((1, 5), (2, 9), (3, 12)):
        mask = (np.arange(length) < length - np.arange(batch)[:, None]).astype(np.int64)
        feeds = {"input_ids": rng.integers(3, 24, (batch, length)), "attention_mask": mask,
                 "token_type_ids": rng.integers(0, 2, (batch, length)),
                 "x": rng.normal(0, 1, (length, batch, 6) if model.stem.startswith("lstm") else (batch, 3, 16, 16))
                 .astype(np.float32)}
        yield {name: feeds[name] for name in names}


class Calibration(CalibrationDataReader):
    def __init__(self, model):
        self.feeds = requests(model, np.random.default_rng(4))

    def get_next(self):
        return next(self.feeds, None)


# Types of what the optimiser's operators give are not inferred by ONNX.
OPTIONS = {"DefaultTensorType": TensorProto.FLOAT}


def optimised(source, folder):
    path = folder / f"{source.stem}.optimised.onnx"
    model = optimizer.optimize_model(str(source), model_type="bert", num_heads=2, hidden_size=16, opt_level=0)
    model.save_model_to_file(str(path))
    return path


def saved(source, folder, level):
    """Returns the model that a session writes after its own optimizations."""
    path = folder / f"{source.stem}.saved.onnx"
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = level
    options.optimized_model_filepath = str(path)
    onnxruntime.InferenceSession(str(source), options, ["CPUExecutionProvider"])
    return path


def dynamic(source, folder):
    path = folder / f"{source.stem}.dynamic.onnx"
    # 7-bit weights: with 8, ONNX Runtime's own products saturate at 16 bits on processors without VNNI.
    quantize_dynamic(str(source), str(path), weight_type=QuantType.QInt8, reduce_range=True, extra_options=OPTIONS)
    return path


def static(source, folder, form, **more):
    path = folder / f"{source.stem}.{form.name.lower()}.onnx"
    quantize_static(str(source), str(path), Calibration(source), quant_format=form, extra_options=OPTIONS, **more)
    return path


def models(folder):
    """Returns (model, tolerance, expected text of `inspect`) by name."""
    packed, batched, cells = "tokens are packed", "every operator keeps rows apart", "cut into cells"
    for name in ("bert_hf4_torchscript_eager_11", "minilm_hf5_torchscript_eager_17", "distilbert_hf4_torchscript_sdpa_14",
                 "roberta_hf5_torchscript_eager_11", "albert_hf4_torchscript_eager_11"):
        fused = optimised(ENCODERS / f"{name}.onnx", folder)
        yield fused, EXACT, packed
        yield saved(ENCODERS / f"{name}.onnx", folder, onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED), EXACT, packed
        if name.startswith("bert"):
            yield dynamic(fused, folder), ROUNDED, None
            yield dynamic(ENCODERS / f"{name}.onnx", folder), ROUNDED, None
            yield static(fused, folder, QuantFormat.QDQ), ROUNDED, packed
            yield static(ENCODERS / f"{name}.onnx", folder, QuantFormat.QOperator, per_channel=True), ROUNDED, None
    convolutional(folder / "convolutional.onnx")
    source = folder / "convolutional.onnx"
    yield saved(source, folder, onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED), EXACT, batched
    yield static(source, folder, QuantFormat.QOperator), ROUNDED, batched
    yield static(source, folder, QuantFormat.QDQ, per_channel=True), ROUNDED, batched
    lstm(folder / "lstm.onnx")
    yield dynamic(folder / "lstm.onnx", folder), ROUNDED, cells


def run(chairlift, model, feeds, folder):
    command = [chairlift, "run", model, "--output-dir", folder / "out"]
    for name, value in feeds.items():
        np.save(folder / f"{name}.npy", value)
        command += ["--input", f"{name}={folder / name}.npy"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip() or done.stdout.strip())
    return lambda name: np.load(folder / "out" / (name.replace("/", "_") + ".npy"))


def problem(chairlift, model, tolerance, batches, folder):
    """Returns the failure, or an empty string, and the largest error."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    peer = onnxruntime.InferenceSession(str(model), options, ["CPUExecutionProvider"])
    worst = 0.0
    for feeds in requests(model, np.random.default_rng(5)):
        got = run(chairlift, model, feeds, folder)
        for output, want in zip(peer.get_outputs(), peer.run(None, feeds)):
            worst = max(worst, float(np.abs(want - got(output.name)).max() / np.abs(want).max()))
    if worst > tolerance:
        return f"it is off by {worst:.2g} of the output's range", worst
    if batches is not None:
        said = subprocess.run([chairlift, "inspect", model], capture_output=True, text=True).stdout
        if batches not in said:
            return f"'inspect' does not say '{batches}':\n{said}", worst
    return "", worst


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chairlift", type=pathlib.Path, required=True, help="the program to test")
    parser.add_argument("--keep", type=pathlib.Path, help="a folder to leave the models in")
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    failed = passed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = args.keep or pathlib.Path(name)
        folder.mkdir(exist_ok=True)
        for model, tolerance, batches in models(folder):
            try:
                wrong, worst = problem(args.chairlift.absolute(), model, tolerance, batches, folder)
            except Exception as exception:  # noqa: BLE001: whatever broke is the test's finding
                wrong, worst = str(exception), float("nan")
            failed, passed = failed + bool(wrong), passed + (not wrong)
            print(f"{'FAILED' if wrong else 'passed'} {model.name}: {wrong or f'largest error {worst:.1e}'}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    # The quantisers print what shape inference found.
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    sys.exit(main())

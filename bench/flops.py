"""Floating-point operations and weight bytes of one run of an ONNX model, from its shapes."""

import math

import onnx
import onnxruntime

COUNTED = {"Conv", "ConvTranspose", "MatMul", "MatMulNBits", "Gemm", "LSTM"}
# Operators that work as much, or hold graphs of their own: a model that has one does more than is counted.
NOT_COUNTED = {"GRU", "RNN", "Einsum", "DeformConv", "If", "Loop", "Scan", "ConvInteger", "MatMulInteger",
               "QLinearConv", "QLinearMatMul"}


def _shapes(model, inputs):
    """Shapes of all that the counted operators read and write, by running the model once."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    wanted = {n for node in model.graph.node if node.op_type in COUNTED for n in [*node.input, *node.output] if n}
    shapes = {i.name: list(i.dims) for i in model.graph.initializer}
    computed = sorted(wanted - shapes.keys() - inputs.keys())
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in computed)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    shapes.update((name, list(value.shape)) for name, value in zip(computed, session.run(computed, inputs)))
    shapes.update((name, list(value.shape)) for name, value in inputs.items())
    return shapes


def count(model, inputs):
    """(FLOPs, bytes of weights) of Conv, ConvTranspose, MatMul, MatMulNBits, Gemm and LSTM; a multiply-add counts two.

    These bound a run from below: FLOPs at the measured peak, weights read once at the measured bandwidth.
    """
    shapes = _shapes(model, inputs)
    graph = model.graph
    flops = 0
    for node in graph.node:
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type == "Conv":
            weight = shapes[node.input[1]]
            flops += 2 * math.prod(shapes[node.output[0]]) * math.prod(weight[1:])
        elif node.op_type == "ConvTranspose":
            weight = shapes[node.input[1]]
            flops += 2 * math.prod(shapes[node.input[0]]) * math.prod(weight[1:])
        elif node.op_type in ("MatMul", "MatMulNBits"):
            flops += 2 * math.prod(shapes[node.output[0]]) * shapes[node.input[0]][-1]
        elif node.op_type == "Gemm":
            a = shapes[node.input[0]]
            flops += 2 * math.prod(shapes[node.output[0]]) * a[0 if attributes.get("transA") else 1]
        elif node.op_type == "LSTM":
            length, batch, features = shapes[node.input[0]]
            directions, gates, hidden = shapes[node.input[2]]
            flops += 2 * length * batch * directions * gates * (features + hidden)
    read = {name for node in graph.node if node.op_type in COUNTED for name in node.input}
    weight_bytes = sum((1 if i.data_type == onnx.TensorProto.UINT8 else 4) * math.prod(i.dims)
                       for i in graph.initializer if i.name in read)
    return flops, weight_bytes


def bound_seconds(flops, weight_bytes, machine):
    """The least time of a run; `machine` is what harness.measure_peak() says of a number of threads.

    Weights of less than 24 MB stay in the shared cache between runs.
    """
    bandwidth = machine["l3_gbs"] if weight_bytes < 24e6 else machine["memory_gbs"]
    return max(flops / machine["gflops"], weight_bytes / bandwidth) * 1e-9

"""Floating-point operations and weight bytes of one run of an ONNX model, from its shapes."""

import math

import numpy as np
import onnx
from onnx import numpy_helper, shape_inference


def count(model, input_shapes):
    """(FLOPs, bytes of weights) of Conv, ConvTranspose, MatMul, Gemm and LSTM; a multiply-add counts two.

    These bound a run from below: FLOPs at the measured peak, weights read once at the measured bandwidth.
    """
    model = onnx.ModelProto.FromString(model.SerializeToString())
    for value in model.graph.input:
        if value.name in input_shapes:
            for dim, size in zip(value.type.tensor_type.shape.dim, input_shapes[value.name]):
                dim.ClearField("dim_param")
                dim.dim_value = size
    del model.graph.value_info[:]
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    graph = shape_inference.infer_shapes(model, data_prop=True).graph
    shapes = {i.name: list(i.dims) for i in graph.initializer}
    for value in [*graph.input, *graph.output, *graph.value_info]:
        shapes[value.name] = [d.dim_value for d in value.type.tensor_type.shape.dim]

    flops = 0
    for node in graph.node:
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type == "Conv":
            weight = shapes[node.input[1]]
            flops += 2 * math.prod(shapes[node.output[0]]) * math.prod(weight[1:])
        elif node.op_type == "ConvTranspose":
            weight = shapes[node.input[1]]
            flops += 2 * math.prod(shapes[node.input[0]]) * math.prod(weight[1:])
        elif node.op_type == "MatMul":
            flops += 2 * math.prod(shapes[node.output[0]]) * shapes[node.input[0]][-1]
        elif node.op_type == "Gemm":
            a = shapes[node.input[0]]
            flops += 2 * math.prod(shapes[node.output[0]]) * a[0 if attributes.get("transA") else 1]
        elif node.op_type == "LSTM":
            length, batch, features = shapes[node.input[0]]
            directions, gates, hidden = shapes[node.input[2]]
            flops += 2 * length * batch * directions * gates * (features + hidden)
    weight_bytes = sum(numpy_helper.to_array(i).nbytes for i in graph.initializer if len(i.dims) > 1)
    return flops, weight_bytes

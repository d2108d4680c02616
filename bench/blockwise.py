"""Models with 4-bit weights, as ONNX Runtime's MatMulNBitsQuantizer writes them: com.microsoft.MatMulNBits."""

import numpy as np
import onnx
from onnx import helper, numpy_helper

BLOCK = 32


def codes_and_scales(weight):
    """A matrix [K, N] becomes codes [N, blocks, BLOCK / 2], two to a byte around 8, and scales [N, blocks]."""
    k, n = weight.shape
    blocks = -(-k // BLOCK)
    padded = np.zeros((n, blocks * BLOCK), np.float32)
    padded[:, :k] = weight.T
    padded = padded.reshape(n, blocks, BLOCK)
    largest = np.take_along_axis(padded, np.abs(padded).argmax(2, keepdims=True), 2)
    scales = np.where(largest == 0, 1, largest / -8).astype(np.float32)
    codes = np.clip(np.rint(padded / scales) + 8, 0, 15).astype(np.uint8)
    return codes[..., ::2] | codes[..., 1::2] << 4, scales[..., 0]


def in_four_bits(model, accuracy_level):
    """The model with every MatMul of a constant matrix in 4 bits."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    weights = {i.name: i for i in model.graph.initializer if len(i.dims) == 2}
    for node in model.graph.node:
        if node.op_type != "MatMul" or node.input[1] not in weights:
            continue
        name = node.input[1]
        weight = numpy_helper.to_array(weights[name])
        codes, scales = codes_and_scales(weight)
        model.graph.initializer.extend(
            [numpy_helper.from_array(codes, name + "_codes"), numpy_helper.from_array(scales, name + "_scales")])
        new = helper.make_node("MatMulNBits", [node.input[0], name + "_codes", name + "_scales"], node.output, node.name,
                               domain="com.microsoft", K=weight.shape[0], N=weight.shape[1], bits=4, block_size=BLOCK,
                               accuracy_level=accuracy_level)
        node.CopyFrom(new)
    read = {name for node in model.graph.node for name in node.input}
    kept = [i for i in model.graph.initializer if i.name in read]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model

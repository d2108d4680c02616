#!/usr/bin/env python3
"""Compares the operators of ONNX Runtime's optimizer and quantizer with ONNX Runtime itself.

Each model has one node. Shapes, attributes and inputs are random and seeded. Float answers agree within 1e-4 of the
output's range, integer answers within one step.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

DOMAIN, ML = "com.microsoft", "ai.onnx.ml"
TOLERANCE = 1e-4
# The level of MatMulNBits at which both round to 8 bits, where the processor multiplies bytes; elsewhere ONNX Runtime may alone.
ROUNDS = (4,) if "avx2" in pathlib.Path("/proc/cpuinfo").read_text() else ()
# Operators that ONNX Runtime computes with rounded operands and Chairlift with exact ones.
LOOSER = {"DynamicQuantizeLSTM": 0.05}


class Case:
    """A node with inputs that are given and inputs that are weights; names of absent ones are empty."""

    def __init__(self, op, outputs=("y",), opset=17, domain=DOMAIN, **attributes):
        self.op, self.outputs, self.opset, self.domain = op, outputs, opset, domain
        self.attributes = {k: v for k, v in attributes.items() if v is not None}
        self.names, self.feeds, self.weights, self.dims = [], {}, {}, {}

    def input(self, value, dims=None):
        """One that a request brings; `dims` declares its shape, where that differs from its own."""
        if value is None:
            return self.absent()
        name = f"i{len(self.names)}"
        self.names.append(name)
        self.feeds[name] = value
        self.dims[name] = dims or value.shape
        return self

    def weight(self, value):
        if value is None:
            return self.absent()
        name = f"i{len(self.names)}"
        self.names.append(name)
        self.weights[name] = value
        return self

    def absent(self):
        self.names.append("")
        return self

    def model(self):
        while self.names and not self.names[-1]:
            self.names.pop()
        node = helper.make_node(self.op, self.names, self.outputs, domain=self.domain, **self.attributes)
        graph = helper.make_graph(
            [node], self.op,
            [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), self.dims[n])
             for n, v in self.feeds.items()],
            [onnx.ValueInfoProto(name=n) for n in self.outputs if n],
            [numpy_helper.from_array(np.asarray(v), n) for n, v in self.weights.items()])
        return helper.make_model(graph, ir_version=9, opset_imports=[
            helper.make_opsetid("", self.opset), helper.make_opsetid(DOMAIN, 1), helper.make_opsetid(ML, 3)])


def pick(rng, *values):
    return values[rng.integers(len(values))]


def real(rng, *shape, spread=1.0):
    return rng.normal(0, spread, shape).astype(np.float32)


def integers(rng, dtype, *shape):
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, shape).astype(dtype)


def weights(rng, dtype, *shape):
    """Signed ones of 7 bits: of 8, ONNX Runtime's products saturate at 16 bits on processors without VNNI."""
    return rng.integers(-64, 64, shape).astype(dtype) if dtype == np.int8 else integers(rng, dtype, *shape)


def scale(rng, *shape):
    return rng.uniform(0.01, 0.1, shape).astype(np.float32)


def activations(rng):
    shape = tuple(rng.integers(1, 6, rng.integers(1, 4)))
    x, bias = real(rng, *shape, spread=2), real(rng, shape[-1])
    yield Case("Gelu").input(x)
    yield Case("BiasGelu").input(x).weight(bias)
    yield Case("FastGelu").input(x).weight(bias if rng.integers(2) else None)
    yield Case("QuickGelu", alpha=pick(rng, None, 1.0, 0.7)).input(x)


def products(rng):
    m, k, n = rng.integers(1, 9, 3)
    batch = tuple(rng.integers(1, 4, rng.integers(1, 3)))
    trans_a, trans_b, batch_a, batch_b = rng.integers(0, 2, 4)

    def operand(rows, columns, transposed, batch_moved):
        rows, columns = (columns, rows) if transposed else (rows, columns)
        return real(rng, *((rows, *batch, columns) if batch_moved else (*batch, rows, columns)))

    yield (Case("FusedMatMul", transA=int(trans_a), transB=int(trans_b), transBatchA=int(batch_a),
                transBatchB=int(batch_b), alpha=pick(rng, None, 0.125))
           .input(operand(m, k, trans_a, batch_a)).input(operand(k, n, trans_b, batch_b)))
    activation = pick(rng, "Relu", "LeakyRelu", "Tanh", "Sigmoid")
    yield (Case("FusedGemm", transA=int(trans_a), transB=int(trans_b), alpha=pick(rng, None, 0.5),
                beta=pick(rng, None, 2.0), activation=activation,
                activation_alpha=0.2 if activation == "LeakyRelu" else None)
           .input(real(rng, k, m) if trans_a else real(rng, m, k))
           .weight(real(rng, n, k) if trans_b else real(rng, k, n)).weight(pick(rng, None, real(rng, n))))


def blockwise(rng):
    bits, block = int(pick(rng, 4, 4, 8)), int(pick(rng, 16, 32, 64))
    m, n, blocks = (int(v) for v in rng.integers(1, 6, 3))
    k = blocks * block - int(pick(rng, 0, 0, 5))
    codes = integers(rng, np.uint8, n, blocks, block * bits // 8)
    zeros = pick(rng, None, integers(rng, np.uint8, n, (blocks * bits + 7) // 8), real(rng, n, blocks, spread=4))
    if bits == 8 and zeros is not None and zeros.dtype == np.float32:
        zeros = None  # ONNX Runtime takes them for 4 bits only
    yield (Case("MatMulNBits", K=k, N=n, bits=bits, block_size=block, accuracy_level=pick(rng, None, 0, 1, *ROUNDS))
           .input(real(rng, pick(rng, 1, 2), m, k)).weight(codes).weight(scale(rng, n, blocks)).weight(zeros)
           .absent().weight(pick(rng, None, real(rng, n))))
    rows, columns = int(rng.integers(1, 9)), blocks * block - int(pick(rng, 0, 0, 6))
    shape = tuple(int(v) for v in rng.integers(1, 4, rng.integers(0, 3)))
    yield (Case("GatherBlockQuantized", bits=bits, block_size=block, gather_axis=0, quantize_axis=pick(rng, 1, -1))
           .weight(integers(rng, np.uint8, rows, columns * bits // 8))
           .input(rng.integers(0, rows, shape).astype(pick(rng, np.int32, np.int64))).weight(scale(rng, rows, blocks))
           .weight(pick(rng, None, integers(rng, np.uint8, rows, (blocks * bits + 7) // 8))))


def convolutions(rng):
    batch, channels, outputs, size = rng.integers(1, 5, 4) + (0, 0, 0, 3)
    activation, params = pick(rng, ("Relu", None), ("LeakyRelu", [0.3]), ("Clip", [-0.5, 0.5]), ("Tanh", None),
                              ("Sigmoid", None), ("HardSigmoid", [0.3, 0.4]))
    pad = int(rng.integers(2))
    x = real(rng, batch, channels, size, size)
    out = (batch, outputs, size - 2 + 2 * pad, size - 2 + 2 * pad)
    yield (Case("FusedConv", activation=activation, activation_params=params, pads=[pad] * 4)
           .input(x).weight(real(rng, outputs, channels, 3, 3)).weight(real(rng, outputs))
           .input(real(rng, *out) if rng.integers(2) and activation == "Relu" else None))
    group, offset_group = int(pick(rng, 1, 2)), int(pick(rng, 1, 2))
    kernel, stride, dilation = int(pick(rng, 1, 2, 3)), int(pick(rng, 1, 2)), int(pick(rng, 1, 2))
    out = (size + 2 * pad - (kernel - 1) * dilation - 1) // stride + 1
    if out > 0:
        taps = offset_group * kernel * kernel
        yield (Case("DeformConv", opset=int(pick(rng, 19, 21)), domain="", group=group, offset_group=offset_group,
                    kernel_shape=[kernel] * 2, strides=[stride] * 2, dilations=[dilation] * 2, pads=[pad] * 4)
               .input(real(rng, batch, 4, size, size)).weight(real(rng, 2 * outputs, 4 // group, kernel, kernel))
               .input(real(rng, batch, 2 * taps, out, out, spread=2)).weight(pick(rng, None, real(rng, 2 * outputs)))
               .input(pick(rng, None, real(rng, batch, taps, out, out))))


def normalisations(rng):
    batch, length, width = rng.integers(1, 6, 3) + (0, 0, 1)
    shape = (batch, length, width)
    skip = pick(rng, shape, (1, length, width), (length, width))
    gamma, beta, bias = real(rng, width), real(rng, width), real(rng, width)
    # Small inputs show what epsilon is by default.
    x, spread = pick(rng, 1.0, 1e-4), pick(rng, None, 1e-3)
    outputs = pick(rng, ("y",), ("y", "", "", "sum"))
    yield (Case("SkipLayerNormalization", outputs, epsilon=spread).input(real(rng, *shape, spread=x))
           .input(real(rng, *skip, spread=x)).weight(gamma).weight(pick(rng, None, beta)).weight(pick(rng, None, bias)))
    yield (Case("SkipSimplifiedLayerNormalization", outputs, epsilon=spread).input(real(rng, *shape, spread=x))
           .input(real(rng, *skip, spread=x)).weight(gamma).weight(pick(rng, None, bias)))
    yield (Case("SimplifiedLayerNormalization", domain="", axis=-1, epsilon=spread)
           .input(real(rng, *shape, spread=x)).weight(gamma))
    ids = rng.integers(0, 9, (batch, length)).astype(np.int32)
    with_segments = rng.integers(2)
    mask = (np.arange(length) < rng.integers(1, length + 1, (batch, 1))).astype(np.int32)
    yield (Case("EmbedLayerNormalization", ("y", "mask_index", "sum"), epsilon=spread).input(ids)
           .input(rng.integers(0, 2, ids.shape).astype(np.int32) if with_segments else None)
           .weight(real(rng, 9, width)).weight(real(rng, 8, width))
           .weight(real(rng, 2, width) if with_segments else None).weight(gamma).weight(beta)
           .input(pick(rng, None, mask))
           .input(pick(rng, None, rng.integers(0, 8, ids.shape).astype(np.int32))))


def masks(rng, batch, length, total):
    """A mask and how its shape is declared."""
    raw = (rng.random((batch, total)) < 0.7).astype(np.int32)
    raw[:, 0] = 1
    grid = (rng.random((batch, length, total)) < 0.7).astype(np.int32)
    grid[:, :, 0] = 1
    return pick(rng, (None, None), (raw, None), (grid, None),
                (rng.integers(1, total + 1, batch).astype(np.int32), ("batch",)))


def attentions(rng):
    batch, length, heads, size = (int(v) for v in rng.integers(1, 5, 4))
    past = int(pick(rng, 0, 0, 3))
    width, value_size = heads * size, int(size if past else rng.integers(1, 5))
    value_width, total = heads * value_size, length + past
    mask, dims = masks(rng, batch, length, total)
    causal = int(rng.integers(2))
    bias = real(rng, pick(rng, 1, batch), pick(rng, 1, heads), length, total) if rng.integers(2) and not past else None
    x = real(rng, batch, length, 5)
    yield (Case("Attention", ("y", "present") if past else ("y",), num_heads=heads, unidirectional=causal,
                qkv_hidden_sizes=[width, width, value_width] if value_size != size else None,
                mask_filter_value=pick(rng, None, -3e4), scale=pick(rng, None, 0.3))
           .input(x, ("batch", "length", 5)).weight(real(rng, 5, 2 * width + value_width))
           .weight(real(rng, 2 * width + value_width)).input(mask, dims)
           .input(real(rng, 2, batch, heads, past, size) if past else None).input(bias))
    past = past if value_size == size else 0
    keys = length if past or causal else int(rng.integers(1, 6))
    total = keys + past
    mask, dims = masks(rng, batch, length, total)
    bias = real(rng, pick(rng, 1, batch), pick(rng, 1, heads), length, total) if rng.integers(2) else None
    state = [real(rng, batch, heads, past, size) if past else None for _ in range(2)]
    yield (Case("MultiHeadAttention", ("y", "k", "v") if past else ("y",), num_heads=heads, unidirectional=causal,
                mask_filter_value=pick(rng, None, -3e4), scale=pick(rng, None, 0.3))
           .input(real(rng, batch, length, width), ("batch", "length", width))
           .input(real(rng, batch, keys, width)).input(real(rng, batch, keys, value_width))
           .weight(pick(rng, None, real(rng, 2 * width + value_width))).input(mask, dims).input(bias)
           .input(state[0]).input(state[1]))
    u8 = pick(rng, np.uint8, np.int8)
    yield (Case("QAttention", num_heads=heads, unidirectional=causal)
           .input(integers(rng, np.uint8, batch, length, 5), ("batch", "length", 5))
           .weight(weights(rng, u8, 5, 3 * width)).weight(real(rng, 3 * width)).weight(scale(rng))
           .weight(pick(rng, scale(rng), scale(rng, 3 * width))).input(*pick(rng, (None,), (np.full(batch, length, np.int32), ("batch",))))
           .weight(integers(rng, np.uint8)).weight(integers(rng, u8)))


def cached_attentions(rng):
    batch, kv_heads, group = (int(v) for v in rng.integers(1, 4, 3))
    heads, size, past = kv_heads * group, 16 * int(rng.integers(1, 3)), int(pick(rng, 0, 3, 6))
    length = 1 if past and batch > 1 else int(rng.integers(1, 7))  # ONNX Runtime's own bound
    total, width, narrow = past + length, heads * size, kv_heads * size
    rotary, packed = int(rng.integers(2)), rng.integers(2)
    turned = int(pick(rng, size // 2, 8))
    tables = [real(rng, 16, turned) if rotary else None for _ in range(2)]
    bias = real(rng, pick(rng, 1, batch), pick(rng, 1, heads), length, total) if rng.integers(4) == 0 else None
    # For the rotation alone: a window counts by places in the cache. Without a past ONNX Runtime reads the first only.
    turned_by = rng.integers(0, 16, (batch, length)) if past else np.tile(np.arange(length) + rng.integers(8), (batch, 1))
    turned_by = turned_by if rotary and rng.integers(2) else None
    q = real(rng, batch, length, width + 2 * narrow if packed else width)
    k, v = (None if packed else real(rng, batch, length, narrow) for _ in range(2))
    yield (Case("GroupQueryAttention", ("y", "present_key", "present_value"), num_heads=heads, kv_num_heads=kv_heads,
                do_rotary=rotary, rotary_interleaved=int(rng.integers(2)), scale=pick(rng, None, 0.3),
                softcap=pick(rng, None, None, 0.7), local_window_size=pick(rng, None, -1, 2, 4))
           .input(q).input(k).input(v)
           .input(real(rng, batch, kv_heads, past, size)).input(real(rng, batch, kv_heads, past, size))
           .input(np.full(batch, total - 1, np.int32)).input(np.array(pick(rng, total, [total]), np.int32))
           .weight(tables[0]).weight(tables[1]).input(turned_by).input(bias))
    split = rng.integers(2)
    x = real(rng, batch, heads, length, size) if split else real(rng, batch, length, width)
    positions = pick(rng, np.array([past]), rng.integers(0, 16, (batch, length)))
    # It must be given the number of a head's columns that are not rotated.
    part = turned != size // 2
    yield (Case("RotaryEmbedding", interleaved=int(rng.integers(2)),
                num_heads=heads if part or split else pick(rng, None, heads),
                rotary_embedding_dim=2 * turned if part else None)
           .input(x).input(positions).weight(real(rng, 16, turned)).weight(real(rng, 16, turned)))


def quantised(rng):
    dtype = pick(rng, np.uint8, np.int8)
    shape = tuple(int(v) for v in rng.integers(1, 6, 4) + (0, 0, 3, 3))
    other = tuple(n if rng.integers(3) else 1 for n in shape)
    x, y = integers(rng, dtype, *shape), integers(rng, dtype, *other)

    # Optional, but ONNX Runtime's own shape inference stumbles where one is left out.
    def zero():
        return integers(rng, dtype)

    for op in ("QLinearAdd", "QLinearMul"):
        yield (Case(op).input(x).weight(scale(rng)).weight(zero()).input(y).weight(scale(rng)).weight(zero())
               .weight(scale(rng)).weight(zero()))
    for op, attributes in (("QLinearSigmoid", {}), ("QLinearLeakyRelu", {"alpha": pick(rng, None, 0.2)})):
        yield (Case(op, **attributes).input(x).weight(scale(rng)).weight(zero()).weight(scale(rng))
               .weight(zero()))
    yield (Case("QLinearSoftmax", axis=-1, opset_=13).input(x).weight(scale(rng)).weight(zero())
           .weight(np.float32(1 / 256)).weight(zero()))
    yield (Case("QLinearGlobalAveragePool", channels_last=0).input(x).weight(scale(rng)).weight(zero())
           .weight(scale(rng)).weight(zero()))
    yield (Case("QLinearAveragePool", kernel_shape=[2, 3], strides=pick(rng, None, [2, 1]),
                pads=pick(rng, None, [1, 1, 1, 1]), count_include_pad=int(rng.integers(2)))
           .input(x).weight(scale(rng)).weight(zero()).weight(scale(rng)).weight(zero()))
    concat = Case("QLinearConcat", axis=1).weight(scale(rng)).weight(zero())
    for _ in range(rng.integers(1, 4)):
        part = integers(rng, dtype, shape[0], rng.integers(1, 4), *shape[2:])
        concat.input(part).weight(scale(rng)).weight(zero())
    yield concat


def channels_last(rng):
    """ONNX Runtime's default level writes these for quantised networks of convolutions."""
    dtype, kind = pick(rng, (np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8))
    batch, height, width, channels, out = (int(v) for v in rng.integers(1, 5, 5) + (0, 3, 3, 0, 0))
    x = integers(rng, dtype, batch, height, width, channels)

    def zero():
        return integers(rng, dtype)

    depthwise = rng.integers(2)
    rows = channels if depthwise else out
    yield (Case("QLinearConv", channels_last=1, group=channels if depthwise else 1, kernel_shape=[3, 2],
                strides=pick(rng, None, [2, 1]), pads=pick(rng, None, [1, 0, 1, 1]))
           .input(x).weight(scale(rng)).weight(zero())
           .weight(weights(rng, kind, rows, 1 if depthwise else channels, 3, 2))
           .weight(scale(rng, rows)).weight(np.zeros(rows, kind)).weight(scale(rng) * 4).weight(zero())
           .weight(integers(rng, np.int32, rows) // 2**24))
    yield (Case("QLinearGlobalAveragePool", channels_last=1).input(x).weight(scale(rng)).weight(zero())
           .weight(scale(rng)).weight(zero()))
    yield (Case("QLinearAveragePool", channels_last=1, kernel_shape=[2, 3], strides=pick(rng, None, [2, 1]))
           .input(x).weight(scale(rng)).weight(zero()).weight(scale(rng)).weight(zero()))
    yield Case("NhwcMaxPool", kernel_shape=[2, 3], strides=pick(rng, None, [2, 1])).input(x)
    yield (Case("QLinearWhere").input(rng.integers(0, 2, (height, 1, channels)).astype(bool))
           .input(x).weight(scale(rng)).weight(zero()).input(integers(rng, dtype, 1, channels))
           .weight(scale(rng)).weight(zero()).weight(scale(rng)).weight(zero()))


def integer_products(rng):
    a_type, b_type = pick(rng, (np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8))
    m, k, n = (int(v) for v in rng.integers(1, 9, 3))
    by_column = rng.integers(2)
    b_scale = scale(rng, n) if by_column else scale(rng)
    b_zero = integers(rng, b_type, n) if by_column else integers(rng, b_type)
    bias = pick(rng, None, real(rng, n))
    yield (Case("DynamicQuantizeMatMul").input(real(rng, 2, m, k)).weight(weights(rng, b_type, k, n)).weight(b_scale)
           .weight(pick(rng, None, b_zero)).weight(bias))
    yield (Case("MatMulIntegerToFloat").input(integers(rng, a_type, m, k)).weight(weights(rng, b_type, k, n))
           .weight(scale(rng)).weight(b_scale).weight(integers(rng, a_type)).weight(b_zero).weight(bias))
    trans_a, trans_b = (int(v) for v in rng.integers(0, 2, 2))
    quantised_result = rng.integers(2)
    yield (Case("QGemm", transA=trans_a, transB=trans_b, alpha=pick(rng, 1.0, 0.5))
           .input(integers(rng, a_type, *((k, m) if trans_a else (m, k)))).weight(scale(rng)).weight(integers(rng, a_type))
           .weight(weights(rng, b_type, *((n, k) if trans_b else (k, n)))).weight(b_scale).weight(b_zero)
           .weight(pick(rng, None, rng.integers(-999, 999, n).astype(np.int32)))
           .weight(np.float32(rng.uniform(0.5, 2)) if quantised_result else None)
           .weight(integers(rng, a_type) if quantised_result else None))
    steps, batch, width, hidden = (int(v) for v in rng.integers(1, 5, 4))
    direction = pick(rng, "forward", "reverse", "bidirectional")
    d = 2 if direction == "bidirectional" else 1
    lstm = Case("DynamicQuantizeLSTM", ("y", "h", "c"), hidden_size=hidden, direction=direction)
    lstm.input(real(rng, steps, batch, width)).weight(weights(rng, np.int8, d, width, 4 * hidden))
    lstm.weight(weights(rng, np.int8, d, hidden, 4 * hidden)).weight(real(rng, d, 8 * hidden))
    lstm.absent().absent().absent().absent()
    for _ in range(2):
        lstm.weight(np.full(d, 0.01, np.float32)).weight(np.zeros(d, np.int8))
    yield lstm


def classical(rng):
    rows, columns, results = (int(v) for v in rng.integers(1, 6, 3) + (0, 0, 1))
    x = pick(rng, real(rng, rows, columns), rng.integers(-9, 9, (rows, columns)))
    outputs = pick(rng, ("y",), ("y", "scores"))
    numbers = {"coefficients": real(rng, results * columns).tolist(), "intercepts": real(rng, results).tolist(),
               "post_transform": pick(rng, "NONE", "LOGISTIC", "SOFTMAX")}
    yield (Case("LinearClassifier", ("y", "scores"), domain=ML, classlabels_ints=list(range(5, 5 + results)), **numbers)
           .input(x))
    yield (Case("LinearRegressor", domain=ML, targets=results, **{**numbers, "post_transform": "NONE"})
           .input(real(rng, rows, columns)))
    n = int(pick(rng, 1, columns))
    yield Case("Scaler", domain=ML, offset=real(rng, n).tolist(), scale=real(rng, n).tolist()).input(x)
    some = real(rng, rows, columns)
    some[rng.random(some.shape) < 0.3] = 0
    yield Case("Normalizer", domain=ML, norm=pick(rng, "MAX", "L1", "L2")).input(some)
    yield Case("Binarizer", domain=ML, threshold=pick(rng, None, 0.3)).input(real(rng, rows, columns))
    missing = pick(rng, np.nan, 0.0)
    some[some == 0] = missing
    yield (Case("Imputer", domain=ML, imputed_value_floats=real(rng, n).tolist(), replaced_value_float=missing)
           .input(some))
    yield (Case("FeatureVectorizer", domain=ML, inputdimensions=[columns, 2]).input(real(rng, rows, columns))
           .input(real(rng, rows, 2)))
    yield (Case("ArrayFeatureExtractor", domain=ML).input(x)
           .weight(rng.integers(0, columns, (1, 3))))


def trees(rng):
    """Trees of random forms, their leaves at any depth."""
    rows, columns = (int(v) for v in rng.integers(1, 7, 2))
    two, positive = int(rng.integers(2)), int(rng.integers(2))
    results = 1 if two else int(rng.integers(3, 6))
    nodes = {name: [] for name in ("treeids", "nodeids", "truenodeids", "falsenodeids", "featureids", "values", "modes",
                                   "missing_value_tracks_true")}
    leaves = {name: [] for name in ("treeids", "nodeids", "ids", "weights")}
    modes = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT", "BRANCH_GTE", "BRANCH_EQ", "BRANCH_NEQ")
    modes = modes if rng.integers(2) else (pick(rng, *modes),)
    for tree in range(rng.integers(1, 5)):
        count, open_nodes = 1, [(0, 0)]
        while open_nodes:
            node, depth = open_nodes.pop(0)
            branch = depth < 5 and rng.random() < 0.7
            row = (tree, node, count if branch else 0, count + 1 if branch else 0, int(rng.integers(columns)),
                   float(rng.integers(-2, 3)) / 2, pick(rng, *modes) if branch else "LEAF", int(rng.integers(2)))
            for name, value in zip(nodes, row):
                nodes[name].append(value)
            if branch:
                open_nodes += [(count, depth + 1), (count + 1, depth + 1)]
                count += 2
                continue
            for i in range(results):
                weight = abs(rng.normal()) if positive else rng.normal()
                for name, value in zip(leaves, (tree, node, i, float(weight) / 4)):
                    leaves[name].append(value)
    nodes = {f"nodes_{k}": v for k, v in nodes.items()}
    base = pick(rng, None, real(rng, results).tolist())
    # On the thresholds too.
    x = (rng.integers(-4, 5, (rows, columns)) / 2).astype(np.float32)
    x[rng.random(x.shape) < 0.2] = np.nan
    yield (Case("TreeEnsembleRegressor", domain=ML, n_targets=results, base_values=base, **nodes,
                aggregate_function=pick(rng, "SUM", "AVERAGE", "MIN", "MAX"),
                **{f"target_{k}": v for k, v in leaves.items()}).input(x))
    yield (Case("TreeEnsembleClassifier", ("y", "scores"), domain=ML, base_values=base, **nodes,
                classlabels_int64s=list(range(3, 3 + max(results, 2))),
                post_transform=pick(rng, "NONE", "LOGISTIC") if two else pick(rng, "NONE", "SOFTMAX"),
                **{f"class_{k}": v for k, v in leaves.items()}).input(x))


def vectors(rng):
    """Support vector machines."""
    rows, columns, vectors = (int(v) for v in rng.integers(1, 7, 3))
    x = real(rng, rows, columns)
    kernel = {"kernel_type": pick(rng, "LINEAR", "RBF", "POLY", "SIGMOID"), "kernel_params": [0.3, 0.2, 2.0]}
    yield (Case("SVMRegressor", domain=ML, n_supports=vectors, coefficients=real(rng, vectors).tolist(),
                support_vectors=real(rng, vectors * columns).tolist(), rho=real(rng, 1).tolist(),
                one_class=int(rng.integers(2)), **kernel).input(x))
    per_class = rng.integers(1, 4, int(pick(rng, 2, 3, 4))).tolist()
    classes, vectors = len(per_class), sum(per_class)
    pairs = classes * (classes - 1) // 2
    likely = {"prob_a": real(rng, pairs).tolist(), "prob_b": real(rng, pairs).tolist()} if rng.integers(2) else {}
    yield (Case("SVMClassifier", ("y", "scores"), domain=ML, vectors_per_class=per_class,
                classlabels_ints=list(range(3, 3 + classes)), coefficients=real(rng, (classes - 1) * vectors).tolist(),
                support_vectors=real(rng, vectors * columns).tolist(), rho=real(rng, pairs).tolist(), **kernel, **likely)
           .input(x))


def encoders(rng):
    """Tables of categories."""
    keys = rng.permutation(9)[:int(rng.integers(1, 7))]
    x = rng.integers(-1, 10, tuple(rng.integers(1, 5, 2)))
    yield (Case("LabelEncoder", domain=ML, keys_int64s=keys.tolist(), values_floats=real(rng, len(keys)).tolist(),
                default_float=0.5).input(x))
    yield (Case("LabelEncoder", domain=ML, keys_floats=keys.astype(float).tolist(), values_int64s=keys[::-1].tolist())
           .input(x.astype(np.float32)))
    yield Case("OneHotEncoder", domain=ML, cats_int64s=keys.tolist()).input(x)


FAMILIES = (activations, products, blockwise, convolutions, normalisations, attentions, cached_attentions, quantised, channels_last,
            integer_products, classical, trees, vectors, encoders)


def difference(op, want, got):
    """Returns the largest error, in units of the allowed error."""
    if want.shape != got.shape or want.dtype != got.dtype:
        return float("inf")
    if want.size == 0:
        return 0.0
    distance = np.abs(want.astype(np.float64) - got.astype(np.float64)).max()
    if want.dtype.kind in "iu":
        return float(distance)
    return float(distance / max(np.abs(want).max(), 1e-6) / LOOSER.get(op, TOLERANCE))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chairlift", type=pathlib.Path, required=True, help="the program to test")
    parser.add_argument("--rounds", type=int, default=3, help="of every operator")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="operators whose name holds this")
    args = parser.parse_args()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    passed, failed, skipped, seen = 0, 0, 0, {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        rng = np.random.default_rng(args.seed)
        for case in (case for _ in range(args.rounds) for family in FAMILIES for case in family(rng)):
            if args.only not in case.op:
                continue
            if "opset_" in case.attributes:
                case.attributes["opset"] = case.attributes.pop("opset_")
            onnx.save(case.model(), folder / "model.onnx")
            try:
                peer = onnxruntime.InferenceSession(str(folder / "model.onnx"), options, ["CPUExecutionProvider"])
                want = peer.run(None, case.feeds)
            except Exception as exception:  # noqa: BLE001: what the peer does not take is no case
                skipped += 1
                if args.only:
                    print("skipped", case.op, exception)
                continue
            command = [args.chairlift, "run", folder / "model.onnx", "--output-dir", folder / "out"]
            for input_name, value in case.feeds.items():
                np.save(folder / f"{input_name}.npy", value)
                command += ["--input", f"{input_name}={folder / input_name}.npy"]
            run = subprocess.run(command, capture_output=True, text=True)
            if run.returncode != 0:
                wrong, reason = float("inf"), run.stderr.strip() or run.stdout.strip()
            else:
                got = [np.load(folder / "out" / f"{o}.npy") for o in case.outputs if o]
                wrong = max(difference(case.op, w, g) for w, g in zip(want, got))
                reason = f"{wrong:.3g} times as far off as is allowed"
            seen[case.op] = max(seen.get(case.op, 0.0), wrong)
            right = wrong <= 1
            passed, failed = passed + right, failed + (not right)
            if not right:
                shapes = [v.shape for v in case.feeds.values()]
                print(f"FAILED {case.op} {shapes}: {reason}; attributes {str(case.attributes)[:300]}")
    print(f"{len(seen)} operators: {passed} passed, {failed} failed, {skipped} that ONNX Runtime does not take")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())

"""A BERT encoder written as PyTorch's exporter writes it: decomposed LayerNorm and Gelu, MatMul + Add."""

import dataclasses
import math

import numpy as np
from onnx import TensorProto

from .builder import Builder


@dataclasses.dataclass(frozen=True)
class BertShape:
    layers: int
    hidden: int
    heads: int
    intermediate: int
    vocabulary: int = 30522
    positions: int = 512


BERT_BASE = BertShape(12, 768, 12, 3072)
BERT_LARGE = BertShape(24, 1024, 16, 4096)
MINILM_L6 = BertShape(6, 384, 12, 1536)


class _Seeded:
    """Weights of the right shapes from a seed, in the names of the Hugging Face checkpoints."""

    def __init__(self, shape, seed):
        self.shape, self.rng = shape, np.random.default_rng(seed)

    def __call__(self, name):
        s = self.shape
        if name.endswith("word_embeddings.weight"):
            dims = (s.vocabulary, s.hidden)
        elif name.endswith("position_embeddings.weight"):
            dims = (s.positions, s.hidden)
        elif name.endswith("token_type_embeddings.weight"):
            dims = (2, s.hidden)
        elif "LayerNorm" in name:
            base = 1.0 if name.endswith("weight") else 0.0
            return (base + self.rng.normal(0, 0.05, s.hidden)).astype(np.float32)
        else:
            wide_out = "intermediate.dense" in name
            wide_in = ".output.dense" in name and "attention" not in name
            out = s.intermediate if wide_out else s.hidden
            dims = (out, s.intermediate if wide_in else s.hidden) if name.endswith("weight") else (out,)
        return self.rng.normal(0, 0.04, dims).astype(np.float32)


def bert(shape=MINILM_L6, weights=None, seed=0, opset=14, pooling="mean"):
    """Builds a BERT from token ids, attention mask and token types [batch, length] to the last hidden state.

    `pooling` "mean" adds the sentence embedding as an output. "score" makes the logit of a pair of texts the only one.
    `weights` maps a checkpoint name ("encoder.layer.0.attention.self.query.weight") to an array. None: seeded weights.
    """
    w = weights or _Seeded(shape, seed)
    b = Builder("bert", seed, opset)
    dims = ["batch", "length"]
    ids = b.input("input_ids", dims, TensorProto.INT64)
    mask = b.input("attention_mask", dims, TensorProto.INT64)
    types = b.input("token_type_ids", dims, TensorProto.INT64)

    def parameter(name):
        return b.constant(w(name), name)

    def layer_norm(x, name):
        centred = b.node("Sub", x, b.node("ReduceMean", x, axes=[-1]))
        variance = b.node("ReduceMean", b.node("Pow", centred, b.scalar(2.0)), axes=[-1])
        deviation = b.node("Sqrt", b.node("Add", variance, b.scalar(1e-12)))
        y = b.node("Mul", b.node("Div", centred, deviation), parameter(name + ".weight"))
        return b.node("Add", y, parameter(name + ".bias"))

    def dense(x, name):
        product = b.node("MatMul", x, b.constant(w(name + ".weight").T, name))
        return b.node("Add", parameter(name + ".bias"), product)

    def dim(x, axis):
        return b.node("Unsqueeze", b.node("Gather", b.node("Shape", x), b.constant(np.int64(axis))), b.ints(0))

    batch, length = dim(ids, 0), dim(ids, 1)
    positions = b.node("Slice", b.constant(np.arange(shape.positions, dtype=np.int64)[None]), b.ints(0), length, b.ints(1))
    x = b.node("Gather", parameter("embeddings.word_embeddings.weight"), ids)
    x = b.node("Add", x, b.node("Gather", parameter("embeddings.token_type_embeddings.weight"), types))
    x = b.node("Add", x, b.node("Gather", parameter("embeddings.position_embeddings.weight"), positions))
    x = layer_norm(x, "embeddings.LayerNorm")

    bias = b.node("Cast", b.node("Unsqueeze", mask, b.ints(1, 2)), to=TensorProto.FLOAT)
    bias = b.node("Mul", b.node("Sub", b.scalar(1.0), bias), b.scalar(float(np.finfo(np.float32).min)))

    head = shape.hidden // shape.heads
    split = b.node("Concat", batch, length, b.ints(shape.heads), b.ints(head), axis=0)
    merge = b.node("Concat", batch, length, b.ints(shape.hidden), axis=0)
    for layer in range(shape.layers):
        p = f"encoder.layer.{layer}."

        def heads(name, perm):
            y = b.node("Reshape", dense(x, p + "attention.self." + name), split)
            return b.node("Transpose", y, perm=perm)

        q, k, v = heads("query", [0, 2, 1, 3]), heads("key", [0, 2, 3, 1]), heads("value", [0, 2, 1, 3])
        scores = b.node("Div", b.node("MatMul", q, k), b.scalar(math.sqrt(head)))
        attention = b.node("Softmax", b.node("Add", scores, bias), axis=-1)
        context = b.node("Transpose", b.node("MatMul", attention, v), perm=[0, 2, 1, 3])
        context = b.node("Reshape", context, merge)
        x = layer_norm(b.node("Add", dense(context, p + "attention.output.dense"), x), p + "attention.output.LayerNorm")
        y = dense(x, p + "intermediate.dense")
        erf = b.node("Add", b.node("Erf", b.node("Div", y, b.scalar(math.sqrt(2.0)))), b.scalar(1.0))
        y = b.node("Mul", b.node("Mul", y, erf), b.scalar(0.5))
        x = layer_norm(b.node("Add", dense(y, p + "output.dense"), x), p + "output.LayerNorm")
    if pooling == "score":
        first = b.node("Gather", x, b.constant(np.int64(0)), axis=1)
        head = np.random.default_rng(seed).normal(0, 0.3, (shape.hidden, 1)).astype(np.float32)
        b.output(b.node("MatMul", first, b.constant(head, "score")), "logits", ["batch", 1])
        return b.model()
    b.output(x, "last_hidden_state", ["batch", "length", shape.hidden])

    if pooling == "mean":
        weight = b.node("Cast", b.node("Unsqueeze", mask, b.ints(2)), to=TensorProto.FLOAT)
        total = b.node("ReduceSum", b.node("Mul", x, weight), b.ints(1), keepdims=0)
        count = b.node("Clip", b.node("ReduceSum", weight, b.ints(1), keepdims=0), b.scalar(1e-9))
        mean = b.node("Div", total, count)
        norm = b.node("Clip", b.node("ReduceL2", mean, axes=[-1], keepdims=1), b.scalar(1e-12))
        b.output(b.node("Div", mean, norm), "sentence_embedding", ["batch", shape.hidden])
    return b.model()

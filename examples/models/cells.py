"""Cells and the model.yaml that says how requests unfold into them (docs/concepts/cells.md)."""

import numpy as np
from onnx import TensorProto

from .builder import Builder

TRANSLATOR_YAML = """\
# Tokens in, tokens out: an encoder, then a decoder that reads its own last token.
cells:
  encoder: {}
  decoder: {}
unfold:
  seq2seq:
    encoder:
      cell: encoder
      tokens: {input: token, request: source}
      states: [{input: h, output: h_next}, {input: c, output: c_next}]
    decoder:
      cell: decoder
      token: {input: token, output: next}
      states:
        - {input: h, output: h_next, initial: h_next}
        - {input: c, output: c_next, initial: c_next}
    go: 1
    eos: 0
    extra_length: %d
"""

G2P_EN_YAML = """\
# As above; a GRU has one state, and the words are those of the package g2p_en.
cells:
  encoder: {}
  decoder: {}
unfold:
  seq2seq:
    encoder:
      cell: encoder
      tokens: {input: token, request: source}
      states: [{input: h, output: h_next}]
    decoder:
      cell: decoder
      token: {input: token, output: next}
      states: [{input: h, output: h_next, initial: h_next}]
    go: 2
    eos: 3
    extra_length: 4
"""

TREE_YAML = """\
# A binary tree of words to a class: children [nodes, 2] are node numbers, -1 -1 for a leaf.
cells:
  leaf: {}
  internal: {}
  classes: {}
unfold:
  tree:
    leaf: leaf
    internal: internal
    tokens: {input: token, request: tokens}
    states:
      h: {leaf: h, internal: h, left: h_left, right: h_right}
      c: {leaf: c, internal: c, left: c_left, right: c_right}
    head: {cell: classes, inputs: {state: h}, outputs: [{output: logits}]}
"""

LANGUAGE_MODEL_YAML = """\
# Characters to what may follow each of them.
cells:
  step: {}
  next: {}
unfold:
  chain:
    cell: step
    tokens: {input: token, request: tokens}
    states: [{input: h, output: h_next}, {input: c, output: c_next}]
    head: {cell: next, at: every_step, inputs: {state: h_next}, outputs: [{output: logits}]}
"""


def _states(b, hidden, names=("h", "c")):
    return [b.input(name, ["batch", hidden]) for name in names]


def _lstm(b, x, h, c, w, bias, hidden):
    """Gates in the order input, forget, cell, output; one product over [x, h]."""
    gates = b.node("Add", b.node("MatMul", b.node("Concat", x, h, axis=1), w), bias)
    i, f, g, o = b.node("Split", gates, b.ints(*[hidden] * 4), outputs=4, axis=1)
    kept = b.node("Mul", b.node("Sigmoid", f), c)
    c_next = b.node("Add", kept, b.node("Mul", b.node("Sigmoid", i), b.node("Tanh", g)))
    h_next = b.node("Mul", b.node("Sigmoid", o), b.node("Tanh", c_next))
    b.output(h_next, "h_next", ["batch", hidden])
    b.output(c_next, "c_next", ["batch", hidden])
    return h_next


def _token(b, table):
    return b.node("Gather", table, b.input("token", ["batch"], TensorProto.INT64))


def step(embedding, w, bias, output=None, name="step"):
    """token, h, c → h_next, c_next and, with an output layer (weights, bias), the likeliest next token."""
    b = Builder(name)
    hidden = w.shape[1] // 4
    x = _token(b, b.constant(embedding))
    h, c = _states(b, hidden)
    h_next = _lstm(b, x, h, c, b.constant(w), b.constant(bias), hidden)
    if output is not None:
        logits = b.node("Add", b.node("MatMul", h_next, b.constant(output[0])), b.constant(output[1]))
        b.output(b.node("ArgMax", logits, axis=1, keepdims=0), "next", ["batch"], TensorProto.INT64)
    return b.model()


def _random_step(rng, hidden, vocabulary):
    def draw(*shape, scale):
        return (rng.standard_normal(shape) * scale).astype(np.float32)

    w = draw(2 * hidden, 4 * hidden, scale=1.5 / hidden**0.5)
    output = draw(hidden, vocabulary, scale=1 / hidden**0.5), draw(vocabulary, scale=0.1)
    return draw(vocabulary, hidden, scale=1.0), w, draw(4 * hidden, scale=0.1), output


def translator(hidden=64, vocabulary=1000, seed=0):
    """Builds a translator with seeded weights. Its output is meaningless, but costs the same as a trained model's."""
    rng = np.random.default_rng(seed)
    embedding, w, bias, _ = _random_step(rng, hidden, vocabulary)
    encoder = step(embedding, w, bias, name="encoder")
    decoder = step(*_random_step(rng, hidden, vocabulary), name="decoder")
    return {"encoder": encoder, "decoder": decoder}, TRANSLATOR_YAML % 10


def pronouncer(weights):
    """Letters to phonemes, as examples/train/g2p.py trained it."""

    def part(name):
        return [weights[f"{name}.{key}"].astype(np.float32) for key in ("embedding", "w", "b")]

    output = weights["output.w"].astype(np.float32), weights["output.b"].astype(np.float32)
    cells = {"encoder": step(*part("encoder"), name="encoder"), "decoder": step(*part("decoder"), output, name="decoder")}
    return cells, TRANSLATOR_YAML % 4


def g2p_en(weights):
    """Letters and an end to phonemes with their stress: the GRU encoder and decoder that the package g2p_en carries (K. Park, J. Kim)."""

    def gru(prefix, output=None):
        b = Builder({"enc": "encoder", "dec": "decoder"}[prefix])
        table, w, r, w_bias, r_bias = (b.constant(np.ascontiguousarray(weights[f"{prefix}_{key}"].T if key.startswith("w_") else weights[f"{prefix}_{key}"]))
                                       for key in ("emb", "w_ih", "w_hh", "b_ih", "b_hh"))
        hidden = weights[f"{prefix}_w_hh"].shape[1]
        x = _token(b, table)
        (h,) = _states(b, hidden, ["h"])
        given = b.node("Split", b.node("Add", b.node("MatMul", x, w), w_bias), b.ints(*[hidden] * 3), outputs=3, axis=1)
        kept = b.node("Split", b.node("Add", b.node("MatMul", h, r), r_bias), b.ints(*[hidden] * 3), outputs=3, axis=1)
        reset, update = (b.node("Sigmoid", b.node("Add", given[i], kept[i])) for i in (0, 1))
        new = b.node("Tanh", b.node("Add", given[2], b.node("Mul", reset, kept[2])))
        # (1 - update) new + update h
        h_next = b.node("Add", new, b.node("Mul", update, b.node("Sub", h, new)))
        b.output(h_next, "h_next", ["batch", hidden])
        if output is not None:
            logits = b.node("Add", b.node("MatMul", h_next, b.constant(np.ascontiguousarray(output[0].T))), b.constant(output[1]))
            b.output(b.node("ArgMax", logits, axis=1, keepdims=0), "next", ["batch"], TensorProto.INT64)
        return b.model()

    return {"encoder": gru("enc"), "decoder": gru("dec", (weights["fc_w"], weights["fc_b"]))}, G2P_EN_YAML


def language_model(hidden=64, vocabulary=256, seed=0):
    embedding, w, bias, (output, output_bias) = _random_step(np.random.default_rng(seed), hidden, vocabulary)
    b = Builder("next")
    (state,) = _states(b, hidden, ["state"])
    logits = b.node("Add", b.node("MatMul", state, b.constant(output)), b.constant(output_bias))
    b.output(logits, "logits", ["batch", vocabulary])
    return {"step": step(embedding, w, bias), "next": b.model()}, LANGUAGE_MODEL_YAML


def tree_lstm(hidden=64, vocabulary=1000, classes=5, seed=0):
    """A binary TreeLSTM (Tai et al., 2015): words at the leaves, a gate of its own to forget each child."""
    leaf = Builder("leaf", seed)
    x = _token(leaf, leaf.weight(vocabulary, hidden, scale=1.0))
    gates = leaf.node("MatMul", x, leaf.weight(hidden, 3 * hidden, scale=1 / hidden**0.5))
    gates = leaf.node("Add", gates, leaf.weight(3 * hidden, scale=0.1))
    i, g, o = leaf.node("Split", gates, leaf.ints(*[hidden] * 3), outputs=3, axis=1)
    c = leaf.node("Mul", leaf.node("Sigmoid", i), leaf.node("Tanh", g))
    leaf.output(leaf.node("Mul", leaf.node("Sigmoid", o), leaf.node("Tanh", c)), "h", ["batch", hidden])
    leaf.output(c, "c", ["batch", hidden])

    b = Builder("internal", seed + 1)
    h_left, h_right, c_left, c_right = _states(b, hidden, ("h_left", "h_right", "c_left", "c_right"))
    gates = b.node("Concat", h_left, h_right, axis=1)
    gates = b.node("MatMul", gates, b.weight(2 * hidden, 5 * hidden, scale=1 / hidden**0.5))
    gates = b.node("Add", gates, b.weight(5 * hidden, scale=0.1))
    i, f_left, f_right, g, o = b.node("Split", gates, b.ints(*[hidden] * 5), outputs=5, axis=1)
    kept = b.node(
        "Add",
        b.node("Mul", b.node("Sigmoid", f_left), c_left),
        b.node("Mul", b.node("Sigmoid", f_right), c_right),
    )
    c = b.node("Add", kept, b.node("Mul", b.node("Sigmoid", i), b.node("Tanh", g)))
    b.output(b.node("Mul", b.node("Sigmoid", o), b.node("Tanh", c)), "h", ["batch", hidden])
    b.output(c, "c", ["batch", hidden])

    head = Builder("classes", seed + 2)
    (state,) = _states(head, hidden, ["state"])
    logits = head.node("MatMul", state, head.weight(hidden, classes, scale=1 / hidden**0.5))
    head.output(logits, "logits", ["batch", classes])
    return {"leaf": leaf.model(), "internal": b.model(), "classes": head.model()}, TREE_YAML

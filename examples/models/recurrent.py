"""Recurrent models with seeded weights: one LSTM step, an LSTM operator, and a small LSTM classifier."""

from onnx import TensorProto

from .builder import Builder


def lstm_cell(hidden=1024, seed=0):
    """One LSTM step from plain operators: x, h, c [batch, hidden] → h, c. One product over [x, h]."""
    b = Builder("lstm_cell", seed)
    x, h, c = (b.input(name, ["batch", hidden]) for name in ("x", "h", "c"))
    scale = 1.0 / hidden**0.5
    gates = b.node("MatMul", b.node("Concat", x, h, axis=1), b.weight(2 * hidden, 4 * hidden, scale=scale))
    gates = b.node("Add", gates, b.weight(4 * hidden, scale=0.1))
    i, f, g, o = b.node("Split", gates, b.ints(*[hidden] * 4), outputs=4, axis=1)
    kept = b.node("Mul", b.node("Sigmoid", f), c)
    added = b.node("Mul", b.node("Sigmoid", i), b.node("Tanh", g))
    c_next = b.node("Add", kept, added)
    h_next = b.node("Mul", b.node("Sigmoid", o), b.node("Tanh", c_next))
    b.output(h_next, "h_next", ["batch", hidden])
    b.output(c_next, "c_next", ["batch", hidden])
    return b.model()


def _lstm(b, x, features, hidden, directions=1):
    scale = 1.0 / hidden**0.5
    return b.node(
        "LSTM", x,
        b.weight(directions, 4 * hidden, features, scale=scale),
        b.weight(directions, 4 * hidden, hidden, scale=scale),
        b.weight(directions, 8 * hidden, scale=0.1),
        outputs=3, hidden_size=hidden, direction="forward" if directions == 1 else "bidirectional",
    )


def lstm_operator(hidden=1024, seed=0):
    """The ONNX LSTM operator: x [length, batch, hidden] → y [length, batch, hidden]."""
    b = Builder("lstm_operator", seed)
    x = b.input("x", ["length", "batch", hidden])
    y, _, _ = _lstm(b, x, hidden, hidden)
    b.output(b.node("Squeeze", y, b.ints(1)), "y", ["length", "batch", hidden])
    return b.model()


def lstm_classifier(hidden=128, vocabulary=256, classes=4, seed=0):
    """Characters to a class: tokens [batch, length] → embedding → two LSTM layers → logits of the last step."""
    b = Builder("lstm_classifier", seed)
    tokens = b.input("tokens", ["batch", "length"], TensorProto.INT64)
    x = b.node("Gather", b.weight(vocabulary, hidden, scale=1.0), tokens)
    x = b.node("Transpose", x, perm=[1, 0, 2])
    y, _, _ = _lstm(b, x, hidden, hidden)
    _, last, _ = _lstm(b, b.node("Squeeze", y, b.ints(1)), hidden, hidden)
    last = b.node("Squeeze", last, b.ints(0))
    logits = b.node("Gemm", last, b.weight(classes, hidden), b.weight(classes, scale=0.01), transB=1)
    b.output(logits, "logits", ["batch", classes])
    return b.model()


def lstm_encoder(hidden=1024, vocabulary=1000, seed=0):
    """Tokens to a vector: tokens [batch, length] → embedding → one LSTM layer → its last state [batch, hidden]."""
    b = Builder("lstm_encoder", seed)
    tokens = b.input("tokens", ["batch", "length"], TensorProto.INT64)
    x = b.node("Gather", b.weight(vocabulary, hidden, scale=1.0), b.node("Transpose", tokens, perm=[1, 0]))
    _, last, _ = _lstm(b, x, hidden, hidden)
    b.output(b.node("Squeeze", last, b.ints(0)), "state", ["batch", hidden])
    return b.model()


def gru_encoder(hidden=1024, vocabulary=1000, seed=0):
    """lstm_encoder with a GRU layer, whose reset gate applies after the product as in PyTorch."""
    b = Builder("gru_encoder", seed)
    tokens = b.input("tokens", ["batch", "length"], TensorProto.INT64)
    x = b.node("Gather", b.weight(vocabulary, hidden, scale=1.0), b.node("Transpose", tokens, perm=[1, 0]))
    scale = 1.0 / hidden**0.5
    _, last = b.node("GRU", x, b.weight(1, 3 * hidden, hidden, scale=scale), b.weight(1, 3 * hidden, hidden, scale=scale),
                     b.weight(1, 6 * hidden, scale=0.1), outputs=2, hidden_size=hidden, linear_before_reset=1)
    b.output(b.node("Squeeze", last, b.ints(0)), "state", ["batch", hidden])
    return b.model()


def identity(seed=0):
    """Answers with what it was sent: x [batch, 16]. Measures the server, not the model."""
    b = Builder("identity", seed)
    x = b.input("x", ["batch", 16])
    b.output(x, "y", ["batch", 16])
    return b.model()



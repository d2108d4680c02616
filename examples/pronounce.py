#!/usr/bin/env python3
"""Asks a running server how words are said: examples/pronounce.py chair lift gondola (after `make run`)."""

import argparse
import json
import pathlib
import urllib.request

import numpy as np

LETTERS = "abcdefghijklmnopqrstuvwxyz'"  # as in train/g2p.py
FIRST_PHONE = 2


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="+")
    parser.add_argument("--url", default="http://localhost:8000")
    args = parser.parse_args()
    phones = np.load(pathlib.Path(__file__).resolve().parent / "weights" / "g2p.npz")["phones"]
    for word in args.words:
        letters = [LETTERS.index(letter) + 1 for letter in word.lower() if letter in LETTERS]
        body = {"inputs": [{"name": "source", "datatype": "INT64", "shape": [1, len(letters)], "data": letters}]}
        request = urllib.request.Request(f"{args.url}/v2/models/pronouncer/infer", json.dumps(body).encode())
        with urllib.request.urlopen(request) as response:
            tokens = json.load(response)["outputs"][0]["data"]
        print(f"{word:20} {' '.join(phones[token - FIRST_PHONE] for token in tokens if token >= FIRST_PHONE)}")


if __name__ == "__main__":
    main()

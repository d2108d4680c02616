#!/usr/bin/env python3
"""Asks a running server for the pronunciation of words: examples/pronounce.py chair lift gondola (after `make run`).

With --best 3, a Transformer returns three pronunciations of each word from a beam search, the likeliest first. With
--stress, the pretrained network of the package g2p_en marks stressed vowels: 1 primary, 2 secondary, 0 unstressed.
"""

import argparse

from asking import infer, post

# As in train/g2p.py; the phones are those of the CMU Pronouncing Dictionary, in order, as in weights/g2p.npz.
LETTERS = "abcdefghijklmnopqrstuvwxyz'"
FIRST_PHONE = 2
PHONES = """AA AE AH AO AW AY B CH D DH EH ER EY F G HH IH IY JH K L M N NG OW OY P R S SH T TH UH UW V W Y Z
ZH""".split()


# For g2p_en: its letters begin behind padding, unknown ones and the end of a word, its phonemes behind these and the
# begin of an answer.
END, FIRST_LETTER, FIRST_STRESSED = 2, 3, 4
STRESSED = """AA0 AA1 AA2 AE0 AE1 AE2 AH0 AH1 AH2 AO0 AO1 AO2 AW0 AW1 AW2 AY0 AY1 AY2 B CH D DH EH0 EH1 EH2 ER0 ER1 ER2 EY0 EY1
EY2 F G HH IH0 IH1 IH2 IY0 IY1 IY2 JH K L M N NG OW0 OW1 OW2 OY0 OY1 OY2 P R S SH T TH UH0 UH1 UH2 UW UW0 UW1 UW2 V W Y Z
ZH""".split()


def letters_of(word):
    return [LETTERS.index(letter) + 1 for letter in word.lower() if letter in LETTERS]


def tokens_of(url, model, letters):
    body = {"inputs": [{"name": "source", "datatype": "INT64", "shape": [1, len(letters)], "data": letters}]}
    return infer(url, model, body)["tokens"]


def pronounce(url, word):
    tokens = tokens_of(url, "pronouncer", letters_of(word))
    return " ".join(PHONES[token - FIRST_PHONE] for token in tokens if token >= FIRST_PHONE)


def stressed(url, word):
    letters = [ord(letter) - ord("a") + FIRST_LETTER for letter in word.lower() if "a" <= letter <= "z"]
    tokens = tokens_of(url, "g2p_en", [*letters, END])
    return " ".join(STRESSED[token - FIRST_STRESSED] for token in tokens if token >= FIRST_STRESSED)


def best(url, word, count):
    """Returns pronunciations of a word as text. The model has a tokenizer for letters and phonemes."""
    body = {"text_input": word, "n": count, "num_beams": max(count, 4)}
    answers = post(url, "/v2/models/g2p/generate", body)["text_output"]
    return [answers] if isinstance(answers, str) else answers  # one alone is not in a list


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="+", metavar="WORD")
    parser.add_argument("--url", default="http://localhost:8000", help="the server; default: %(default)s")
    parser.add_argument("--best", type=int, choices=range(1, 33), metavar="N", help="so many ways of saying each word")
    parser.add_argument("--stress", action="store_true", help="mark vowels that are stressed")
    args = parser.parse_args()
    if args.best and args.stress:
        parser.error("--best and --stress ask different models: leave one out")
    for word in args.words:
        if not letters_of(word):
            parser.error(f"'{word}' has no letter from a to z")
        say = stressed if args.stress else pronounce
        ways = best(args.url, word, args.best) if args.best else [say(args.url, word)]
        for i, way in enumerate(ways):
            print(f"{'' if i else word:20} {way}")


if __name__ == "__main__":
    main()

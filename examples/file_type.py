#!/usr/bin/env python3
"""Asks a running server for the types of files.

    .venv/bin/python examples/file_type.py README.md Makefile     (after `make run`)

The model magika reads the first and the last 1024 bytes of a file. It returns a probability for each of 214 types.
"""

import argparse
import importlib.util
import json
import pathlib
import sys

from asking import infer


def load_config():
    spec = importlib.util.find_spec("magika")
    if spec is None:
        sys.exit("file_type.py needs the Python package magika, which `make run` installs: .venv/bin/python " + sys.argv[0])
    return json.loads((pathlib.Path(spec.origin).parent / "models/standard_v3_3/config.min.json").read_text())


def features(content, config):
    """Returns bytes from both ends of the file, without white space there. Short files are padded."""
    begin = list(content[:config["block_size"]].lstrip()[:config["beg_size"]])
    end = list(content[-config["block_size"]:].rstrip()[-config["end_size"]:])
    padding = [config["padding_token"]]
    return begin + padding * (config["beg_size"] - len(begin)) + padding * (config["end_size"] - len(end)) + end


def classify(url, content, config):
    """(probability, name) of the most probable type."""
    data = features(content, config)
    body = {"inputs": [{"name": "bytes", "datatype": "INT32", "shape": [1, len(data)], "data": data}]}
    return max(zip(infer(url, "magika", body)["target_label"], config["target_labels_space"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="+", type=pathlib.Path)
    parser.add_argument("--url", default="http://localhost:8000", help="the server; default: %(default)s")
    args = parser.parse_args()
    config = load_config()
    for file in args.file:
        try:
            content = file.read_bytes()
        except OSError as error:
            sys.exit(f"{file}: {error.strerror}")
        score, name = classify(args.url, content, config)
        print(f"{file}: {name} ({score:.0%})")


if __name__ == "__main__":
    main()

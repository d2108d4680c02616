#!/usr/bin/env python3
"""Measures the memory of an encoder's intermediates: requests of 5 to 500 tokens, then short ones.

This is the experiment of TurboTransformers §4.2. It compares four ways to place the tensors that our plans record:

* our arena: one chunk per worker, greedy by size, released when it is unused for long
* the document's list of chunks
* a caching allocator
* greedy-by-size offsets for each request alone, which is the minimum

Ours is measured while the model runs. The others are computed.
"""

import json
import pathlib
import random
import subprocess
import tempfile

import encoders
import harness

LONG, SHORT = 100, 200  # requests
SHORT_LENGTH = 8
MOST_ABOVE_LEAST = 1.05
MOST_PLANNING = 1.0  # % of computing


def main():
    args = harness.arguments(
        "memory", quick=dict(action="store_true", help="MiniLM alone"),
        only=dict(default="", help="models whose name holds this"))
    harness.build_programs("memory")
    report = harness.Report("memory", args.output, [1])
    chance = random.Random(1)
    lengths = [chance.randint(*encoders.UNIFORM["5-500"]) for _ in range(LONG)] + [SHORT_LENGTH] * SHORT
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        (folder / "lengths.txt").write_text("\n".join(map(str, lengths)) + "\n")
        for name in encoders.SHAPES:
            if (args.only or ("minilm" if args.quick else "")) not in name:
                continue
            model = encoders.Model(name, folder)
            text = subprocess.run([harness.BUILD / "bench" / "memory", model.path, folder / "lengths.txt"],
                                  check=True, capture_output=True, text=True).stdout
            found = json.loads(text)
            ours = found["arena"]

            def row(label, peer, key, aim=None):
                mine, theirs = ours[key] / 2**20, found[peer][key] / 2**20
                report.add(f"{name} {label}", mine, "MiB", theirs, theirs / max(mine, 1e-9), aim=aim)

            row("largest footprint: least (GSOC)", "least", "largest", 1 / MOST_ABOVE_LEAST)
            row("largest footprint: document's chunks", "chunks", "largest")
            row("largest footprint: caching allocator", "caching", "largest")
            largest, last = ours["largest"] / 2**20, ours["last"] / 2**20
            report.add(f"{name} footprint after {SHORT} short ones", last, "MiB", largest, largest / last)
            row("taken from the system: document's chunks", "chunks", "taken")
            row("taken from the system: caching allocator", "caching", "taken")
            planning = 100 * found["planning_s"] / found["computing_s"]
            report.add(f"{name} planning / computing", planning, "%", MOST_PLANNING, MOST_PLANNING / planning, aim=1.0)
    report.save()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Compares cellular batching with merged graphs on a binary TreeLSTM over trees of the Stanford Sentiment Treebank.

A request is one tree. Leaves and inner nodes are cells, as in examples/models/cells.py. Full load keeps 256 requests in
flight. Latencies are those of Poisson arrivals. The engine chooses the rows of a task (--rows). `graph_merge` is a
policy on the same kernels. It runs the graphs of at most 64 requests level by level, and answers them when all have
ended.

DyNet merges graphs by its automatic batching. It has one thread, so two processes run, each with half of the requests.
It uses the batch size and the form of the gates that were fastest before the first round. Below the rows of a load are
the factors of its distance to the bound (bench/load.py, add_factors).
"""

import contextlib
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import onnx

import harness
import load
from load import WORKERS, middle
from models import cells

VOCABULARY = 1000
MAX_ROWS = 64  # requests in a batch of graph_merge; rows of the bare loop
CLIENTS = 256
TREES = harness.ROOT / "bench" / "data" / "trees" / "sst_train_shapes.txt"
COUNT = 2048
AIMS = {1024: {"merged": 1.0, "dynet": 1.3, "loop": 0.95}, 256: {"merged": 1.1, "dynet": 2.5, "loop": 0.95}}
SHORTER_THAN_DYNET = 10  # latencies at half of its peak


class DyNet:
    """Processes of bench/dynet_peer.py."""

    def __init__(self, cells_folder, trees, folder, seconds):
        self.processes = []
        for i in range(WORKERS):
            file = pathlib.Path(folder) / f"trees-{i}.txt"
            file.write_text("\n".join(trees[i::WORKERS]) + "\n")
            self.processes.append(subprocess.Popen(
                [sys.executable, harness.ROOT / "bench" / "dynet_peer.py", cells_folder, file], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, bufsize=1))
        for process in self.processes:
            if process.stdout.readline().strip() != "ready":
                raise SystemExit("dynet_peer did not start")
        self.way = (64, "joined")
        forms = {form: self.closed(seconds, (64, form)) for form in ("joined", "split")}
        form = max(forms, key=lambda form: forms[form]["tokens_per_s"])
        sizes = {64: forms[form]} | {size: self.closed(seconds, (size, form)) for size in (16, 256)}
        self.way = (max(sizes, key=lambda size: sizes[size]["tokens_per_s"]), form)

    def ask(self, lines):
        for process, line in zip(self.processes, lines):
            process.stdin.write(line + "\n")
        done = [json.loads(process.stdout.readline()) for process in self.processes]
        latencies = sorted(latency for one in done for latency in one["latencies_ms"])
        out = {"tokens_per_s": sum(one["nodes"] / one["seconds"] for one in done),
               "requests_per_s": sum(one["trees"] / one["seconds"] for one in done)}
        for quantile in (50, 90, 99):
            out[f"p{quantile}_ms"] = latencies[int(quantile / 100 * (len(latencies) - 1))] if latencies else None
        return out

    def closed(self, seconds, way=None):
        size, form = way or self.way
        return self.ask(WORKERS * [f"closed {size} {form} {seconds}"])

    def open(self, rate, seconds):
        size, form = self.way
        return self.ask([f"open {size} {form} {rate / WORKERS} {seconds} {seed}" for seed in range(1, WORKERS + 1)])

    def close(self):
        for process in self.processes:
            process.stdin.close()
            process.wait(timeout=60)


def write_cells(hidden, folder):
    made, yaml = cells.tree_lstm(hidden, VOCABULARY)
    version = folder / "tree" / "1"
    version.mkdir(parents=True)
    (folder / "tree" / "model.yaml").write_text(yaml)
    for name, cell in made.items():
        onnx.save(cell, version / f"{name}.onnx")
    return version


def bare_loop(version, mix, seconds):
    """Nodes a second of the cells in a bare loop, each at its share of the nodes."""
    files = [version / f"{name}.onnx" for name in mix]
    command = [harness.BUILD / "bench" / "cell_rates", str(MAX_ROWS), str(WORKERS), str(seconds / len(files)), *files]
    text = subprocess.run(command, capture_output=True, check=True, text=True)
    rates = json.loads(text.stdout)
    return 1 / sum(share / rates[name] for name, share in mix.items())


def measure(report, hidden, folder, args, stack):
    seconds, rounds = args.seconds, args.rounds
    folder = pathlib.Path(folder) / str(hidden)
    folder.mkdir()
    version = write_cells(hidden, folder)
    every = TREES.read_text().split()
    trees = every[::max(1, len(every) // COUNT)][:COUNT]
    nodes = sum(2 * tree.count(".") - 1 for tree in trees)
    leaves = sum(tree.count(".") for tree in trees)
    # For one node, leaves and inner nodes as they occur; `classes` runs once a tree.
    mix = {"leaf": leaves / nodes, "internal": (nodes - leaves) / nodes, "classes": len(trees) / nodes}
    flops = 2 * hidden * (mix["leaf"] * 3 * hidden + mix["internal"] * 2 * 5 * hidden)
    bound = harness.measure_peak(WORKERS)[str(WORKERS)]["gflops"] * 1e9 / flops
    per_tree = nodes / len(trees)

    engines = {}
    for side, policy, rows in (("cellular", "cellular", args.rows), ("merged", "graph_merge", MAX_ROWS)):
        engines[side] = load.in_process(side, version, policy, rows, trees, folder, VOCABULARY)
        stack.callback(engines[side].close)
        engines[side].ask(f"closed {CLIENTS} 0.3")
    dynet = DyNet(version, trees, folder, min(1.5, seconds / 2))
    stack.callback(dynet.close)

    closed = f"closed {CLIENTS} {seconds}"
    runs = harness.in_turns(
        rounds, cellular=lambda: engines["cellular"].ask(closed), merged=lambda: engines["merged"].ask(closed),
        dynet=lambda: dynet.closed(seconds), loop=lambda: {"tokens_per_s": bare_loop(version, mix, seconds)})
    tokens = {side: [result["tokens_per_s"] for result in results] for side, results in runs.items()}

    def row(label, peer):
        mine, theirs = ([rate / per_tree for rate in tokens[side]] for side in ("cellular", peer))
        report.add(f"h={hidden} {label}", statistics.median(mine), "tree/s", peer=statistics.median(theirs),
                   ratio=harness.median_ratio(mine, theirs),
                   bound_percent=100 * statistics.median(mine) * per_tree / bound, aim=AIMS.get(hidden, {}).get(peer),
                   spread_percent=harness.spread(mine))

    row("peak: vs graph_merge", "merged")
    row("peak: vs DyNet, 2 processes", "dynet")
    row("peak: vs bare loop", "loop")
    loop = statistics.median(tokens["loop"])

    def factors(label, results):
        for side in engines:
            load.add_factors(report, f"h={hidden} {label} {side}", results[side], loop, bound)

    factors("full load:", runs)
    print(f"    DyNet: batches of at most {dynet.way[0]}, children {dynet.way[1]}; "
          f"{statistics.median(tokens['dynet']) / bound:.2f} of the bound")

    def latencies(label, rate, with_dynet):
        opened = f"open {rate:.2f} {seconds}"
        sides = {side: (lambda made=made: made.ask(opened)) for side, made in engines.items()}
        if with_dynet:
            sides["dynet"] = lambda: dynet.open(rate, seconds)
        results = harness.in_turns(rounds, **sides)
        load.add_latencies(report, f"h={hidden} {label} vs merge", results, "cellular", ["merged"], None, rate)
        if with_dynet:
            load.add_latencies(report, f"h={hidden} {label} vs DyNet", results, "cellular", ["dynet"], SHORTER_THAN_DYNET, rate)
        factors(f"{label}:", results)

    latencies("half of merge's peak", middle(runs["merged"], "requests_per_s") / 2, False)
    latencies("half of DyNet's peak", middle(runs["dynet"], "requests_per_s") / 2, True)


def main():
    args = harness.arguments(
        "tree", seconds={"type": float, "default": 4.0, "help": "of one load"}, rounds={"type": int, "default": 5},
        hidden={"type": int, "nargs": "*", "default": [1024, 256]},
        rows={"type": int, "default": 0, "help": "most rows of a task of cellular batching; 0: as the engine chooses"},
        quick={"action": "store_true", "help": "a look in about a minute: one short round"})
    if args.quick:
        args.seconds, args.rounds = 2.0, 1
    harness.build_programs("peak", "sequence_load", "cell_rates")
    report = harness.Report("tree", args.output, [WORKERS])
    with tempfile.TemporaryDirectory() as folder:
        for hidden in args.hidden:
            with contextlib.ExitStack() as stack:
                measure(report, hidden, folder, args, stack)
    report.save()


if __name__ == "__main__":
    main()

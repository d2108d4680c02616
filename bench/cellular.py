#!/usr/bin/env python3
"""Compares cellular batching with padding, and with a bare loop of the same kernels, on one LSTM or GRU layer.

The layer follows an embedding. It runs in process, and over HTTP at the largest size. Lengths are those of WMT
sentences cut at 50, of Europarl sentences (up to 147), or always 24. Full load keeps 256 requests in flight. `half
load` sends Poisson arrivals at half of the peak of our better baseline.

`bucketed` and `graph_merge` are policies on the same kernels, with batches of 64. The engine chooses the rows of a
cellular task (--rows). ONNX Runtime and PyTorch run full batches of 64 from one bucket of width 10, padded to its upper
length. Each uses both cores in the way that was fastest before the first round: one run on two threads or two runs on
one thread; PyTorch with or without oneDNN. Below the rows of a load are the factors of its distance to the bound
(bench/load.py, add_factors).
"""

import argparse
import contextlib
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import onnx
import onnxruntime

import harness
import load
from load import WORKERS, middle
from models import recurrent

VOCABULARY = 1000
MAX_ROWS = 64  # of the baselines' batches, and of the bare loop
CLIENTS = 256
BUCKET = 10
FIXED = 24
LENGTHS = {  # name: (file, longest)
    "WMT": ("wmt15_ende_train10k_src_en.json", 50),
    "Europarl": ("europarl_v7_fr-en_head_en.json", 147),
}
BASELINES = ("bucketed", "merged")
MODELS = {"lstm": (recurrent.lstm_encoder, 4), "gru": (recurrent.gru_encoder, 3)}  # name: (model, gates)
SIZES = ["lstm:1024", "lstm:512", "lstm:256", "lstm:128", "lstm:64", "gru:1024", "gru:256", "gru:128"]
OF_BOUND = {1024: 0.88, 512: 0.86, 256: 0.84, 128: 0.75}  # the share of the FMA bound that the loop should reach


def draw_lengths(name, count, seed):
    file, longest = LENGTHS[name]
    histogram = json.loads((harness.ROOT / "bench" / "data" / "lengths" / file).read_text())["histogram"]
    lengths = [int(length) for length in histogram if 1 <= int(length) <= longest]
    weights = [histogram[str(length)] for length in lengths]
    return random.Random(seed).choices(lengths, weights, k=count)


def padded_batches(lengths):
    """Returns full batches of one bucket each: [(lengths, padded length)]."""
    buckets = {}
    for length in lengths:
        buckets.setdefault((length - 1) // BUCKET, []).append(length)
    batches = [(bucket[i:i + 64], (b + 1) * BUCKET)
               for b, bucket in buckets.items() for i in range(0, len(bucket) - 63, 64)]
    random.Random(3).shuffle(batches)
    return batches


def useful_share(batches):
    return sum(sum(lengths) for lengths, _ in batches) / sum(len(lengths) * top for lengths, top in batches)


def onnxruntime_session(path, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


class OnnxRuntime:
    """ONNX Runtime: measures useful tokens a second, in the faster of two ways."""

    def __init__(self, path, batches, seconds):
        self.batches = batches
        self.tokens = {top: np.random.default_rng(1).integers(0, VOCABULARY, (64, top)) for _, top in batches}
        ways = [[onnxruntime_session(path, WORKERS)], [onnxruntime_session(path, 1) for _ in range(WORKERS)]]
        self.sessions = max(ways, key=lambda way: self.run(seconds, way))

    def run(self, seconds, sessions=None):
        sessions = sessions or self.sessions
        rates = []

        def loop(session, mine):
            begin = time.perf_counter()
            useful = at = 0
            while time.perf_counter() - begin < seconds:
                lengths, top = mine[at % len(mine)]
                at += 1
                session.run(None, {"tokens": self.tokens[top]})
                useful += sum(lengths)
            rates.append(useful / (time.perf_counter() - begin))

        loops = [threading.Thread(target=loop, args=(session, self.batches[i::len(sessions)]))
                 for i, session in enumerate(sessions)]
        for thread in loops:
            thread.start()
        for thread in loops:
            thread.join()
        return sum(rates)


class Torch:
    """The same in PyTorch: processes of bench/torch_peer.py."""

    def __init__(self, path, batches, seconds, folder, way=None):
        """`way`: threads of a process, and whether oneDNN is on; None: the fastest."""
        self.file = pathlib.Path(folder) / f"batches-{len(batches)}.json"
        self.file.write_text(json.dumps(batches))
        ways = [(threads, onednn) for threads in (WORKERS, 1) for onednn in (1, 0)]
        rates = {}
        for tried in ways if way is None else []:
            self.start(path, *tried)
            rates[tried] = self.run(seconds)
            self.close()
        self.way = way or max(rates, key=rates.get)
        self.start(path, *self.way)

    def start(self, path, threads, onednn):
        command = [sys.executable, harness.ROOT / "bench" / "torch_peer.py", path, self.file, str(threads), str(onednn)]
        self.processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
                          for _ in range(WORKERS // threads)]
        for process in self.processes:
            if process.stdout.readline().strip() != "ready":
                raise SystemExit("torch_peer did not start")
        self.run(0.3)  # it allocates, and chooses kernels

    def run(self, seconds):
        for i, process in enumerate(self.processes):
            process.stdin.write(f"{seconds} {i} {len(self.processes)}\n")
        done = [json.loads(process.stdout.readline()) for process in self.processes]
        return sum(one["tokens"] / one["seconds"] for one in done)

    def close(self):
        for process in self.processes:
            process.stdin.close()
            process.wait(timeout=60)


def cell_loop(model, seconds):
    text = subprocess.run([harness.BUILD / "bench" / "cell_loop", model, str(MAX_ROWS), str(FIXED), str(WORKERS),
                           str(seconds)], capture_output=True, check=True, text=True)
    return json.loads(text.stdout)["tokens_per_s"]


class Measurement:
    """All of one cell and size."""

    def __init__(self, report, cell, hidden, folder, args, stack):
        self.report, self.hidden, self.stack = report, hidden, stack
        self.label = f"{cell.upper()} h={hidden}"
        self.seconds, self.rounds, self.rows = args.seconds, args.rounds, args.rows
        self.folder = pathlib.Path(folder) / f"{cell}-{hidden}"
        self.folder.mkdir()
        self.model = self.folder / "model.onnx"
        make, gates = MODELS[cell]
        onnx.save(make(hidden, VOCABULARY), self.model)
        flops = 2 * (hidden + hidden) * gates * hidden  # of one token: projection and step
        self.bound = harness.measure_peak(WORKERS)[str(WORKERS)]["gflops"] * 1e9 / flops
        self.loop = None  # tokens a second of the bare loop
        self.torch_way = None

    def engine(self, policy, lengths):
        rows = self.rows if policy == "cellular" else MAX_ROWS
        return self.warm(load.in_process(policy, self.model, policy, rows, lengths, self.folder, VOCABULARY))

    def server(self, policy, lengths):
        rows = self.rows if policy == "cellular" else MAX_ROWS
        return self.warm(load.OverHttp(policy, self.model, policy, rows, CLIENTS, lengths, self.folder, VOCABULARY))

    def warm(self, made):
        self.stack.callback(made.close)
        made.ask(f"closed {CLIENTS} 0.3")
        return made

    def row(self, label, tokens, side, peer, aim):
        value = statistics.median(tokens[side])
        self.report.add(f"{self.label} {label}", value, "tok/s", peer=statistics.median(tokens[peer]),
                        ratio=harness.median_ratio(tokens[side], tokens[peer]), bound_percent=100 * value / self.bound,
                        aim=aim, spread_percent=harness.spread(tokens[side]))

    def factors(self, label, runs, useful=None):
        for side, results in runs.items():
            load.add_factors(self.report, f"{self.label} {label} {side}", results, self.loop, self.bound,
                             useful.get(side) if useful else None)

    def peer_factors(self, label, batches, rates):
        """Padded batches that were run one after the other."""
        padding = useful_share(batches)
        for side, values in rates.items():
            self.report.add_factors(f"{self.label} {label} {side}", padding=padding,
                                    the_rest=statistics.median(values) / self.bound / padding)

    def peaks(self, name):
        """Measures full load on those lengths. Returns the peaks for the other measurements."""
        lengths = draw_lengths(name, 8192, 1)
        engines = {"cellular": self.engine("cellular", lengths), "bucketed": self.engine("bucketed", lengths),
                   "merged": self.engine("graph_merge", lengths)}
        batches = padded_batches(lengths)
        calibration = min(1.5, self.seconds / 2)
        torch = Torch(self.model, batches, calibration, self.folder, self.torch_way)
        self.stack.callback(torch.close)
        self.torch_way = torch.way
        peers = {"onnxruntime": OnnxRuntime(self.model, batches, calibration), "torch": torch}
        closed = f"closed {CLIENTS} {self.seconds}"
        loads = {side: (lambda engine=engine: engine.ask(closed)) for side, engine in engines.items()}
        others = {side: (lambda peer=peer: peer.run(self.seconds)) for side, peer in peers.items()}
        if name == "WMT":
            fixed = self.engine("cellular", [FIXED] * 64)
            loads["fixed"] = lambda: fixed.ask(closed)
            others["loop"] = lambda: cell_loop(self.model, self.seconds)
        runs = harness.in_turns(self.rounds, **loads, **others)
        results = {side: runs[side] for side in loads}
        tokens = {side: [result["tokens_per_s"] for result in rs] for side, rs in results.items()}
        tokens |= {side: runs[side] for side in others}

        if name == "WMT":
            self.loop = statistics.median(tokens["loop"])
            self.row("length 24: vs bare loop", tokens, "fixed", "loop", 1.0)
            tokens["bound"] = [self.bound] * self.rounds
            self.row("length 24: vs FMA bound", tokens, "fixed", "bound", OF_BOUND.get(self.hidden))
        self.row(f"{name}: vs bucketed", tokens, "cellular", "bucketed", 1.15)
        self.row(f"{name}: vs graph_merge", tokens, "cellular", "merged", 1.0)
        self.row(f"{name}: vs ONNX Runtime", tokens, "cellular", "onnxruntime", 1.35)
        self.row(f"{name}: vs PyTorch", tokens, "cellular", "torch", 1.25)
        if name == "WMT":
            self.row(f"{name}: vs length 24", tokens, "cellular", "fixed", 0.98)
        self.factors(f"{name}, full load:", results)
        self.peer_factors(f"{name}, padded:", batches, {side: tokens[side] for side in peers})
        threads, onednn = torch.way
        print(f"    PyTorch: {WORKERS // threads} x {threads} threads, oneDNN {'on' if onednn else 'off'}; "
              f"ONNX Runtime: {len(peers['onnxruntime'].sessions)} at once")
        return lengths, engines, results

    def half_load(self, label, loads, peaks, useful=None):
        rate = max(middle(peaks[side], "requests_per_s") for side in BASELINES) / 2
        opened = f"open {rate:.2f} {self.seconds}"
        runs = harness.in_turns(self.rounds, **{side: (lambda made=made: made.ask(opened))
                                                for side, made in loads.items()})
        load.add_latencies(self.report, f"{self.label} {label} at half load", runs, "cellular", BASELINES, 1.5,
                           rate)
        self.factors(f"{label}, half load:", runs, useful)

    def over_http(self, lengths, in_process):
        servers = {"cellular": self.server("cellular", lengths), "bucketed": self.server("bucketed", lengths),
                   "merged": self.server("graph_merge", lengths)}
        closed = f"closed {CLIENTS} {self.seconds}"
        peaks = harness.in_turns(self.rounds, **{side: (lambda made=made: made.ask(closed))
                                                 for side, made in servers.items()})
        tokens = {side: [result["tokens_per_s"] for result in results] for side, results in peaks.items()}
        tokens["in process"] = [result["tokens_per_s"] for result in in_process["cellular"]]
        self.row("WMT over HTTP: vs bucketed", tokens, "cellular", "bucketed", 1.15)
        self.row("WMT over HTTP: vs graph_merge", tokens, "cellular", "merged", 1.0)
        self.row("WMT over HTTP: vs in process", tokens, "cellular", "in process", 0.95)
        # A server does not tell its padding, which follows from lengths and policy.
        useful = {side: middle(results, "useful") for side, results in in_process.items()}
        self.factors("WMT over HTTP, full load:", peaks, useful)
        self.half_load("WMT over HTTP", servers, peaks, useful)

    def one_alone(self):
        engine = self.engine("cellular", [FIXED] * 64)
        session = onnxruntime_session(self.model, WORKERS)
        feed = {"tokens": np.random.default_rng(1).integers(0, VOCABULARY, (1, FIXED))}
        alone = harness.in_turns(
            self.rounds, ours=lambda: engine.ask(f"alone {self.seconds / 4}")["p50_ms"],
            ort=lambda: 1e3 * statistics.median(harness.timed(lambda: session.run(None, feed), 50)))
        self.report.add(f"{self.label} one request alone", statistics.median(alone["ours"]), "ms",
                        peer=statistics.median(alone["ort"]), ratio=harness.median_ratio(alone["ort"], alone["ours"]),
                        aim=1.2, spread_percent=harness.spread(alone["ours"]))


def cell_and_size(text):
    cell, _, hidden = text.partition(":")
    if cell not in MODELS or not hidden.isdecimal() or int(hidden) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' should be a cell of {', '.join(MODELS)} and its units, as in gru:256")
    return cell, int(hidden)


def main():
    args = harness.arguments(
        "cellular", seconds={"type": float, "default": 3.0, "help": "of one load"},
        rounds={"type": int, "default": 5},
        sizes={"nargs": "*", "type": cell_and_size, "default": [cell_and_size(size) for size in SIZES],
               "metavar": "CELL:HIDDEN", "help": "lstm or gru, and units, as in gru:256"},
        rows={"type": int, "default": 0, "help": "most rows of a task of cellular batching; 0: as the engine chooses"},
        quick={"action": "store_true", "help": "a look in about two minutes: one short round of the first size"})
    if args.quick:
        args.seconds, args.rounds, args.sizes = 1.5, 1, args.sizes[:1]
    harness.build_programs("peak", "sequence_load", "cell_loop", "chairlift")
    report = harness.Report("cellular", args.output, [WORKERS])
    with tempfile.TemporaryDirectory() as folder:
        for cell, hidden in args.sizes:
            with contextlib.ExitStack() as stack:
                measured = Measurement(report, cell, hidden, folder, args, stack)
                lengths, engines, peaks = measured.peaks("WMT")
                measured.half_load("WMT", engines, peaks)
                measured.one_alone()
                if (cell, hidden) == args.sizes[0]:
                    measured.over_http(lengths, peaks)
                _, engines, europarl = measured.peaks("Europarl")
                measured.half_load("Europarl", engines, europarl)
    report.save()


if __name__ == "__main__":
    main()

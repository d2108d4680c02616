#!/usr/bin/env python3
"""One LSTM layer behind an embedding, served in process: cellular batching against padding, and against what the
same kernels do in a bare loop.

Lengths are those of WMT sentences cut at 50, or 24 for all. Full load keeps 256 requests under way; `half load` sends
Poisson arrivals at half of what the better baseline can take at most. Peers: `bucketed` and `graph_merge` are policies
on the same kernels; ONNX Runtime runs batches of 64 of one bucket of 10, padded to its upper length, all full, on two
threads or as two runs of one thread, whichever is faster. Below each row of ours at full load stand the factors that
its distance to the bound splits into: kernel x padding x batch x busy.
"""

import contextlib
import json
import pathlib
import random
import statistics
import subprocess
import tempfile
import threading
import time

import numpy as np
import onnx
import onnxruntime

import harness
from models import recurrent

VOCABULARY = 1000
MAX_ROWS = 64
CLIENTS = 256
BUCKET = 10
WORKERS = 2
LENGTHS = harness.ROOT / "bench" / "data" / "lengths" / "wmt15_ende_train10k_src_en.json"
CUT = 50
FIXED = 24


def wmt_lengths(count, seed):
    histogram = json.loads(LENGTHS.read_text())["histogram"]
    lengths = [int(length) for length in histogram if 1 <= int(length) <= CUT]
    weights = [histogram[str(length)] for length in lengths]
    return random.Random(seed).choices(lengths, weights, k=count)


class Engine:
    """bench/sequence_load: one model under one policy."""

    def __init__(self, model, policy, lengths, folder):
        file = pathlib.Path(folder) / f"lengths-{len(set(lengths))}.txt"
        file.write_text("\n".join(map(str, lengths)) + "\n")
        self.process = subprocess.Popen(
            [harness.BUILD / "bench" / "sequence_load", model, policy, str(MAX_ROWS), str(WORKERS), file,
             str(VOCABULARY)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        if self.process.stdout.readline().strip() != "ready":
            raise SystemExit("sequence_load did not start")

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)


def onnxruntime_session(path, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def onnxruntime_padded(path, lengths, seconds):
    """Useful tokens a second and requests a second over full batches of one bucket each: the better of the two ways."""
    buckets = {}
    for length in lengths:
        buckets.setdefault((length - 1) // BUCKET, []).append(length)
    batches = [(64, (b + 1) * BUCKET, sum(bucket[i:i + 64]))
               for b, bucket in buckets.items() for i in range(0, len(bucket) - 63, 64)]
    random.Random(3).shuffle(batches)

    def run(threads, at_once):
        sessions = [onnxruntime_session(path, threads) for _ in range(at_once)]
        tokens = {top: np.random.default_rng(1).integers(0, VOCABULARY, (64, top)) for _, top, _ in batches}
        end = time.perf_counter() + seconds
        done = []

        def loop(session, mine):
            begin = time.perf_counter()
            useful = requests = 0
            for i in range(10**9):
                count, top, total = mine[i % len(mine)]
                session.run(None, {"tokens": tokens[top]})
                useful += total
                requests += count
                if time.perf_counter() >= end:
                    break
            spent = time.perf_counter() - begin
            done.append((useful / spent, requests / spent))

        loops = [threading.Thread(target=loop, args=(s, batches[i::at_once])) for i, s in enumerate(sessions)]
        for thread in loops:
            thread.start()
        for thread in loops:
            thread.join()
        return tuple(map(sum, zip(*done)))

    return max(run(WORKERS, 1), run(1, WORKERS))


def cell_loop(model, seconds):
    text = subprocess.run([harness.BUILD / "bench" / "cell_loop", model, str(MAX_ROWS), str(FIXED), str(WORKERS),
                           str(seconds)], capture_output=True, check=True, text=True)
    return json.loads(text.stdout)["tokens_per_s"]


def in_turns(rounds, **sides):
    """{name: [what side() gave in each round]}, all sides once a round, in an order that turns."""
    out = {name: [] for name in sides}
    names = list(sides)
    for r in range(rounds):
        for name in names[r % len(names):] + names[:r % len(names)]:
            out[name].append(sides[name]())
    return out


def ratio(ours, theirs):
    return statistics.median(a / b for a, b in zip(ours, theirs))


def spread(values):
    return 100 * (max(values) - min(values)) / statistics.median(values)


def measure(report, hidden, folder, seconds, rounds):
    model = pathlib.Path(folder) / f"lstm{hidden}.onnx"
    onnx.save(recurrent.lstm_encoder(hidden, VOCABULARY), model)
    flops = 2 * (hidden + hidden) * 4 * hidden  # of one token: projection and step
    bound = harness.measure_peak(WORKERS)[str(WORKERS)]["gflops"] * 1e9 / flops
    wmt = wmt_lengths(8192, 1)
    closed = f"closed {CLIENTS} {seconds}"
    name = f"h={hidden}"

    with contextlib.ExitStack() as stack:
        def engine(policy, lengths):
            made = Engine(model, policy, lengths, folder)
            stack.callback(made.close)
            made.ask(f"closed {CLIENTS} 0.5")
            return made

        fixed = engine("cellular", [FIXED] * 64)
        ours = engine("cellular", wmt)
        bucketed, merged = engine("bucketed", wmt), engine("graph_merge", wmt)

        runs = in_turns(
            rounds,
            loop=lambda: cell_loop(model, seconds),
            fixed=lambda: fixed.ask(closed),
            wmt=lambda: ours.ask(closed),
            bucketed=lambda: bucketed.ask(closed),
            merged=lambda: merged.ask(closed),
            ort=lambda: onnxruntime_padded(model, wmt, seconds / 2))
        tokens = {side: [r["tokens_per_s"] for r in runs[side]] for side in ("fixed", "wmt", "bucketed", "merged")}
        tokens |= {"loop": runs["loop"], "ort": [useful for useful, _ in runs["ort"]]}
        middle = {side: statistics.median(values) for side, values in tokens.items()}

        def row(label, side, peer, aim):
            report.add(f"{name} {label}", middle[side], "tok/s", peer=middle[peer],
                       ratio=ratio(tokens[side], tokens[peer]), bound_percent=100 * middle[side] / bound, aim=aim,
                       spread_percent=spread(tokens[side]))

        row("length 24: vs bare loop", "fixed", "loop", 0.97)
        report.add(f"{name} length 24: vs FMA bound", middle["fixed"], "tok/s", peer=bound,
                   ratio=middle["fixed"] / bound, bound_percent=100 * middle["fixed"] / bound, aim=0.8,
                   spread_percent=spread(tokens["fixed"]))
        row("WMT: vs bucketed", "wmt", "bucketed", 1.25)
        row("WMT: vs graph_merge", "wmt", "merged", None)
        row("WMT: vs ONNX Runtime padded", "wmt", "ort", 1.5)
        row("WMT: vs length 24", "wmt", "fixed", 0.97)
        for side in ("fixed", "wmt", "bucketed", "merged"):
            last = runs[side][-1]
            kernel_and_batch = middle[side] / bound / max(last["useful"] * last["busy"], 1e-9)
            print(f"    {side}: kernel x batch {kernel_and_batch:.2f}, padding {last['useful']:.2f}, "
                  f"busy {last['busy']:.2f}; {last['mean_rows']:.0f} rows a task")

        peak = max(statistics.median(r["requests_per_s"] for r in runs[side]) for side in ("bucketed", "merged"))
        rate = peak / 2
        opened = f"open {rate:.2f} {seconds}"
        runs = in_turns(rounds, ours=lambda: ours.ask(opened), bucketed=lambda: bucketed.ask(opened),
                        merged=lambda: merged.ask(opened))
        for quantile in ("p90_ms", "p99_ms"):
            mine = [r[quantile] for r in runs["ours"]]
            better = [min(b[quantile], m[quantile]) for b, m in zip(runs["bucketed"], runs["merged"])]
            report.add(f"{name} WMT at half load: {quantile[:3]}", statistics.median(mine), "ms",
                       peer=statistics.median(better), ratio=ratio(better, mine), aim=1 / 0.4,
                       spread_percent=spread(mine), rate=rate)

        session = onnxruntime_session(model, WORKERS)
        feed = {"tokens": np.random.default_rng(1).integers(0, VOCABULARY, (1, FIXED))}
        alone = in_turns(rounds, ours=lambda: fixed.ask(f"closed 1 {seconds / 4}")["p50_ms"],
                         ort=lambda: 1e3 * statistics.median(harness.timed(lambda: session.run(None, feed), 50)))
        report.add(f"{name} one request alone", statistics.median(alone["ours"]), "ms",
                   peer=statistics.median(alone["ort"]), ratio=ratio(alone["ort"], alone["ours"]), aim=1 / 0.9,
                   spread_percent=spread(alone["ours"]))


def main():
    args = harness.arguments("cellular", seconds={"type": float, "default": 4.0}, rounds={"type": int, "default": 5},
                             hidden={"type": int, "nargs": "*", "default": [1024, 256]})
    harness.build_programs("peak", "sequence_load", "cell_loop")
    report = harness.Report("cellular", args.output, [WORKERS])
    with tempfile.TemporaryDirectory() as folder:
        for hidden in args.hidden:
            measure(report, hidden, folder, args.seconds, args.rounds)
    report.save()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Compares our engine with the fastest peer on an encoder under Poisson arrivals, in process on both cores.

Requests have RTE's lengths. The rate is 60% of the best peer's peak, in its fastest way that a server could use: one
that does not need all requests in advance. The peer gets an ideal server: threads of this process take the next request
from a queue, each with its own share of the cores.
"""

import pathlib
import queue
import random
import statistics
import tempfile
import threading
import time

import numpy as np

import encoder_peers
import encoders
import harness
import load

SHARE = 0.6
AIM = 1 / 0.6  # our mean and p99 at most 0.6 of the peer's


def serve(way, requests, rate, seconds, seed):
    """Latencies in ms of Poisson arrivals, by `way.lanes` threads that run one request at a time."""
    waiting, latencies = queue.SimpleQueue(), []

    def lane():
        while (item := waiting.get()) is not None:
            due, request = item
            way.run_batch([request])
            latencies.append((time.perf_counter() - due) * 1e3)

    lanes = [threading.Thread(target=lane) for _ in range(way.lanes)]
    for thread in lanes:
        thread.start()
    chance = random.Random(seed)
    due, begin, sent = time.perf_counter(), time.perf_counter(), 0
    while True:
        due += chance.expovariate(rate)
        if due - begin > seconds:
            break
        time.sleep(max(0.0, due - time.perf_counter()))
        waiting.put((due, requests[sent % len(requests)]))
        sent += 1
    for _ in lanes:
        waiting.put(None)
    for thread in lanes:
        thread.join()
    return {"mean_ms": statistics.fmean(latencies), "p99_ms": float(np.percentile(latencies, 99))}


def peak(way, requests):
    way.seconds(requests)
    return len(requests) / min(way.seconds(requests) for _ in range(2))


def main():
    args = harness.arguments(
        "encoder_serving", quick=dict(action="store_true", help="MiniLM alone, short rounds"),
        rounds=dict(type=int, default=5), seconds=dict(type=float, default=12.0, help="of arrivals, each round"),
        only=dict(default="", help="models whose name holds this"))
    if args.quick:
        args.rounds, args.seconds, args.only = 3, 6.0, args.only or "minilm"
    harness.build_programs("peak", "sequence_load")
    report = harness.Report("encoder_serving", args.output, [load.WORKERS])
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for name in encoders.SHAPES:
            if args.only not in name:
                continue
            model = encoders.Model(name, folder)
            ways = [way for of_peer in model.ways(["onnxruntime", "openvino", "ctranslate2"]).values()
                    for way in of_peer if way.split is encoder_peers.one_by_one]
            lengths = encoders.draw_lengths("RTE", 256)
            requests = encoders.requests_of(lengths)
            part = requests[:48 if name == "minilm_l6" else 12]
            peaks = {way.name: peak(way, part) for way in ways}
            best = max(ways, key=lambda way: peaks[way.name])
            rate = SHARE * peaks[best.name]
            seconds = args.seconds if name == "minilm_l6" else 4 * args.seconds
            print(f"  {model.name}: {best.name} takes {peaks[best.name]:.1f} requests/s; arrivals at {rate:.1f}/s")
            ours = load.in_process("packed", model.path, "packed", 0, lengths, folder, encoders.VOCABULARY)
            ours.ask(f"closed 16 {seconds / 4}")
            runs = {"ours": [], "peer": []}
            for seed in range(args.rounds):
                sides = {"ours": lambda: ours.ask(f"open {rate} {seconds} {seed}"),
                         "peer": lambda: serve(best, requests, rate, seconds, seed)}
                for side in sorted(sides, reverse=seed % 2 == 1):
                    runs[side].append(sides[side]())
            for key in ("mean_ms", "p99_ms"):
                mine, theirs = ([run[key] for run in runs[side]] for side in ("ours", "peer"))
                report.add(f"{model.name} 60% of the best peer: {key[:-3]}", statistics.median(mine), "ms",
                           statistics.median(theirs), harness.median_ratio(theirs, mine), None, AIM,
                           harness.spread(mine), rate=rate, way=best.name)
            ours.close()
            for way in ways:
                way.close()
    report.save()


if __name__ == "__main__":
    main()

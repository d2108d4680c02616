#!/usr/bin/env python3
"""Compares this build with an earlier one, row by row and in turns, to find out if a change made anything slower.

    make bench BENCH=before FLAGS="--other ../earlier/build/release"

The models of `runtime` run one request at a time. Recurrent models, trees and encoders run in process, at full load and
at a share of it. HTTP runs a model that does nothing. `ratio` is above 1 if this build is faster. The earlier build
needs its targets `chairlift`, `model_worker` and `sequence_load`.
"""

import contextlib
import pathlib
import statistics
import subprocess
import tempfile

import numpy as np
import onnx

import cellular
import encoders
import harness
import load
import runtime
import server
import tree
from models import builder, recurrent

AIM = 0.98
FULL = 64  # requests under way
FEWEST = 300  # requests per percentile
SHARE = 0.6  # of the earlier build's peak, at which latencies are compared


def compare_runtime(report, builds, folder, args):
    for name, build, cases in runtime.rows():
        path = folder / f"{name}.onnx"
        builder.save(build(), path)
        for threads in args.threads:
            for label, inputs in cases:
                files = {key: folder / f"{key}.npy" for key in inputs}
                for key, value in inputs.items():
                    np.save(files[key], value)
                new, old = (harness.Worker(path, threads, files, build) for build in builds)
                ours, theirs, ratio, spread = harness.interleave(new.run, old.run, args.seconds)
                report.add(f"{name} {label} t={threads}", ours * 1e3, "ms", theirs * 1e3, ratio, aim=AIM,
                           spread_percent=spread)
                new.close()
                old.close()


def compare_full_load(report, label, model, policy, lengths, vocabulary, builds, folder, args):
    with contextlib.ExitStack() as stack:
        sides = {}
        for name, build in zip(("new", "old"), builds):
            side = load.in_process(name, model, policy, 0, lengths, folder, vocabulary, build)
            stack.callback(side.close)
            side.ask(f"closed {FULL} 0.3")
            sides[name] = side
        results = harness.in_turns(args.rounds, **{
            name: lambda s=side: s.ask(f"closed {FULL} {args.seconds / 2}")["tokens_per_s"]
            for name, side in sides.items()})
        report.add(label, statistics.median(results["new"]), "tok/s", statistics.median(results["old"]),
                   harness.median_ratio(results["new"], results["old"]), aim=AIM,
                   spread_percent=harness.spread(results["new"]))
        rate = SHARE * sides["old"].ask(f"closed {FULL} {args.seconds / 2}")["requests_per_s"]
        seconds = min(max(args.seconds / 2, FEWEST / rate), 10)
        opened = [f"open {rate:.2f} {seconds:.2f} {seed}" for seed in range(args.rounds)]
        runs = harness.in_turns(args.rounds, **{
            name: lambda s=side, seeds=iter(opened): s.ask(next(seeds)) for name, side in sides.items()})
        for percentile in ("p50_ms", "p99_ms"):
            new, old = ([run[percentile] for run in runs[name]] for name in ("new", "old"))
            report.add(f"  at {SHARE:.0%} of it, {percentile[:3]}", statistics.median(new), "ms", statistics.median(old),
                       harness.median_ratio(old, new), aim=AIM, spread_percent=harness.spread(new))


def compare_http(report, builds, folder, args):
    model = folder / "identity.onnx"
    builder.save(recurrent.identity(), model)
    scripts = server.requests_for(folder)
    with contextlib.ExitStack() as stack:
        ports = []
        for build in builds:
            ports.append(harness.free_port())
            process = subprocess.Popen([build / "bin" / "chairlift", "serve", model, "--http-port", str(ports[-1]),
                                        "--metrics-port", "-1", "--log-level", "warning"])
            stack.callback(process.wait, timeout=30)
            stack.callback(process.terminate)
            harness.wait_until_ready(ports[-1])
        for name, script in scripts.items():
            for connections in (1, server.CONNECTIONS):
                rates = harness.in_turns(args.rounds, **{
                    side: lambda port=port: server.wrk(port, "/v2/models/identity/infer", connections, 2, script)[0]
                    for side, port in zip(("new", "old"), ports)})
                report.add(f"{name}, {connections} connections", statistics.median(rates["new"]), "req/s",
                           statistics.median(rates["old"]), harness.median_ratio(rates["new"], rates["old"]), aim=AIM,
                           spread_percent=harness.spread(rates["new"]))


def main():
    args = harness.arguments(
        "before", other=dict(type=pathlib.Path, required=True, help="build folder of the earlier version"),
        seconds=dict(type=float, default=4.0, help="of a row, both sides"), rounds=dict(type=int, default=5),
        threads=dict(type=int, nargs="*", default=[1, 2]),
        parts=dict(nargs="*", default=["runtime", "cellular", "tree", "encoders", "http"]))
    subprocess.run([harness.ROOT / "tools" / "install_packages.sh", "wrk"], check=True)
    harness.build_programs("chairlift", "model_worker", "sequence_load")
    builds = (harness.BUILD, args.other.resolve())
    report = harness.Report("before", args.output, args.threads)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        if "http" in args.parts:
            compare_http(report, builds, folder, args)
        if "cellular" in args.parts:
            for hidden in (64, 256, 1024):
                model = folder / f"lstm{hidden}.onnx"
                onnx.save(recurrent.lstm_encoder(hidden, cellular.VOCABULARY), model)
                compare_full_load(report, f"LSTM h={hidden}, WMT", model, "cellular",
                                  cellular.draw_lengths("WMT", 8192, 1), cellular.VOCABULARY, builds, folder, args)
        if "tree" in args.parts:
            every = tree.TREES.read_text().split()
            trees = every[::max(1, len(every) // tree.COUNT)][:tree.COUNT]
            for hidden in (256, 1024):
                cells = folder / f"tree{hidden}"
                cells.mkdir()
                compare_full_load(report, f"TreeLSTM h={hidden}", tree.write_cells(hidden, cells), "cellular", trees,
                                  tree.VOCABULARY, builds, folder, args)
        if "encoders" in args.parts:
            for name in encoders.SHAPES:
                model = encoders.Model(name, folder)
                for lengths in ("RTE", "CoLA", "5-500"):
                    # The name of `packed` that builds of 0.1 know too.
                    compare_full_load(report, f"{name}, {lengths}", model.path, "tokens",
                                      encoders.draw_lengths(lengths, 2000), encoders.VOCABULARY, builds, folder, args)
        if "runtime" in args.parts:
            compare_runtime(report, builds, folder, args)
    report.save()


if __name__ == "__main__":
    main()

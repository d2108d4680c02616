#!/usr/bin/env python3
"""Compares products in bfloat16 (`precision: bfloat16`) with float32: an encoder in process on both cores, and kernels.

`batch of 32` sends 32 requests at once and measures the seconds until all are answered. `full load` measures the rate
with 64 requests in flight. Ours in float32 and peers take turns with it; OpenVINO runs with its default precision,
which is bfloat16 on such processors. The kernels run on one thread; their bound is the measured rate of the tiles.
"""

import pathlib
import statistics
import tempfile

import encoder_peers
import encoders
import harness
import kernels
import load

CLIENTS = 64
AIM_OURS, AIM_PEERS = 3.5, {"openvino": 1.7}
LEAST_ROWS, AIM_SHARE = 64, 0.45
FLAGS = ("avx512_bf16", "avx512_fp16", "avx512_vnni", "avx_vnni", "amx_bf16", "amx_int8")
PARTS = ("kernels", "batch", "full")


def instruction_sets():
    words = pathlib.Path("/proc/cpuinfo").read_text().split()
    return [flag for flag in FLAGS if flag in words]


def ours(model, precision, lengths, folder):
    return load.Load(precision, [model.path, "tokens", 0, load.WORKERS], lengths, folder, encoders.VOCABULARY,
                     device=("cpu", precision))


def compare(report, row, unit, runs, better, peers):
    """`better(side, bfloat16's)`: ratios that are above 1 where bfloat16 is the better one."""
    mine = runs["bfloat16"]
    for side, times in runs.items():
        if side == "bfloat16":
            continue
        aim = AIM_OURS if side == "float32" else AIM_PEERS.get(side)
        report.add(f"{row}: {peers.get(side, 'our ' + side)}", statistics.median(mine), unit, statistics.median(times),
                   better(times, mine), aim=aim, spread_percent=harness.spread(mine))


def compare_encoder(report, model, ways, args, folder):
    lengths = encoders.draw_lengths("RTE", 32, seed=8)
    requests = encoders.requests_of(lengths)
    best = {peer: encoder_peers.best_of(of_peer, requests) for peer, of_peer in ways.items()}
    peers = {peer: way.name for peer, way in best.items()}
    if "batch" in args.parts:
        sides = {precision: ours(model, precision, lengths, folder) for precision in ("bfloat16", "float32")}
        calls = {precision: lambda s=side: 1e3 * s.batch(32, 1)[0] for precision, side in sides.items()}
        calls |= {peer: lambda w=way: 1e3 * w.seconds(requests) for peer, way in best.items()}
        for call in calls.values():
            call()
        compare(report, f"{model.name} RTE, batch of 32", "ms", harness.in_turns(args.rounds, **calls),
                harness.median_ratio, peers)
        for side in sides.values():
            side.close()
    for name in ("RTE", "CoLA") if "full" in args.parts else ():
        many = encoders.draw_lengths(name, 256)
        requests = encoders.requests_of(many)
        sides = {precision: ours(model, precision, many, folder) for precision in ("bfloat16", "float32")}
        tokens = sum(many)
        calls = {precision: lambda s=side: s.ask(f"closed {CLIENTS} {args.seconds}")["tokens_per_s"]
                 for precision, side in sides.items()}
        calls |= {peer: lambda w=way: tokens / w.seconds(requests) for peer, way in best.items()}
        compare(report, f"{model.name} {name}, full load", "tok/s", harness.in_turns(args.rounds, **calls),
                lambda theirs, mine: harness.median_ratio(mine, theirs), peers)
        for side in sides.values():
            side.close()


def compare_kernels(report, seconds, rounds):
    if "amx_bf16" not in report.head["instruction_sets"]:
        report.refuse("products in bfloat16", "this machine has no AMX")
        return
    rows = {}
    for row in kernels.run_kernels("^product/bfloat16 ", seconds, rounds):
        if row["run_type"] == "iteration":
            rows.setdefault(row["run_name"], []).append(row)
    for name, runs in rows.items():
        shape = name.removeprefix("product/bfloat16 ").split(",")[0]
        shares = [run["bound_us"] / run["cpu_time"] for run in runs]
        few = int(shape.split("x")[0]) < LEAST_ROWS
        report.add(f"product {shape}", statistics.median(run["cpu_time"] for run in runs), "µs",
                   ratio=statistics.median(shares), bound_percent=100 * statistics.median(shares),
                   aim=None if few else AIM_SHARE, spread_percent=harness.spread(shares))


def main():
    args = harness.arguments(
        "precision", quick=dict(action="store_true", help="MiniLM alone, short rounds"),
        rounds=dict(type=int, default=9), seconds=dict(type=float, default=3.0, help="of a load, each round"),
        parts=dict(nargs="*", default=PARTS, choices=PARTS),
        peers=dict(nargs="*", default=["onnxruntime", "openvino"]))
    if args.quick:
        args.rounds, args.seconds = 3, 1.0
    harness.build_programs("kernels", "sequence_load")
    report = harness.Report("precision", args.output, [1, load.WORKERS])
    report.head["instruction_sets"] = instruction_sets()
    print(f"  instruction sets: {', '.join(report.head['instruction_sets']) or 'none for narrow types'}")
    if "kernels" in args.parts:
        compare_kernels(report, 0.005 if args.quick else 0.05, args.rounds)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for name in encoders.SHAPES if set(args.parts) - {"kernels"} else ():
            if args.quick and name != "minilm_l6":
                continue
            model = encoders.Model(name, folder)
            ways = model.ways(args.peers, openvino_precision=None)
            compare_encoder(report, model, ways, args, folder)
            for way in (w for of_peer in ways.values() for w in of_peer):
                way.close()
    report.save()


if __name__ == "__main__":
    main()

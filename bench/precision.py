#!/usr/bin/env python3
"""Compares narrow products with float32: an encoder in process on both cores, and kernels.

The encoder runs with `precision: bfloat16`, with `precision: int8`, and as onnxruntime.quantization.quantize_dynamic
writes it (`dynamic int8`). `batch of 32` sends 32 requests at once and measures the seconds until all are answered.
`full load` measures the rate with 64 requests in flight. Ours in float32 and peers take turns with it. OpenVINO runs
with its default precision, which is bfloat16 on such processors; ONNX Runtime runs float32 and the dynamic int8 file.
`cosine` compares what the encoder answers with its float32. The kernels run on one thread; their bound is the measured
rate of the tiles. A peer that is not installed is left out.
"""

import importlib.util
import pathlib
import statistics
import tempfile

import numpy as np

import encoder_peers
import encoders
import harness
import kernels
import load

CLIENTS = 64
# What each side should be, over ours in float32 and over peers.
AIMS = {"bfloat16": {"float32": 3.5, "openvino": 1.7}, "int8": {"float32": 4.0},
        "dynamic int8": {"float32": 3.0, "onnxruntime int8": 3.0}}
AIM_COSINE = {"bfloat16": 0.9999, "int8": 0.995}
LEAST_ROWS, AIM_SHARE = 64, 0.45
FLAGS = ("avx512_bf16", "avx512_fp16", "avx512_vnni", "avx_vnni", "amx_bf16", "amx_int8")
PARTS = ("kernels", "cosine", "batch", "full")


def instruction_sets():
    words = pathlib.Path("/proc/cpuinfo").read_text().split()
    return [flag for flag in FLAGS if flag in words]


class Encoder:
    """The model, its dynamic int8 file, and the peers' ways to run both."""

    def __init__(self, name, folder, peers):
        from onnxruntime.quantization import QuantType, quantize_dynamic

        self.model, self.folder, self.name = encoders.Model(name, folder), folder, name
        self.dynamic = folder / f"{name}-int8.onnx"
        quantize_dynamic(str(self.model.path), str(self.dynamic), weight_type=QuantType.QInt8)
        self.ways = self.model.ways(peers, openvino_precision=None)
        if "onnxruntime" in peers:
            self.ways["onnxruntime int8"] = encoder_peers.onnxruntime_ways(self.dynamic)

    def side(self, kind):
        """The file and the precision of one of ours."""
        return (self.dynamic, "float32") if kind == "dynamic int8" else (self.model.path, kind)

    def load(self, kind, lengths):
        path, precision = self.side(kind)
        return load.Load(kind, [path, "", 0, load.WORKERS], lengths, self.folder, encoders.VOCABULARY,
                         device=("cpu", precision))

    def close(self):
        for way in (w for of_peer in self.ways.values() for w in of_peer):
            way.close()


def compare(report, row, unit, runs, better, peers):
    """`better(side, ours)`: ratios that are above 1 where ours is the better one."""
    for kind, aims in AIMS.items():
        mine = runs[kind]
        for side, times in runs.items():
            if side in AIMS or (side.endswith("int8") and kind != "dynamic int8"):
                continue
            report.add(f"{row}, {kind}: {peers.get(side, 'our ' + side)}", statistics.median(mine), unit,
                       statistics.median(times), better(times, mine), aim=aims.get(side),
                       spread_percent=harness.spread(mine))


def compare_answers(report, encoder):
    """The cosines of answers to a few requests with those in float32."""
    import chairlift

    requests = encoders.requests_of(encoders.draw_lengths("RTE", 8, seed=3))
    inputs = [encoder_peers.model_inputs([request]) for request in requests]

    def answers(kind):
        path, precision = encoder.side(kind)
        with chairlift.load(str(path), precision=precision) as model:
            return [np.asarray(model(one)["last_hidden_state"], np.float64).ravel() for one in inputs]

    exact = answers("float32")
    for kind in AIMS:
        cosines = [float(a @ b / np.linalg.norm(a) / np.linalg.norm(b)) for a, b in zip(answers(kind), exact)]
        report.add(f"{encoder.name} {kind}, least cosine", min(cosines), "", ratio=min(cosines),
                   aim=AIM_COSINE.get(kind))


def compare_encoder(report, encoder, args):
    name = encoder.name
    ours = ("float32", *AIMS)
    lengths = encoders.draw_lengths("RTE", 32, seed=8)
    requests = encoders.requests_of(lengths)
    best = {peer: encoder_peers.best_of(of_peer, requests) for peer, of_peer in encoder.ways.items()}
    peers = {peer: way.name + (" (int8)" if peer.endswith("int8") else "") for peer, way in best.items()}
    if "cosine" in args.parts:
        compare_answers(report, encoder)
    if "batch" in args.parts:
        sides = {kind: encoder.load(kind, lengths) for kind in ours}
        calls = {kind: lambda s=side: 1e3 * s.batch(32, 1)[0] for kind, side in sides.items()}
        calls |= {peer: lambda w=way: 1e3 * w.seconds(requests) for peer, way in best.items()}
        for call in calls.values():
            call()
        compare(report, f"{name} RTE, batch of 32", "ms", harness.in_turns(args.rounds, **calls),
                harness.median_ratio, peers)
        for side in sides.values():
            side.close()
    for lengths_of in ("RTE", "CoLA") if "full" in args.parts else ():
        many = encoders.draw_lengths(lengths_of, 256)
        requests = encoders.requests_of(many)
        sides = {kind: encoder.load(kind, many) for kind in ours}
        tokens = sum(many)
        calls = {kind: lambda s=side: s.ask(f"closed {CLIENTS} {args.seconds}")["tokens_per_s"]
                 for kind, side in sides.items()}
        calls |= {peer: lambda w=way: tokens / w.seconds(requests) for peer, way in best.items()}
        compare(report, f"{name} {lengths_of}, full load", "tok/s", harness.in_turns(args.rounds, **calls),
                lambda theirs, mine: harness.median_ratio(mine, theirs), peers)
        for side in sides.values():
            side.close()


def compare_kernels(report, seconds, rounds):
    if "amx_bf16" not in report.head["instruction_sets"]:
        report.refuse("products in tiles", "this machine has no AMX")
        return
    rows = {}
    for row in kernels.run_kernels("^product/(bfloat16|int8) ", seconds, rounds):
        if row["run_type"] == "iteration":
            rows.setdefault(row["run_name"], []).append(row)
    for name, runs in rows.items():
        kind, shape = name.removeprefix("product/").split(",")[0].split(" ", 1)
        shares = [run["bound_us"] / run["cpu_time"] for run in runs]
        few = int(shape.split("x")[0]) < LEAST_ROWS
        report.add(f"{kind} product {shape}", statistics.median(run["cpu_time"] for run in runs), "µs",
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
    peers = [peer for peer in args.peers if importlib.util.find_spec(peer)]
    for peer in set(args.peers) - set(peers):
        report.refuse(peer, "it is not installed; `make bench BENCH=precision` installs it")
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for name in encoders.SHAPES if set(args.parts) - {"kernels"} else ():
            if args.quick and name != "minilm_l6":
                continue
            encoder = Encoder(name, folder, peers)
            compare_encoder(report, encoder, args)
            encoder.close()
    report.save()


if __name__ == "__main__":
    main()

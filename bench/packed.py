#!/usr/bin/env python3
"""Compares packed tokens with padding on encoders with requests of varying length, in process on both cores.

`batch of 32` sends 32 requests at once and measures the seconds until all are answered. `full load` measures the peak
rate: ours with 64 requests in flight (policies on the same kernels: 64 at once), a peer with all requests in advance.
Each peer runs in the way that was fastest before the first round. For ONNX Runtime, sorted buckets of 8 and padded
batches are shown too. `bound` is the time of the multiply-adds of the requests' own tokens at the measured peak.
"""

import pathlib
import statistics
import tempfile

import encoder_peers
import encoders
import harness
import load

CLIENTS = 64
AIMS = {  # of a batch of 32 with RTE's lengths
    "best": 1.4,
    "buckets": 2.4,
    "padded": {"minilm_l6": 7.0, "bert_base": 6.0},
    "other": 1.2,
}
PEER_TOKENS = {"minilm_l6": 8000, "bert_base": 3000}  # that a peer is timed on at once, at full load
AIM_CONSTANT = 0.95
AIM_SHORT = 1.5
OWN = {"length_dp": 32, "naive": 32, "none": 1}  # policies on the same kernels: requests in a batch


class Ours:
    def __init__(self, model, lengths, policy, folder, most=0):
        self.load = load.in_process(policy, model.path, policy, most, lengths, folder, encoders.VOCABULARY)

    def seconds(self, count):
        return self.load.batch(count, 1)[0]

    def full(self, seconds):
        return self.load.ask(f"closed {CLIENTS} {seconds}")

    def close(self):
        self.load.close()


def compare_batch(report, model, ways, lengths, folder, rounds):
    """A batch of 32."""
    requests = encoders.requests_of(lengths)
    sides = {"ours": Ours(model, lengths, "packed", folder)}
    own = {policy: Ours(model, lengths, policy, folder, most) for policy, most in OWN.items()}
    best = {peer: encoder_peers.best_of(of_peer, requests) for peer, of_peer in ways.items()}
    named = {way.name: way for of_peer in ways.values() for way in of_peer}
    calls = {"ours": lambda: sides["ours"].seconds(32)}
    calls |= {policy: lambda o=o: o.seconds(32) for policy, o in own.items()}
    calls |= {peer: lambda w=w: w.seconds(requests) for peer, w in best.items()}
    calls |= {name: lambda w=named[name]: w.seconds(requests)
              for name in ("ort, padded batches of 32", "ort, sorted buckets of 8")}
    calls["ours"]()
    times = harness.in_turns(rounds, **calls)
    ours = times["ours"]
    bound = model.operations_of(lengths) / (report.head["peak"][str(load.WORKERS)]["gflops"] * 1e9)

    def row(label, side, aim=None):
        report.add(f"{model.name} batch of 32: {label}", statistics.median(ours) * 1e3, "ms",
                   statistics.median(times[side]) * 1e3, harness.median_ratio(times[side], ours),
                   100 * bound / statistics.median(ours), aim, harness.spread(ours))

    for peer, way in best.items():
        row(f"best {way.name}", peer, AIMS["best"] if peer == "onnxruntime" else AIMS["other"])
    row("ort, sorted buckets of 8", "ort, sorted buckets of 8", AIMS["buckets"])
    row("ort, padded batches of 32", "ort, padded batches of 32", AIMS["padded"][model.name])
    for policy in own:
        row(f"our {policy}", policy)
        own[policy].close()
    sides["ours"].close()


def compare_full_load(report, model, ways, name, folder, rounds, seconds, own=()):
    """Requests a second, ours against the best way of each peer, which is looked for on a part of them, and against
    the policies `own` on the same kernels."""
    lengths = encoders.draw_lengths(name, 2000)
    count = max(32, int(PEER_TOKENS[model.name] * len(lengths) / sum(lengths)))
    lengths = lengths[:count]
    requests = encoders.requests_of(lengths)
    ours = Ours(model, lengths, "packed", folder)
    best = {peer: encoder_peers.best_of(of_peer, requests[:count // 3]) for peer, of_peer in ways.items()}
    calls = {"ours": lambda: ours.full(seconds)}
    calls |= {peer: lambda w=w: count / w.seconds(requests) for peer, w in best.items()}
    others = {policy: Ours(model, lengths, policy, folder, OWN[policy]) for policy in own}
    # All at once: one padded batch may take longer than a round.
    calls |= {policy: lambda o=o: CLIENTS / o.seconds(CLIENTS) for policy, o in others.items()}
    results = harness.in_turns(rounds, **calls)
    mine = [result["requests_per_s"] for result in results["ours"]]
    work = model.operations_of(lengths) / count
    machine = report.head["peak"][str(load.WORKERS)]["gflops"] * 1e9
    sides = {peer: way.name for peer, way in best.items()} | {policy: f"our {policy}" for policy in own}
    for side, label in sides.items():
        aim = AIM_SHORT if (name, side) == ("CoLA", "onnxruntime") else None
        report.add(f"{model.name} {name} full load: {label}", statistics.median(mine), "req/s",
                   statistics.median(results[side]), harness.median_ratio(mine, results[side]),
                   100 * statistics.median(mine) * work / machine, aim, harness.spread(mine))
    for process in (ours, *others.values()):
        process.close()


def compare_fixed(report, model, folder, rounds, seconds):
    """RTE's lengths against a fixed length, and how near to the bound that is."""
    lengths = encoders.draw_lengths("RTE", 512)
    sides = {"varying": Ours(model, lengths, "packed", folder), "fixed": Ours(model, [128], "packed", folder)}
    results = harness.in_turns(rounds, **{n: lambda s=s: s.full(seconds) for n, s in sides.items()})
    tokens = {n: [r["tokens_per_s"] for r in of_side] for n, of_side in results.items()}
    machine = report.head["peak"][str(load.WORKERS)]["gflops"] * 1e9
    work = model.operations_of(lengths) / sum(lengths)
    percent = 100 * statistics.median(tokens["varying"]) * work / machine
    report.add(f"{model.name} RTE / fixed 128", statistics.median(tokens["varying"]), "tok/s",
               statistics.median(tokens["fixed"]), harness.median_ratio(tokens["varying"], tokens["fixed"]),
               percent, AIM_CONSTANT, harness.spread(tokens["varying"]))
    report.add(f"{model.name} RTE, % of the FLOP bound", percent, "%", 100.0, percent / 100,
               aim=0.8 if model.name == "bert_base" else None)
    for side in sides.values():
        side.close()


PARTS = ("batch", "fixed", "full")


def main():
    args = harness.arguments(
        "packed", quick=dict(action="store_true", help="MiniLM alone, short rounds"),
        rounds=dict(type=int, default=3), seconds=dict(type=float, default=3.0, help="of a load, each round"),
        only=dict(default="", help="models whose name holds this"),
        parts=dict(nargs="*", default=PARTS, choices=PARTS, help="a batch of 32, RTE beside a fixed length, full load"),
        peers=dict(nargs="*", default=["onnxruntime", "openvino", "ctranslate2"]))
    if args.quick:
        args.rounds, args.seconds, args.only = 3, 2.0, args.only or "minilm"
    harness.build_programs("peak", "sequence_load")
    report = harness.Report("packed", args.output, [load.WORKERS])
    report.head["peak"] = harness.measure_peak(load.WORKERS)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for name in encoders.SHAPES:
            if args.only not in name:
                continue
            small = name == "minilm_l6"
            model = encoders.Model(name, folder)
            ways = model.ways(args.peers)
            lengths = encoders.draw_lengths("RTE", 32, seed=8)
            print(f"  RTE, 32 requests: {sum(lengths)} tokens, {32 * max(lengths)} padded to the longest")
            if "batch" in args.parts:
                compare_batch(report, model, ways, lengths, folder, args.rounds)
            if "fixed" in args.parts:
                compare_fixed(report, model, folder, args.rounds, args.seconds if small else 3 * args.seconds)
            for case in ("CoLA", "MRPC", "2-100", "5-500") if "full" in args.parts else ():
                # The lengths for which the document tells how the three compare.
                own = OWN if small and case in ("2-100", "5-500") else ()
                compare_full_load(report, model, ways, case, folder, args.rounds,
                                  args.seconds if small else 2 * args.seconds, own)
            for way in (w for of_peer in ways.values() for w in of_peer):
                way.close()
    report.save()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Compares policies on models in stages under load: `staged` and `cellular` (docs/concepts/stages.md) with baselines.

The baselines `none` and `window` are `zero` and `delay`: DVABatch's ZeroBatch and DelayBatch with batches of up to 64.
In `zero`, the oldest request does not wait for others. In `delay`, it waits for the time that gives the highest peak
(`chairlift bench --tune-delay`).

BERT's baselines pad their batches: all waiting requests together (`naive`), or cut by length after a delay
(`length_dp`), which is better than the document's. Ours runs packed tokens (`packed`). It can batch requests of
different lengths without a stage boundary. `staged` is also measured, packed and cut between layers.

A side's peak is the highest rate of Poisson arrivals with a p99 within the objective. Loads are shares of the better
peak of `zero` and `delay`. Each side gets the same arrivals.

* `steps` raises the rate in steps to 1.5 times that peak.
* `gaps` uses the arrivals of a real trace at the medium rate.
* `companions` counts the images per task in each stage of VGG-19 under `cellular`.
* `early_exit` compares ResNet-50 that has an exit after its first group with the model without exits. Half of the
  images take the exit.

If the load generator cannot keep up twice, the run counts as not measured. With --quick the models are small, loads are
short, and the delay is not tuned. Otherwise it takes long, because a low load of a large model has few requests a
second. It can run in pieces: `--only` names models and `--parts` parts. `--more` adds to the results in --output from
earlier pieces of the same commit. The aims are printed over all results.
"""

import dataclasses
import json
import pathlib
import statistics
import subprocess
import tempfile

import numpy as np

import harness
import load
from models import bert, builder, vision
from runtime import check, session

OBJECTIVE_MS = 200
REQUESTS, QUICK_REQUESTS = 120, 60  # at least, in a load
MAX_BATCH = 64  # of the document's baselines
UNTUNED_DELAY_US = 2000  # with --quick: what tuning mostly finds
LENGTHS = harness.ROOT / "bench" / "data" / "lengths" / "glue_rte_train_bert.json"
GAPS = harness.ROOT / "bench" / "data" / "arrivals" / "azure_llm_2023_conv_gaps_ms.txt"
SHARES = {"low": 1 / 4, "medium": 3 / 5, "high": 9 / 10}
STEPS = [0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5]
PARTS = ("single", "peak", "load", "gaps", "steps", "companions")
QUICK_PARTS = ("single", "peak", "load", "companions")
DOCUMENTS = ("zero", "delay")  # the document's baselines
BASELINES = (*DOCUMENTS, "none")


@dataclasses.dataclass(frozen=True)
class Model:
    build: object  # the model under load
    single: object = None  # at its published shape, for one image alone; None: the same
    shape: tuple = ()  # of one image at `single`; empty: not compared with ONNX Runtime
    text: bool = False
    diverse: bool = False  # operators or lengths differ
    exits: bool = False  # compared with itself without exits, only
    companions: bool = False


MODELS = {
    "resnet152": Model(vision.resnet152, shape=(3, 224, 224)),
    "vgg19": Model(vision.vgg19, shape=(3, 224, 224), diverse=True, companions=True),
    # Widths as published; smaller images, of which several fit into the objective.
    "unet": Model(lambda: vision.unet(size=128, base=64), vision.unet_2015, (1, 572, 572), diverse=True),
    "linknet": Model(vision.linknet, lambda: vision.linknet(height=360 // 32 * 32, width=640), (3, 352, 640), diverse=True),
    "bert_base": Model(lambda: bert.bert(bert.BERT_BASE), text=True, diverse=True),
    "bert_large": Model(lambda: bert.bert(bert.BERT_LARGE), text=True, diverse=True),
    "early_exit": Model(vision.early_exit, shape=(3, 224, 224), exits=True),
}
QUICK = {  # the same in small: a look in minutes
    "resnet152": Model(lambda: vision.resnet152(size=64), shape=(3, 64, 64)),
    "vgg19": Model(lambda: vision.vgg19(size=64), shape=(3, 64, 64), diverse=True, companions=True),
    "unet": Model(lambda: vision.unet(size=64, base=32), shape=(3, 64, 64), diverse=True),
    "linknet": Model(lambda: vision.linknet(height=128, width=128), shape=(3, 128, 128), diverse=True),
    "bert_base": Model(lambda: bert.bert(bert.MINILM_L6), text=True, diverse=True),
    "early_exit": Model(lambda: vision.early_exit(size=96), shape=(3, 96, 96), exits=True),
}

# The published cuts: (document's baseline, load) → mean, p99.
CUTS = {
    ("zero", "low"): (0.16, 0.17), ("zero", "medium"): (0.39, 0.27), ("zero", "high"): (0.58, 0.54),
    ("delay", "low"): (0.35, 0.45), ("delay", "medium"): (0.47, 0.45), ("delay", "high"): (0.49, 0.29),
}


class Loads:
    """One model, and the measurements of `chairlift bench` for it."""

    def __init__(self, name, model, path, seconds, requests):
        self.name, self.model, self.path, self.seconds, self.requests = name, model, path, seconds, requests
        self.delay_us = 0

    @property
    def ours(self):
        return ("packed",) if self.model.text else ("staged", "cellular")

    @property
    def sides(self):
        return (*BASELINES, *self.ours, *(["staged"] if self.model.text else []))

    def same(self, side):
        """Another side that is served just as this one."""
        return "zero" if side == "delay" and not self.model.text and not self.delay_us else None

    def flags(self, side):
        zero, delay = ("naive", "length_dp") if self.model.text else ("window", "window")
        return {
            "zero": ["--policy", zero, "--max-batch-size", MAX_BATCH],
            "delay": ["--policy", delay, "--max-batch-size", MAX_BATCH, "--queue-delay-us", self.delay_us],
            None: [],  # as the model's settings say
        }.get(side, ["--policy", side])

    def run(self, side, *more):
        with tempfile.NamedTemporaryFile(suffix=".json") as out:
            command = [harness.BUILD / "bin" / "chairlift", "bench", self.path, "--workers", load.WORKERS, "--json", out.name,
                       "--objective-ms", OBJECTIVE_MS, "--warmup-seconds", 1, *self.flags(side), *more]
            if self.model.text:
                command += ["--length-histogram", LENGTHS]
            done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
            if done.returncode != 0:
                raise SystemExit(f"{' '.join(str(c) for c in command)}: {done.stderr or done.stdout}")
            return json.loads(pathlib.Path(out.name).read_text())

    def tune_delay(self):
        found = self.run("zero" if not self.model.text else "delay", "--tune-delay", "--seconds", self.seconds, "--requests", self.requests)
        self.delay_us = found["queue_delay_us"]
        return found

    def peak(self, side):
        return self.run(side, "--peak", "--seconds", self.seconds, "--requests", self.requests)["peak"]

    def at(self, side, rates, *more):
        """One load after the other, of one process; None: the load generator could not keep up, twice."""
        for _ in range(2):
            figures = self.run(side, "--rate", ",".join(str(rate) for rate in rates), "--seconds", self.seconds,
                               "--requests", self.requests, *more)
            loads = figures.get("loads", [figures])
            late = [any("load generator" in why for why in load["invalid"]) for load in loads]
            if not any(late):
                break
        return [None if was_late else figures_of(load) for load, was_late in zip(loads, late)]

    def rows_by_stage(self, side, rate):
        """The mean number of rows in a task, by stage, in the order of the stages."""
        with tempfile.NamedTemporaryFile(suffix=".json") as out:
            self.run(side, "--rate", rate, "--seconds", self.seconds, "--requests", 2 * self.requests, "--trace", out.name)
            rows = {}
            for event in json.loads(pathlib.Path(out.name).read_text())["traceEvents"]:
                if event["ph"] == "X":
                    rows.setdefault(event["name"], []).append(event["args"]["rows"])
        return {name: statistics.fmean(rows[name]) for name in sorted(rows, key=lambda name: (len(name), name))}


def figures_of(run):
    return {"mean": run["latency_ms"]["mean"], "p99": run["latency_ms"]["p99"], "achieved": run["achieved_rate"],
            "kept_up": not run["failures"] and run["achieved_rate"] >= 0.95 * run["scheduled_rate"]}


def medians(runs):
    """Medians of the rounds of a load; `kept_up` if most did."""
    return {key: statistics.median(run[key] for run in runs) for key in ("mean", "p99", "achieved")} | {
        "kept_up": 2 * sum(run["kept_up"] for run in runs) > len(runs)}


def measure_loads(report, loads, found, rates, rounds, what, *more):
    runs = {name: {side: [] for side in loads.sides} for name in rates}
    for r in range(rounds):
        for side in sorted((side for side in loads.sides if not loads.same(side)), reverse=r % 2 == 1):
            for name, figures in zip(rates, loads.at(side, rates.values(), "--seed", r + 1, *more)):
                runs[name][side].append(figures)
    for name, rate in rates.items():
        by_side = {side: runs[name][loads.same(side) or side] for side in loads.sides}
        if any(None in of for of in by_side.values()):
            report.refuse(f"{loads.name} {name}", "INVALID: the load generator could not keep up")
            continue
        found.setdefault(what, {})[name] = {"rate": rate, **{side: medians(of) for side, of in by_side.items()}}
        best = min(found[what][name][side]["mean"] for side in BASELINES)
        for side in loads.sides:
            mine = found[what][name][side]
            report.add(f"{loads.name} {name}, {rate:.3g}/s: {side}", mine["mean"], "ms", peer=best,
                       ratio=best / mine["mean"], spread_percent=harness.spread([run["mean"] for run in by_side[side]]),
                       p99_ms=mine["p99"], kept_up=mine["kept_up"], aim=1 / 1.02 if side in loads.ours else None)


def measure_peaks(report, loads, found, tune):
    found["peaks"] = {}
    if tune:
        found["tuned"] = loads.tune_delay()
        found["peaks"]["delay"] = found["tuned"]["peak"]
        if not loads.model.text:  # the first delay that was tried is 0
            found["peaks"]["zero"] = found["tuned"]["delays"][0]["peak"]
    else:
        loads.delay_us = UNTUNED_DELAY_US
        found["tuned"] = {"queue_delay_us": loads.delay_us}
    for side in loads.sides:
        if side not in found["peaks"]:
            found["peaks"][side] = loads.peak(side)
    best = max(found["peaks"][side] for side in BASELINES)
    for side in loads.sides:
        peak = found["peaks"][side]
        note = f" ({loads.delay_us / 1e3:g} ms)" if side == "delay" else ""
        report.add(f"{loads.name} peak: {side}{note}", peak, "req/s", peer=best, ratio=peak / best if best else None,
                   aim=1 / 1.02 if side in loads.ours else None)


def measure_single(report, loads, found, folder, seconds):
    """One image alone: against ONNX Runtime, and what staging adds."""
    model = loads.model
    build, path = model.single or model.build, loads.path
    if model.single:
        path = folder / f"{loads.name}_single.onnx"
        builder.save(build(), path)
    image = np.random.default_rng(2).standard_normal((1, *model.shape)).astype(np.float32)
    np.save(folder / "image.npy", image)
    files = {"image": folder / "image.npy"}
    peer = session(path, load.WORKERS)
    worker = harness.Worker(path, load.WORKERS, files)
    worker.dump(folder)
    check(dict(zip([o.name for o in peer.get_outputs()], peer.run(None, {"image": image}))), folder)
    label = f"{loads.name} {'x'.join(map(str, model.shape))} alone"
    ours, theirs, ratio, spread = harness.interleave(
        worker.run, lambda n: harness.timed(lambda: peer.run(None, {"image": image}), n), seconds)
    found["single"] = {"ours_ms": 1e3 * ours, "onnxruntime_ms": 1e3 * theirs, "ratio": ratio}
    report.add(f"{label}: vs ONNX Runtime", 1e3 * ours, "ms", 1e3 * theirs, ratio, aim=1.15, spread_percent=spread)
    del peer
    for policy in loads.ours:
        staged = harness.Worker(path, load.WORKERS, files, policy=policy)
        ours, whole, ratio, spread = harness.interleave(staged.run, worker.run, seconds)
        staged.close()
        found["single"][policy] = {"ms": 1e3 * ours, "whole_ms": 1e3 * whole, "ratio": 1 / ratio}
        report.add(f"{label}: {policy} vs whole", 1e3 * ours, "ms", 1e3 * whole, ratio, aim=1 / 1.01, spread_percent=spread)
    worker.close()


def measure_companions(report, loads, found, rate):
    found["companions"] = rows = loads.rows_by_stage("cellular", rate)
    for stage, mean in rows.items():
        report.add(f"{loads.name} {rate:.3g}/s: cellular, {stage}", mean, "rows a task")


EXITS = """policy: {policy}
exits:
  - {{output: exit_1, at_least: 0.75, instead: {{logits: exit_1}}}}
"""


def measure_exits(report, name, model, found, args, folder):
    """Half of the images are easy; at 60% of what the model does without exits, one image after the other."""
    images = np.random.default_rng(3).standard_normal((16, *model.shape)).astype(np.float32)
    images[np.random.default_rng(4).permutation(16)[:8]] *= 8  # of which the exit is sure (vision.early_exit)
    np.save(folder / "images.npy", images)
    sides = {}
    for policy in ("staged", "cellular"):
        for side, config in ((policy, f"policy: {policy}\n"), (f"{policy}, exits", EXITS.format(policy=policy))):
            path = sides[side] = folder / side.replace(", ", "_") / name
            (path / "1").mkdir(parents=True)
            builder.save(model.build(), path / "1" / "model.onnx")
            (path / "model.yaml").write_text(config)
    given = ["--input", f"image={folder / 'images.npy'}", "--rows-in-turn"]
    runs = {side: [] for side in sides}
    closed = Loads(name, model, sides["staged"], args.seconds, args.requests)
    alone = closed.run(None, "--rate", 1, "--seconds", max(args.seconds, 5), *given)["latency_ms"]["p50"]
    rate = 0.6 * 1e3 / alone
    for r in range(args.rounds):
        for side in sorted(runs, reverse=r % 2 == 1):
            loads = Loads(name, model, sides[side], args.seconds, args.requests)
            runs[side] += loads.at(None, [rate], "--seed", r + 1, *given)
    if any(None in of for of in runs.values()):
        report.refuse(f"{name} {rate:.3g}/s", "INVALID: the load generator could not keep up")
        return
    found["exits"] = {"rate": rate, **{side: medians(of) for side, of in runs.items()}}
    for policy in ("staged", "cellular"):
        with_exits, without = found["exits"][f"{policy}, exits"], found["exits"][policy]
        report.add(f"{name} {rate:.3g}/s, half easy: {policy} with exits vs without", with_exits["mean"], "ms", without["mean"],
                   without["mean"] / with_exits["mean"], aim=1 / 0.65, p99_ms=with_exits["p99"],
                   spread_percent=harness.spread([run["mean"] for run in runs[f"{policy}, exits"]]))


def measure(report, name, model, found, args, folder):
    if model.exits:
        if "load" in args.parts:
            measure_exits(report, name, model, found, args, folder)
        return
    path = folder / f"{name}.onnx"
    builder.save(model.build(), path)
    loads = Loads(name, model, path, args.seconds, args.requests)
    loads.delay_us = found.get("tuned", {}).get("queue_delay_us", 0)
    if "single" in args.parts and model.shape:
        measure_single(report, loads, found, folder, 2 * args.seconds)
    if "peak" in args.parts:
        measure_peaks(report, loads, found, tune=not args.quick)
    peak = max((found.get("peaks", {}).get(side, 0) for side in DOCUMENTS), default=0)
    if not peak:
        if set(args.parts) & {"load", "gaps", "steps", "companions"}:
            report.refuse(f"{name} under load", f"no peak within {OBJECTIVE_MS} ms is known; --parts peak finds it")
        return
    if "load" in args.parts:
        measure_loads(report, loads, found, {load: share * peak for load, share in SHARES.items()}, args.rounds, "loads")
    if "gaps" in args.parts:
        measure_loads(report, loads, found, {"real gaps": SHARES["medium"] * peak}, 1, "gaps", "--request-intervals", GAPS)
    if "steps" in args.parts:
        rates = [share * peak for share in STEPS]
        found["steps"] = {}
        for side in loads.sides:
            steps = [{"rate": rate, **figures} for rate, figures in zip(rates, loads.at(side, rates)) if figures]
            found["steps"][side] = steps
            within = [step["rate"] for step in steps if step["kept_up"] and step["p99"] <= OBJECTIVE_MS]
            report.add(f"{name} steps to {rates[-1]:.3g}/s: {side}", max(within, default=0), "req/s")
    if "companions" in args.parts and model.companions:
        measure_companions(report, loads, found, SHARES["high"] * peak)


def percent(share):
    return f"{-100 * share:+.0f}%"


class Aims:
    """The issue's table: each line with what was found, and whether that meets it."""

    def __init__(self, models, policy):
        self.models, self.policy, self.lines = models, policy, []

    def side(self, found_sides):
        return "packed" if "packed" in found_sides else self.policy

    def add(self, what, aim, value, text, met, of):
        self.lines.append({"what": what, "aim": aim, "value": value, "met": met, "models": of})
        print(f"  {what:62} {text:>8} {aim:>9}  {'met' if met else 'not met'}  ({', '.join(of)})")

    def mean_cut(self, what, baseline, level, key, aim):
        cuts, overloaded = {}, []
        for name, found in self.models.items():
            sides = found.get("loads", {}).get(level)
            if not sides:
                continue
            if not sides[baseline]["kept_up"]:  # how far it fell behind says how long the run was
                overloaded.append(f"{name}: {baseline} did not keep up")
                continue
            cuts[name] = 1 - sides[self.side(sides)][key] / sides[baseline][key]
        if cuts:
            cut = statistics.fmean(cuts.values())
            self.add(what, percent(aim), cut, percent(cut), cut >= aim,
                     [f"{n} {percent(c)}" for n, c in cuts.items()] + overloaded)

    def latencies(self):
        for key in ("mean", "p99"):
            for (baseline, level), aims in CUTS.items():
                self.mean_cut(f"{key} latency vs {baseline}, {level} load", baseline, level, key, aims[key == "p99"])

    def against_best(self):
        worst, diverse = {}, []
        for name, found in self.models.items():
            for level, sides in found.get("loads", {}).items():
                ratio = sides[self.side(sides)]["mean"] / min(sides[side]["mean"] for side in BASELINES)
                worst[f"{name} {level}"] = ratio
                if found["diverse"]:
                    diverse.append(ratio)
            peaks = found.get("peaks")
            if peaks and peaks[self.side(peaks)]:
                worst[f"{name} peak"] = max(peaks[side] for side in BASELINES) / peaks[self.side(peaks)]
        if worst:
            at = max(worst, key=worst.get)
            self.add("mean latency and peak vs the best baseline: worst", "<= 1.02", worst[at], f"{worst[at]:.2f}",
                     worst[at] <= 1.02, [at])
        if diverse:
            mean = statistics.fmean(diverse)
            self.add("mean latency vs the best baseline, diverse models", "<= 0.85", mean, f"{mean:.2f}", mean <= 0.85,
                     ["mean"])

    def peaks(self):
        for name, found in self.models.items():
            peaks = found.get("peaks")
            if not peaks:
                continue
            mine = peaks[self.side(peaks)]
            # The document's batches of sequences are padded to the longest.
            baselines = {"all that waits, padded": ("zero",), "cut by length": ("delay",)} if "packed" in peaks else {
                "the document's baselines": DOCUMENTS}
            for what, sides in baselines.items():
                best = max(peaks[side] for side in sides)
                aim = 1.47 if name == "bert_base" and sides == ("zero",) else 1.0
                if best:
                    self.add(f"{name}: peak vs {what}", f">= {aim}", mine / best, f"{mine / best:.2f}", mine / best >= aim,
                             [f"{mine:.3g}/s"])
            if name == "vgg19" and peaks["none"]:
                self.add(f"{name}: peak vs none", ">= 1.15", mine / peaks["none"], f"{mine / peaks['none']:.2f}",
                         mine / peaks["none"] >= 1.15, [f"{mine:.3g}/s"])

    def alone(self):
        for name, found in self.models.items():
            single = found.get("single")
            if single:
                ratio = single["ratio"]
                self.add(f"{name}: one image vs ONNX Runtime", ">= 1.15", ratio, f"{ratio:.2f}", ratio >= 1.15,
                         [f"{single['ours_ms']:.3g} ms"])
                added = single[self.policy]["ratio"] - 1
                self.add(f"{name}: added by staging, one query alone", "<= 1%", added, f"{100 * added:+.1f}%", added <= 0.01,
                         [f"{single[self.policy]['ms']:.3g} ms"])

    def exits(self):
        for name, found in self.models.items():
            if "exits" in found:
                ratio = found["exits"][f"{self.policy}, exits"]["mean"] / found["exits"][self.policy]["mean"]
                self.add(f"{name}: mean with 50% easy queries vs without exits", "<= 0.65", ratio, f"{ratio:.2f}", ratio <= 0.65,
                         [f"{found['exits']['rate']:.3g}/s"])


def kept_of(output, commit):
    """Returns the results of earlier pieces of this commit."""
    if not output.exists():
        return {}
    kept = json.loads(output.read_text())
    return kept.get("models", {}) if kept["commit"] == commit else {}


def main():
    args = harness.arguments(
        "staged", quick=dict(action="store_true", help="small variants, short loads"),
        only=dict(nargs="*", default=[], metavar="MODEL", help=f"of {', '.join(MODELS)}"),
        parts=dict(nargs="*", choices=PARTS, help=f"of all; with --quick: {', '.join(QUICK_PARTS)}"),
        seconds=dict(type=float, help="of each load, at least; 5, with --quick 1.2"),
        rounds=dict(type=int, help="of each load; 3, with --quick 1"),
        more=dict(action="store_true", help="add to what --output holds of this commit"))
    table = QUICK if args.quick else MODELS
    args.parts = args.parts or (QUICK_PARTS if args.quick else PARTS)
    args.requests = QUICK_REQUESTS if args.quick else REQUESTS
    args.seconds = args.seconds or (1.2 if args.quick else 5.0)
    args.rounds = args.rounds or (1 if args.quick else 3)
    if unknown := set(args.only) - set(table):
        raise SystemExit(f"no model {', '.join(sorted(unknown))}; there are {', '.join(table)}")
    harness.build_programs("model_worker", "chairlift")
    report = harness.Report("staged", args.output, [load.WORKERS])
    models = kept_of(args.output, report.head["commit"]) if args.more else {}
    if args.more and args.output.exists():
        report.rows = json.loads(args.output.read_text())["rows"] if models else []
    with tempfile.TemporaryDirectory() as temporary:
        for name in args.only or table:
            found = models.setdefault(name, {})
            found["diverse"] = table[name].diverse
            measure(report, name, table[name], found, args, pathlib.Path(temporary))
    report.head["models"] = models
    report.head["aims"] = {}
    for policy in ("staged", "cellular"):
        print(f"\naims, with {policy} (BERT: tokens){', small variants' if args.quick else ''}:")
        aims = Aims(models, policy)
        aims.latencies()
        aims.against_best()
        aims.peaks()
        aims.alone()
        aims.exits()
        report.head["aims"][policy] = aims.lines
    report.save()


if __name__ == "__main__":
    main()

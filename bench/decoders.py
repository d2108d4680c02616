#!/usr/bin/env python3
"""Compares generation with CTranslate2, loops of ONNX Runtime (greedy) and llama.cpp (only GPT-2).

Models are float32, on both cores, greedy (`turbo_decoder`: with beams). Answers have forced lengths. Each peer runs in
the way that was fastest before the first round.

`bound` is the longer of two times: the products' FLOPs at the measured peak, or the bytes read at the measured
bandwidth. The bytes are the weights, once per step, and the keys and values.
"""

import functools
import json
import pathlib
import random
import statistics
import subprocess
import tempfile

import numpy as np

import decoder_models
import harness

WORKERS = 2
PEERS = harness.ROOT / "build" / "decoder_peers" / "bin" / "python"
MODELS = harness.ROOT / "build" / "decoders"
LENGTHS = harness.ROOT / "bench" / "data" / "lengths" / "europarl_v7_en_fr_joint.json"
MOST_TOKENS = 100  # of a sentence
LIVE = 16
SENTENCES = 64  # under way at full load
AIMS = {"alone": 0.85, "gpt2 live": {"ctranslate2": 1.3, "llama.cpp": 1.3}, "translation": {"ctranslate2": 1.5, "ort": 3.0},
        "mean": 2.0, "p99": 1 / 0.6, "beside": 1 / 1.5, "drawn": 0.97, "in use": 0.96, "beams": {"ctranslate2": 1.3}}


def sentence_pairs(count, seed=1):
    """Lengths of a source and its translation."""
    joint = json.loads(LENGTHS.read_text())["joint"]
    pairs = [tuple(map(int, key.split(":"))) for key in joint]
    fit = [(pair, joint[f"{pair[0]}:{pair[1]}"]) for pair in pairs if min(pair) > 0 and max(pair) <= MOST_TOKENS]
    return random.Random(seed).choices([pair for pair, _ in fit], [n for _, n in fit], k=count)


def prompts(count, seed=1):
    chance = random.Random(seed)
    return [(chance.randint(32, 512), chance.randint(16, 128)) for _ in range(count)]


class Ours:
    """bench/generation_load on one model."""

    def __init__(self, shape, counts, folder):
        file = pathlib.Path(folder) / f"counts-{abs(hash(tuple(counts)))}.txt"
        file.write_text("".join(f"{prompt} {answer}\n" for prompt, answer in counts))
        self.process = subprocess.Popen([harness.BUILD / "bench" / "generation_load", MODELS / shape.name, str(WORKERS), file, str(shape.beams)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        if self.process.stdout.readline().strip() != "ready":
            raise SystemExit("generation_load did not start")

    def ask(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        figures = json.loads(self.process.stdout.readline())
        if figures["failed"]:
            raise SystemExit(f"{figures['failed']} requests failed")
        return figures

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)


class Peers:
    """bench/decoder_peers.py on one model; `kinds`: how the names of ways begin."""

    def __init__(self, shape, wanted):
        self.process = subprocess.Popen([PEERS, harness.ROOT / "bench" / "decoder_peers.py", shape.name, MODELS / shape.name, *wanted],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.ways = self.ask("ways")
        self.kinds = [kind for kind in wanted if any(way.startswith(kind) for way in self.ways)]
        self.check()

    def ask(self, what, **more):
        self.process.stdin.write(json.dumps({"ask": what, **more}) + "\n")
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("decoder_peers.py ended")
        return json.loads(line)

    def check(self):
        """Checks that all give the same answers, except where two tokens are equally likely."""
        prompts = [[5, 6, 7, 8], list(range(9, 16)), list(range(2, 30))]
        answers = {way: self.ask("check", way=way, prompts=prompts, tokens=10) for way in self.ways}
        first = next(iter(answers.values()))
        for way, answer in answers.items():
            if answer != first:
                raise SystemExit(f"{way} answers {answer}, others {first}: not a comparison")

    def best(self, counts, without=None):
        """{kind: the way that takes least, and its seconds}; of those whose names do not hold `without`."""
        ways = [way for way in self.ways if without is None or without not in way]
        seconds = {way: self.ask("run", way=way, counts=counts) for way in ways}
        found = {}
        for kind in self.kinds:
            way = min((way for way in ways if way.startswith(kind)), key=seconds.get)
            found[kind] = way, seconds[way]
        print("  " + "; ".join(f"{way} {seconds:.2f} s" for way, seconds in found.values()), flush=True)
        return found

    def run(self, way, counts):
        return self.ask("run", way=way, counts=counts)

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)


class Machine:
    def __init__(self, peak):
        self.flops, self.bytes = peak["gflops"] * 1e9, peak["memory_gbs"] * 1e9

    def alone(self, shape, past):
        """Seconds of a token behind `past` others."""
        return (4 * shape.step_weights + past * shape.token_bytes) / self.bytes

    def together(self, shape, counts, live):
        """Seconds a token of the answers to such requests, `live` of them under way."""
        tokens = sum(answer for _, answer in counts)
        body = shape.step_weights - shape.hidden * shape.vocabulary
        # The encoder of a source has as many layers, without attention over another.
        prompt = shape.layers * (4 * shape.hidden**2 + 2 * shape.hidden * shape.inner)
        flops = sum(2 * (n * prompt + shape.beams * answer * shape.step_weights - (0 if shape.source else body))
                    for n, answer in counts)
        # Every token of an answer reads the keys and values before it, on average those of half of it; beams share those of a source.
        cache = sum(answer * (n + shape.beams * answer / 2) for n, answer in counts) * shape.token_bytes
        return max(flops / tokens / self.flops, (4 * shape.step_weights / live + cache / tokens) / self.bytes)


def add_ratios(report, label, unit, mine, peers, ways, bound, aims):
    """`mine`, `peers`: rates of the rounds."""
    for kind, rates in peers.items():
        report.add(f"{label}: {kind}", statistics.median(mine), unit, statistics.median(rates), harness.median_ratio(mine, rates),
                   bound and 100 * bound * statistics.median(mine), aims.get(kind), harness.spread(mine), way=ways[kind][0])


def alone(report, machine, peers, folder, args):
    """GPT-2, one request."""
    shape = decoder_models.SHAPES["gpt2"]
    counts = [(32, 64)]
    ours = Ours(shape, counts, folder)
    ways = peers.best(counts)
    sides = {"ours": lambda: ours.ask("closed", 1, 0.2, args.seconds / 2, 1)["between_ms"]["p50"] * 1e-3}
    # The peers' times include the prompt: subtracts the time of an answer of one token.
    sides |= {kind: lambda way=way: (peers.run(way, counts) - peers.run(way, [(32, 1)])) / 63
              for kind, (way, _) in ways.items()}
    times = harness.in_turns(args.rounds, **sides)
    ours.close()
    rates = {side: [1 / seconds for seconds in of_side] for side, of_side in times.items()}
    mine = rates.pop("ours")
    bound = machine.alone(shape, 64)
    add_ratios(report, "gpt2 alone", "tok/s", mine, rates, ways, bound, {})
    report.add("gpt2 alone, % of the bound", 100 * bound * statistics.median(mine), "%", 100.0,
               bound * statistics.median(mine), aim=AIMS["alone"])


def live(report, machine, peers, folder, args, label, counts):
    """GPT-2, 16 requests under way."""
    shape = decoder_models.SHAPES["gpt2"]
    part = (counts * 4 * LIVE)[:(1 if args.quick else 4) * LIVE]
    tokens = sum(answer for _, answer in part)
    ours = Ours(shape, counts, folder)
    ways = peers.best([(max(prompt // 2, 1), max(answer // 2, 1)) for prompt, answer in part[:LIVE]], without="one by one, 2 threads")
    sides = {"ours": lambda: ours.ask("closed", LIVE, 3, 2 * args.seconds, 1)}
    sides |= {kind: lambda way=way: tokens / peers.run(way, part) for kind, (way, _) in ways.items()}
    rates = harness.in_turns(1 if args.quick else args.rounds, **sides)
    ours.close()
    runs = rates.pop("ours")
    mine = [run["output_tokens_per_s"] for run in runs]
    in_use = statistics.median(run["cache_in_use"] for run in runs)
    report.add(f"gpt2 {LIVE} live, {label}: cache in use that has tokens", 100 * in_use, "%", 100.0, in_use,
               aim=AIMS["in use"] if "512" in label else None)
    add_ratios(report, f"gpt2 {LIVE} live, {label}", "tok/s", mine, rates, ways, machine.together(shape, counts, LIVE),
               AIMS["gpt2 live"])


def translation(report, machine, name, peers, folder, args):
    """Sentences, as fast as they are taken; then at 60% of what CTranslate2 takes at most."""
    shape = decoder_models.SHAPES[name]
    counts = sentence_pairs(1000)
    part = counts[:(2 if args.quick else 4) * SENTENCES]
    tokens = sum(answer for _, answer in part)
    ours = Ours(shape, counts, folder)
    ways = peers.best(part[:SENTENCES // 2 if args.quick else SENTENCES])
    sides = {"ours": lambda: ours.ask("closed", SENTENCES, 1, args.seconds, 1)["output_tokens_per_s"]}
    sides |= {kind: lambda way=way: tokens / peers.run(way, part) for kind, (way, _) in ways.items()}
    rates = harness.in_turns(args.rounds, **sides)
    mine = rates.pop("ours")
    add_ratios(report, f"{name} full load", "tok/s", mine, rates, ways, machine.together(shape, counts, SENTENCES),
               AIMS["translation"])
    if "ctranslate2" not in ways:
        return ours.close()
    # One by one, or all waiting requests together: the better of the two at this rate.
    rate = 0.6 * statistics.median(rates["ctranslate2"]) * len(part) / tokens
    servers = [way for way in peers.ways if way.startswith("ctranslate2") and ("one by one" in way or "answer" in way)]
    serve = lambda way, seed: peers.ask("serve", way=way, counts=counts, rate=rate, seconds=args.seconds, seed=seed)  # noqa: E731
    servers = [way for way in servers if "32" not in way]  # that many requests hardly ever wait
    server = min(servers, key=lambda way: statistics.fmean(serve(way, 99)))
    runs = harness.in_turns(args.rounds, ours=functools.partial(ours.ask, "open", rate, args.seconds, 1),
                            peer=lambda: serve(server, 1))
    ours.close()
    for key, aim, of in (("mean", AIMS["mean"], statistics.fmean), ("p99", AIMS["p99"], lambda x: float(np.percentile(x, 99)))):
        latency = [run["latency_ms"][key] for run in runs["ours"]]
        theirs = [of(run) for run in runs["peer"]]
        report.add(f"{name} at 60% of its peak: {key}", statistics.median(latency), "ms", statistics.median(theirs),
                   harness.median_ratio(theirs, latency), None, aim, harness.spread(latency), way=server, rate=rate)


def beams(report, machine, peers, folder, args):
    """Answers of as many tokens each, since a row of CTranslate2's batch cannot leave a search early."""
    shape = decoder_models.SHAPES["turbo_decoder"]
    chance = random.Random(1)
    counts = [(chance.randint(28, 137), 64) for _ in range(400)]
    part = counts[:(1 if args.quick else 2) * LIVE]
    ours = Ours(shape, counts, folder)
    ways = peers.best(part[:LIVE])
    # Searches that began together end together, so not by what came in a window: Little's law.
    sides = {"ours": lambda: 64 * LIVE / (1e-3 * ours.ask("closed", LIVE, 5, 2 * args.seconds, 1)["latency_ms"]["mean"])}
    sides |= {kind: lambda way=way: 64 * len(part) / peers.run(way, part) for kind, (way, _) in ways.items()}
    rates = harness.in_turns(args.rounds, **sides)
    ours.close()
    mine = rates.pop("ours")
    add_ratios(report, f"{shape.name}, {shape.beams} beams, {LIVE} live", "tok/s", mine, rates, ways, machine.together(shape, counts, LIVE),
               AIMS["beams"])


def beside(report, folder, args):
    """GPT-2, eight requests under way: from token to token, while prompts of 512 tokens come now and then, and without."""
    ours = Ours(decoder_models.SHAPES["gpt2"], [(16, 200)], folder)
    runs = harness.in_turns(args.rounds, without=lambda: ours.ask("closed", 8, 2, 2 * args.seconds, 1),
                            beside=lambda: ours.ask("beside", 8, 2, 2 * args.seconds, 512, 2000))
    ours.close()
    for key in ("p50", "p99"):
        with_prompts, without = ([run["between_ms"][key] for run in runs[side]] for side in ("beside", "without"))
        report.add(f"gpt2 8 live, between tokens, 512 enter: {key}", statistics.median(with_prompts), "ms", statistics.median(without),
                   harness.median_ratio(without, with_prompts), None, AIMS["beside"] if key == "p99" else None,
                   harness.spread(with_prompts))


def drawn(report, folder, args):
    """Sentences of lengths as they are, against all of the mean length."""
    shape = decoder_models.SHAPES["transformer_base"]
    counts = sentence_pairs(1000)
    mean = tuple(round(statistics.fmean(of)) for of in zip(*counts))
    sides = {"drawn": Ours(shape, counts, folder), "equal": Ours(shape, [mean], folder)}
    rates = harness.in_turns(args.rounds, **{side: lambda s=s: s.ask("closed", SENTENCES, 1, args.seconds, 1)["output_tokens_per_s"]
                                             for side, s in sides.items()})
    for side in sides.values():
        side.close()
    report.add("transformer_base, lengths drawn / all equal", statistics.median(rates["drawn"]), "tok/s",
               statistics.median(rates["equal"]), harness.median_ratio(rates["drawn"], rates["equal"]), None, AIMS["drawn"],
               harness.spread(rates["drawn"]))


PARTS = ("alone", "live", "live_short", "beside", "transformer_base", "drawn", "t5_small", "turbo_decoder")


def main():
    args = harness.arguments(
        "decoders", quick=dict(action="store_true", help="without T5, short rounds"), rounds=dict(type=int, default=3),
        seconds=dict(type=float, default=12.0, help="of a load, each round"),
        parts=dict(nargs="*", default=list(PARTS), choices=PARTS),
        peers=dict(nargs="*", default=["ctranslate2", "ort", "llama.cpp"]))
    if args.quick:
        args.rounds, args.seconds = 2, 4.0
        args.parts = [part for part in args.parts if part != "t5_small"]
    harness.build_programs("peak", "generation_load")
    subprocess.run([PEERS, harness.ROOT / "bench" / "decoder_models.py", MODELS], check=True)
    report = harness.Report("decoders", args.output, [WORKERS])
    report.head["peak"] = harness.measure_peak(WORKERS)
    machine = Machine(report.head["peak"][str(WORKERS)])
    with tempfile.TemporaryDirectory() as folder:
        for name in decoder_models.SHAPES:
            parts = [part for part in args.parts if part == name or (name == "gpt2" and part in ("alone", "live", "live_short"))]
            if not parts:
                continue
            peers = Peers(decoder_models.SHAPES[name], args.peers)
            for part in parts:
                if part == "alone":
                    alone(report, machine, peers, folder, args)
                elif part == "live":
                    live(report, machine, peers, folder, args, "prompts 32-512", prompts(400))
                elif part == "live_short":
                    live(report, machine, peers, folder, args, "prompts 32, answers 64", [(32, 64)])
                elif part == "turbo_decoder":
                    beams(report, machine, peers, folder, args)
                else:
                    translation(report, machine, name, peers, folder, args)
            peers.close()
        if "beside" in args.parts:
            beside(report, folder, args)
        if "drawn" in args.parts:
            drawn(report, folder, args)
    report.save()


if __name__ == "__main__":
    main()

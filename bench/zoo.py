#!/usr/bin/env python3
"""Compares Chairlift's engine with ONNX Runtime on common models, one request after another, with the same threads.

The models (zoo_models.py) are exported once, into build/zoo; remove a file to export it again. Each row checks first
that our answer equals that of ONNX Runtime without its optimisers. If it does not, the row fails and the others
continue. If ONNX Runtime's optimisers change its own answer, the row says so.

Both engines take turns with each number of threads. Before each turn all sleep for harness.TURN_PAUSE_SECONDS, so that
ONNX Runtime's idle threads stop spinning and do not take a core from the next engine. `bound` is defined as in
runtime.py. It is left out if flops.py does not count all operators of the model. If ONNX Runtime is faster, the row is
followed by our three slowest operators.
"""

import collections
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime

import flops
import harness
import runtime
import zoo_models

AIM_EVERY_ROW = 1.0
AIM_FAMILIES = {("mobile",): 1.15, ("detection", "ocr"): 1.3}
AIM_TWO_WORKERS = 1.7
LONG_SECONDS = 5e-3  # on one thread, from which on a second worker should help
TOLERANCE = 1e-4  # of an output's largest magnitude
ROUNDS = 7
SLOWEST = 3
FOLDER = harness.ROOT / "build" / "zoo"


class WrongAnswer(Exception):
    pass


def difference(want, got):
    """The largest, as a share of the largest magnitude that is right."""
    if got.shape != want.shape or got.dtype != want.dtype:
        raise WrongAnswer(f"{got.dtype}{list(got.shape)} where {want.dtype}{list(want.shape)} is right")
    if want.size == 0:
        return 0.0
    want, got = want.astype(np.float64), got.astype(np.float64)
    return float(np.abs(got - want).max() / max(np.abs(want).max(), 1e-30))


def right_answers(path, inputs):
    """{output: array}, by ONNX Runtime as the file stands: its optimisers are not always right."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    answers = dict(zip((output.name for output in session.get_outputs()), session.run(None, inputs)))
    for name, answer in answers.items():
        if not np.isfinite(answer).all():
            raise WrongAnswer(f"output '{name}' of ONNX Runtime is not finite: there is nothing to compare with")
    return answers


class Pair:
    """A model in both engines with one number of threads, the answers compared."""

    def __init__(self, path, threads, inputs, files, folder, answers):
        self.peer_session, self.inputs = runtime.session(path, threads), inputs
        peers = self.peer_session.run(list(answers), inputs)
        self.peer_error = max(difference(want, got) for want, got in zip(answers.values(), peers))
        self.worker = harness.Worker(path, threads, files)
        try:
            for name in answers:
                (folder / f"{name}.npy").parent.mkdir(parents=True, exist_ok=True)
            self.worker.dump(folder)
            self.error = 0.0
            for name, want in answers.items():
                error = difference(want, np.load(folder / f"{name}.npy"))
                if not error <= TOLERANCE:
                    raise WrongAnswer(f"output '{name}' differs by {error:.1e} of its range")
                self.error = max(self.error, error)
        except BaseException:
            self.worker.close()
            raise

    def ours(self, times):
        return self.worker.run(times)

    def peer(self, times):
        return harness.timed(lambda: self.peer_session.run(None, self.inputs), times)


def take_turns(pairs, seconds, rounds):
    """{(threads, "ours" or "peer"): [median seconds of a run, in each round]}"""
    sides = {(threads, side): getattr(pair, side) for threads, pair in pairs.items() for side in ("ours", "peer")}

    def turn(run):
        run(1)
        times = max(1, min(2000, int(seconds / (2 * rounds) / max(min(run(2)), 1e-6))))
        return lambda: statistics.median(run(times))

    turns = {key: turn(run) for key, run in sides.items()}
    taken = harness.in_turns(rounds, **{f"{side} {threads}": turns[threads, side] for threads, side in turns})
    return {(threads, side): taken[f"{side} {threads}"] for threads, side in turns}


def bound_seconds(path, inputs, peak):
    """({threads: seconds}, None), or (None, why there is none)."""
    model = onnx.load(path)
    uncounted = {node.op_type for node in model.graph.node} & flops.NOT_COUNTED
    if uncounted:
        return None, f"{', '.join(sorted(uncounted))} not counted"
    work, weights = flops.count(model, inputs)
    if work == 0:
        return None, "nothing that is counted"
    return {threads: flops.bound_seconds(work, weights, machine) for threads, machine in peak.items()}, None


def slowest_operators(path, threads, inputs, folder):
    """Returns the slowest operators by `chairlift profile --operators`."""
    written = folder / "operators.json"
    shapes = [flag for name, value in inputs.items() if value.ndim
              for flag in ("--shape", f"{name}={','.join(str(size) for size in value.shape)}")]
    command = [harness.BUILD / "bin" / "chairlift", "profile", path, "--operators", "--workers", str(threads), *shapes,
               "--json", written]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        why = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise RuntimeError(why[0])
    return json.loads(written.read_text())["nodes"][:SLOWEST]


class Zoo:
    def __init__(self, args, report, peak):
        self.args, self.report, self.peak = args, report, peak
        self.ratios = collections.defaultdict(list)  # family: those of its rows
        self.two_workers = {}  # row: how much faster, where one takes long
        self.failures = []

    def fail(self, row, why):
        self.failures.append(row)
        self.report.refuse(row, f"FAILED: {why}")

    def measure(self, model, label):
        path = FOLDER / f"{model.name}.onnx"
        name = f"{model.name} {label}"
        if not path.exists():
            error = path.with_suffix(".error")
            self.fail(name, f"not exported: {error.read_text() if error.exists() else 'the export ended early'}")
            return
        inputs = model.inputs(label)
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            files = {}
            for key, value in inputs.items():
                files[key] = folder / f"input {len(files)}.npy"
                np.save(files[key], value)
            pairs = {}
            try:
                answers = right_answers(path, inputs)
            except Exception as failure:  # noqa: BLE001: ONNX Runtime's have no class in common; the other rows go on
                self.fail(name, str(failure))
                return
            try:
                for threads in self.args.threads:
                    try:
                        pairs[threads] = Pair(path, threads, inputs, files, folder, answers)
                    except (WrongAnswer, harness.WorkerFailed) as failure:
                        self.fail(f"{name} t={threads}", str(failure))
                if pairs:
                    self.compare(model, name, path, inputs, folder, pairs)
            except harness.WorkerFailed as failure:
                self.fail(name, str(failure))
            finally:
                for pair in pairs.values():
                    pair.worker.close()

    def compare(self, model, name, path, inputs, folder, pairs):
        bounds, why = bound_seconds(path, inputs, self.peak)
        taken = take_turns(pairs, self.args.seconds, self.args.rounds)
        for threads, pair in pairs.items():
            row, ours, peer = f"{name} t={threads}", taken[threads, "ours"], taken[threads, "peer"]
            mine, theirs, ratio = statistics.median(ours), statistics.median(peer), harness.median_ratio(peer, ours)
            self.ratios[model.family].append(ratio)
            more = {"peer_error": pair.peer_error} | ({"no_bound": why} if why else {})
            if threads == 2 and 1 in pairs:
                one = taken[1, "ours"]
                more["of_one_worker"] = harness.median_ratio(one, ours)
                if statistics.median(one) > LONG_SECONDS:
                    self.two_workers[name] = more["of_one_worker"]
            slowest = slow_failure = None
            if ratio < AIM_EVERY_ROW:
                try:
                    slowest = more["slowest"] = slowest_operators(path, threads, inputs, folder)
                except RuntimeError as failure:
                    slow_failure = more["no_slowest"] = str(failure)
                    self.failures.append(f"{row}, its operators")
            self.report.add(row, mine * 1e3, "ms", theirs * 1e3, ratio, bounds and 100 * bounds[str(threads)] / mine,
                            AIM_EVERY_ROW, harness.spread(ours), family=model.family, error=pair.error, **more)
            if not pair.peer_error <= TOLERANCE:
                print(f"    ONNX Runtime's optimisers change its own answer by {pair.peer_error:.1e}", flush=True)
            for node in slowest or []:
                kernel = " ".join(part for part in (node["operator"], node["implementation"]) if part)
                print(f"    {kernel} {node['us']:.0f} us {node['node']}", flush=True)
            if slow_failure:
                print(f"    FAILED: {slow_failure}", flush=True)

    def conclude(self):
        def median(row, ratios, aim=None):
            if ratios:
                value = statistics.median(ratios)
                self.report.add(f"{row} ({len(ratios)} rows)", value, "ratio", 1.0, value, aim=aim)

        every = [ratio for ratios in self.ratios.values() for ratio in ratios]
        print()
        for family, ratios in self.ratios.items():
            if (family,) not in AIM_FAMILIES:
                median(family, ratios)
        for families, aim in AIM_FAMILIES.items():
            median(" and ".join(families), [ratio for family in families for ratio in self.ratios[family]], aim)
        median("median", every)
        median(f"two workers, over {LONG_SECONDS * 1e3:.0f} ms", list(self.two_workers.values()), AIM_TWO_WORKERS)
        least = sorted(self.two_workers.items(), key=lambda item: item[1])[:SLOWEST]
        if least:
            print("    least: " + ", ".join(f"{name} {gain:.2f}" for name, gain in least))
        slower = sum(ratio < AIM_EVERY_ROW for ratio in every)
        print(f"{len(every)} rows, {slower} where ONNX Runtime is faster, {len(self.failures)} failures"
              + "".join(f"\n    FAILED: {row}" for row in self.failures))


def main():
    args = harness.arguments(
        "zoo", seconds=dict(type=float, default=1.5, help="time for a row, both sides"),
        threads=dict(type=int, nargs="*", default=[1, 2]),
        only=dict(default="", help="models whose name or family holds this"),
        quick=dict(action="store_true", help="three short rounds of each model's first size"))
    args.rounds = ROUNDS
    if args.quick:
        args.seconds, args.rounds = 0.3, 3
    harness.build_programs("peak", "model_worker", "chairlift")
    models = zoo_models.models(args.only)
    if not models:
        raise SystemExit(f"no model's name or family holds '{args.only}'")
    if not all((FOLDER / f"{model.name}.onnx").exists() for model in models):
        # In a process of its own: nothing of PyTorch runs beside what is timed.
        subprocess.run([sys.executable, pathlib.Path(zoo_models.__file__), FOLDER, "--only", args.only])
    peak = harness.measure_peak(max(args.threads))
    report = harness.Report("zoo", args.output, args.threads)
    report.head["peak"] = peak
    zoo = Zoo(args, report, peak)
    for model in models:
        for label in list(model.cases)[: 1 if args.quick else None]:
            zoo.measure(model, label)
    zoo.conclude()
    report.save()
    if zoo.failures:
        sys.exit(1)


if __name__ == "__main__":
    main()

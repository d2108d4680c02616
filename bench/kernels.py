#!/usr/bin/env python3
"""Measures every kernel of the hot path on one thread, and compares its processor time with its bound.

The bound is max(FLOPs / measured peak, bytes / measured bandwidth). The shapes are those of tests/ops/kernel_cases.h,
which the tests compare with float64. If an implementation refuses a case, the row has the reason. Recurrent layers of
hidden sizes 16 to 2,048 at 1, 8 and 64 rows are compared with ONNX Runtime's LSTM, GRU and RNN on one thread, in turns.
"""

import json
import re
import statistics
import subprocess
import time

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import harness

ROUNDS = 9
# (cell, reset after, time, rows, hidden), from as many features: tests/ops/kernel_cases.h, RecurrentCases().
LAYER = re.compile(r"recurrent layer/(LSTM|GRU|RNN)( reset after)? (\d+)x(\d+)x(\d+),")
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


class OnnxRuntimeLayer:
    """One node of ONNX Runtime on one thread."""

    def __init__(self, cell, reset_after, steps, rows, hidden):
        rng = np.random.default_rng(1)
        most = hidden ** -0.5
        weights = [rng.uniform(-most, most, (1, GATES[cell] * hidden, hidden)).astype(np.float32) for _ in "WR"]
        attributes = {"linear_before_reset": 1} if reset_after else {}
        node = helper.make_node(cell, ["x", "W", "R"], ["y", "last"], hidden_size=hidden, **attributes)
        value = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)  # noqa: E731
        graph = helper.make_graph(
            [node], "layer", [value("x", [steps, rows, hidden])],
            [value("y", [steps, 1, rows, hidden]), value("last", [1, rows, hidden])],
            [numpy_helper.from_array(array, name) for name, array in zip("WR", weights)])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(model.SerializeToString(), options,
                                                    providers=["CPUExecutionProvider"])
        self.binding = self.session.io_binding()
        x = rng.uniform(-1, 1, (steps, rows, hidden)).astype(np.float32)
        self.binding.bind_cpu_input("x", x)
        for name, shape in (("y", (steps, 1, rows, hidden)), ("last", (1, rows, hidden))):
            self.binding.bind_ortvalue_output(name, onnxruntime.OrtValue.ortvalue_from_shape_and_type(shape, np.float32))
        self.run(0)

    def run(self, seconds):
        """Processor microseconds of a call."""
        begin, calls = time.thread_time(), 0
        while calls == 0 or time.thread_time() - begin < seconds:
            self.session.run_with_iobinding(self.binding)
            calls += 1
        return 1e6 * (time.thread_time() - begin) / calls


def exactly(names):
    """An expression that matches these names alone."""
    return "^(" + "|".join(re.sub(r"([][.+*?(){}^$|\\])", r"\\\1", name) for name in names) + ")$"


def run_kernels(pattern, seconds, repetitions=1, more=()):
    text = subprocess.run(
        [harness.BUILD / "bench" / "kernels", "--benchmark_format=json", f"--benchmark_filter={pattern}",
         f"--benchmark_repetitions={repetitions}", f"--benchmark_min_time={seconds}", *more],
        check=True, capture_output=True, text=True).stdout
    return json.loads(text)["benchmarks"]


def all_kernels(report, pattern, seconds, rounds):
    rows = sorted(run_kernels(pattern, seconds, rounds, ["--benchmark_report_aggregates_only=true",
                                                         "--benchmark_enable_random_interleaving=true"]),
                  key=lambda row: row["family_index"])
    spreads = {row["run_name"]: 100 * row["cpu_time"] for row in rows if row.get("aggregate_name") == "cv"}
    for row in rows:
        if row.get("error_occurred"):
            report.refuse(row["run_name"], row["error_message"])
        elif row["aggregate_name"] == "median":
            report.add(row["run_name"], row["cpu_time"], "µs", bound_percent=100 * row["bound_us"] / row["cpu_time"],
                       spread_percent=spreads[row["run_name"]])


def layers(report, names, seconds, rounds):
    """Ours and ONNX Runtime's in turns."""
    for name in names:
        cell, reset_after, *sizes = LAYER.match(name).groups()
        peer = OnnxRuntimeLayer(cell, reset_after is not None, *map(int, sizes))
        bound = []

        def ours():
            row, = run_kernels(exactly([name]), seconds)
            bound.append(row["bound_us"])
            return row["cpu_time"]

        runs = harness.in_turns(rounds, ours=ours, peer=lambda: peer.run(seconds))
        value = statistics.median(runs["ours"])
        report.add(name.split(",")[0], value, "µs", peer=statistics.median(runs["peer"]),
                   ratio=harness.median_ratio(runs["peer"], runs["ours"]),
                   bound_percent=100 * statistics.median(bound) / value, aim=1.0,
                   spread_percent=harness.spread(runs["ours"]))


def main():
    args = harness.arguments("kernels", quick=dict(action="store_true", help="a short look"),
                             only=dict(default=".", help="kernels whose name matches this expression"))
    harness.build_programs("kernels")
    report = harness.Report("kernels", args.output, [1])
    seconds, rounds = (0.005, 3) if args.quick else (0.02, ROUNDS)
    listed = subprocess.run([harness.BUILD / "bench" / "kernels", "--benchmark_list_tests",
                             f"--benchmark_filter={args.only}"], check=True, capture_output=True, text=True)
    names = listed.stdout.splitlines()
    others = [name for name in names if not LAYER.match(name)]
    if others:
        all_kernels(report, exactly(others), seconds, rounds)
    layers(report, filter(LAYER.match, names), seconds, rounds)
    report.save()


if __name__ == "__main__":
    main()

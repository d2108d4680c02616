#!/usr/bin/env python3
"""Compares LSTM, GRU (both resets) and RNN operators of every size with ONNX Runtime and with oneDNN's layers.

Runs take turns. ONNX Runtime uses one thread by default, oneDNN always. A row is one operator of 16 to 2,048 units over
one sequence or several. Each row checks first that all give the same answer. Ours is a request to an engine. oneDNN's
(bench/recurrent_onednn.cc) is the bare layer with packed weights.

`bound` is a time as % of our time, the larger of two. The first is the multiply-adds at the measured peak. The second
is the recurrent weights of each step at the bandwidth of the cache levels that hold them. The second-level cache counts
as unbounded.
"""

import collections
import pathlib
import statistics
import tempfile

import numpy as np
import onnx
from onnx import numpy_helper

import harness
import runtime
from models import builder
from models.builder import Builder

KINDS = {"LSTM": ("LSTM", 4, {}), "GRU": ("GRU", 3, {}), "GRU reset after": ("GRU", 3, {"linear_before_reset": 1}),
         "RNN": ("RNN", 1, {})}
LENGTH = 24
SECOND_LEVEL = 1 << 19  # bytes of weights that stay there


def model(kind, hidden, directions, layers):
    operator, gates, attributes = KINDS[kind]
    b = Builder("recurrent")
    y = b.input("x", ["length", "batch", hidden])
    features, scale = hidden, hidden**-0.5
    for _ in range(layers):
        y = b.node(operator, y, b.weight(directions, gates * hidden, features, scale=scale),
                   b.weight(directions, gates * hidden, hidden, scale=scale),
                   b.weight(directions, 2 * gates * hidden, scale=0.1), outputs=3 if operator == "LSTM" else 2,
                   hidden_size=hidden, direction="forward" if directions == 1 else "bidirectional", **attributes)[0]
        y = b.node("Reshape", b.node("Transpose", y, perm=[0, 2, 1, 3]), b.ints(0, 0, directions * hidden))
        features = directions * hidden
    b.output(y, "y", ["length", "batch", features])
    return b.model()


def onednn_layer(kind, path, x, folder):
    """oneDNN's layer with the same weights, its gates in its own order."""
    operator, gates, _ = KINDS[kind]
    graph = onnx.load(path).graph
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    layers = [[weights[name] for name in node.input[1:4]] for node in graph.node if node.op_type == operator]
    order = [0, 2, 3, 1] if kind == "LSTM" else range(gates)  # ONNX's i, o, f, c

    def gated(array):
        directions, rows, *more = array.shape
        return array.reshape(directions, gates, rows // gates, *more)[:, order]

    def bias(array):
        of_input, recurrent = (gated(half) for half in np.split(array, 2, axis=1))
        if kind == "GRU reset after":
            both = of_input[:, :2] + recurrent[:, :2]
            return np.concatenate([both, of_input[:, 2:], recurrent[:, 2:]], axis=1)
        return of_input + recurrent

    np.save(folder / "x.npy", x)
    for name, parts in (("w", [gated(w) for w, _, _ in layers]), ("r", [gated(r) for _, r, _ in layers]),
                        ("b", [bias(b) for _, _, b in layers])):
        np.save(folder / f"{name}.npy", np.ascontiguousarray(np.stack(parts)))
    return harness.Told(harness.BUILD / "bench" / "recurrent_onednn", kind, folder, OMP_NUM_THREADS="1")


def bound_seconds(kind, hidden, directions, layers, batch, machine):
    gates = KINDS[kind][1]
    inputs = hidden + (layers - 1) * directions * hidden  # of all layers
    weights = directions * gates * hidden * (inputs + layers * hidden)
    recurrent = 4 * gates * hidden * hidden  # bytes of one direction of one layer
    # Steps that go through them to and fro find as many of them in the third level as that holds.
    near = min(recurrent, harness.cache_bytes(3))
    step = 0 if recurrent < SECOND_LEVEL else near / machine["l3_gbs"] + (recurrent - near) / machine["memory_gbs"]
    read = LENGTH * directions * layers * step
    return max(2 * LENGTH * batch * weights / machine["gflops"], read) * 1e-9


def main():
    args = harness.arguments(
        "recurrent", seconds=dict(type=float, default=1.0, help="time for a row, both sides"),
        threads=dict(type=int, nargs="*", default=[1]), kinds=dict(nargs="*", default=list(KINDS), choices=KINDS),
        hidden=dict(type=int, nargs="*", default=[16, 32, 48, 64, 100, 128, 200, 256, 512, 1024, 2048]),
        batch=dict(type=int, nargs="*", default=[1, 8, 64]))
    harness.build_programs("peak", "model_worker", "recurrent_onednn")
    peak = harness.measure_peak(max(args.threads))
    report = harness.Report("recurrent", args.output, args.threads)
    report.head["peak"] = peak
    shapes = [("", 1, 1), (" bidirectional", 2, 1), (" two layers", 1, 2)]
    ratios = collections.defaultdict(list)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        path, input_file = folder / "model.onnx", folder / "x.npy"
        for kind, hidden, (form, directions, layers) in ((k, h, s) for k in args.kinds for h in args.hidden
                                                         for s in (shapes if h == 128 else shapes[:1])):
            builder.save(model(kind, hidden, directions, layers), path)
            for threads, batch in ((t, b) for t in args.threads for b in args.batch):
                x = np.random.default_rng(1).standard_normal((LENGTH, batch, hidden)).astype(np.float32)
                np.save(input_file, x)
                peer = runtime.session(path, threads)
                expected = {"y": peer.run(None, {"x": x})[0]}
                worker = harness.Worker(path, threads, {"x": input_file})
                worker.dump(folder)
                error = runtime.check(expected, folder)
                ours, theirs, ratio, spread = harness.interleave(
                    worker.run, lambda n: harness.timed(lambda: peer.run(None, {"x": x}), n), args.seconds)
                bound = bound_seconds(kind, hidden, directions, layers, batch, peak[str(threads)])
                row = f"{kind} h={hidden}{form} b={batch} t={threads}"
                ratios[f"t={threads}"].append(ratio)
                report.add(row, ours * 1e3, "ms", theirs * 1e3, ratio, 100 * bound / ours, runtime.AIM_EVERY_ROW, spread,
                           error=error)
                del peer
                if threads == 1:
                    onednn = onednn_layer(kind, path, x, folder)
                    onednn.dump(folder)
                    error = runtime.check(expected, folder)
                    ours, theirs, ratio, spread = harness.interleave(worker.run, onednn.run, args.seconds)
                    onednn.close()
                    ratios["oneDNN"].append(ratio)
                    report.add(f"{row} oneDNN", ours * 1e3, "ms", theirs * 1e3, ratio, 100 * bound / ours,
                               runtime.AIM_EVERY_ROW, spread, error=error)
                worker.close()
    for side, all_ratios in ratios.items():
        report.add(f"median row {side}", statistics.median(all_ratios), "ratio", 1.0, statistics.median(all_ratios))
    report.save()


if __name__ == "__main__":
    main()

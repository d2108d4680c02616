#!/usr/bin/env python3
"""Compares Chairlift's engine with ONNX Runtime on one model, one request after another, with the same threads.

The engines take turns. Each row checks first that both give the same answer. `bound` is the larger of two times, as %
of our time: the model's multiply-adds at the measured peak, and its weights at the measured bandwidth. It can exceed
100%: Winograd convolutions need fewer multiply-adds than are counted, and bytes are multiplied faster. For models with
4-bit weights, `int8` lets both sides round activations to 8 bits, as is usual. Different rounding then gives larger
differences.
"""

import pathlib
import statistics
import tempfile

import numpy as np
import onnxruntime

import blockwise
import flops
import harness
from models import bert, builder, recurrent, vision

AIM_EVERY_ROW = 1.0
AIM_MEDIAN = 1.2
ROUNDED = 0.02  # of the output's range: the effect of a few different roundings


def tokens(batch, length):
    ids = np.random.default_rng(1).integers(1000, 30000, (batch, length))
    return {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}


def floats(**shapes):
    rng = np.random.default_rng(2)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def rows():
    """(name, model builder, [(label, inputs)])"""
    image = lambda b, size: (f"b={b}", floats(image=(b, 3, size, size)))  # noqa: E731
    text = lambda b, n: (f"{b}x{n}", tokens(b, n))  # noqa: E731
    step = lambda b: (f"b={b}", floats(x=(b, 1024), h=(b, 1024), c=(b, 1024)))  # noqa: E731
    yield "resnet50", vision.resnet50, [image(1, 224), image(8, 224)]
    yield "vgg16", vision.vgg16, [image(1, 224), image(8, 224)]
    yield "unet", vision.unet, [image(1, 128), image(8, 128)]
    yield "bert_base", lambda: bert.bert(bert.BERT_BASE), [text(1, 16), text(1, 128), text(8, 128)]
    yield "minilm_l6", lambda: bert.bert(bert.MINILM_L6), [text(1, 16), text(1, 128), text(8, 128)]
    for name, level in (("int8", 4), ("float32", 1)):
        yield (f"minilm_l6_4bit_{name}", lambda level=level: blockwise.in_four_bits(bert.bert(bert.MINILM_L6), level),
               [text(1, 16), text(1, 128), text(8, 128)])
    yield "lstm_cell_h1024", recurrent.lstm_cell, [step(1), step(8), step(64)]
    yield "lstm_operator_h1024_T20", recurrent.lstm_operator, [("b=1", floats(x=(20, 1, 1024)))]
    small = lambda: recurrent.lstm_operator(hidden=256)  # noqa: E731
    yield "lstm_operator_h256", small, [(f"T={t} b=1", floats(x=(t, 1, 256))) for t in (20, 50)]


def session(path, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def check(expected, folder, most=1e-4):
    worst = 0.0
    for name, want in expected.items():
        got = np.load(folder / f"{name}.npy")
        worst = max(worst, float(np.abs(got - want).max() / max(np.abs(want).max(), 1e-30)))
    if not worst <= most:
        raise SystemExit(f"the answers differ by {worst:.1e} of the output's range: not a comparison")
    return worst


def main():
    args = harness.arguments("runtime", seconds=dict(type=float, default=6.0, help="time for a row, both sides"),
                             threads=dict(type=int, nargs="*", default=[1, 2]),
                             only=dict(default="", help="rows whose name holds this"))
    harness.build_programs("peak", "model_worker")
    peak = harness.measure_peak(max(args.threads))
    report = harness.Report("runtime", args.output, args.threads)
    report.head["peak"] = peak
    ratios = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for name, build, cases in rows():
            if args.only not in name:
                continue
            model, path = build(), folder / f"{name}.onnx"
            builder.save(model, path)
            for threads in args.threads:
                peer = session(path, threads)
                outputs = [o.name for o in peer.get_outputs()]
                for label, inputs in cases:
                    files = {}
                    for key, value in inputs.items():
                        files[key] = folder / f"{key}.npy"
                        np.save(files[key], value)
                    worker = harness.Worker(path, threads, files)
                    expected = dict(zip(outputs, peer.run(None, inputs)))
                    worker.dump(folder)
                    error = check(expected, folder, ROUNDED if name.endswith("int8") else 1e-4)
                    ours, theirs, ratio, spread = harness.interleave(
                        worker.run, lambda n: harness.timed(lambda: peer.run(None, inputs), n), args.seconds)
                    worker.close()
                    work, weights = flops.count(model, inputs)
                    bound = flops.bound_seconds(work, weights, peak[str(threads)])
                    ratios.append(ratio)
                    report.add(f"{name} {label} t={threads}", ours * 1e3, "ms", theirs * 1e3, ratio,
                               100 * bound / ours, AIM_EVERY_ROW, spread, error=error)
                del peer
    if ratios:
        report.add("median row", statistics.median(ratios), "ratio", 1.0, statistics.median(ratios), aim=AIM_MEDIAN)
    report.save()


if __name__ == "__main__":
    main()

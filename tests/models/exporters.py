#!/usr/bin/env python3
"""Checks the models of common exporters: do they load, do they agree with ONNX Runtime, how are they served?

Each exporter writes small architectures with seeded random weights (exported_architectures.py). ONNX Runtime and
Chairlift run them at several batch sizes and lengths. The results are printed as a table.
"""

import argparse
import multiprocessing
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import traceback

import numpy as np
import onnx
import onnxruntime

from compare import error, run_offline

EXPORTERS = {
    "torchscript": "torch.onnx.export(dynamo=False)",
    "dynamo": "torch.onnx.export(dynamo=True)",
    "optimum": "optimum-onnx: onnx_export_from_model",
    "ultralytics": "ultralytics: YOLO(...).export(format='onnx', dynamic=True)",
    "tf2onnx": "tf2onnx.convert.from_keras",
    "keras-torch": "keras 3 on torch: model.export(format='onnx')",
    "keras-tensorflow": "keras 3 on tensorflow: model.export(format='onnx')",
    "jax2onnx": "jax2onnx.to_onnx of flax.nnx modules",
    "skl2onnx": "skl2onnx.to_onnx of numeric models",
}

# (batch, length): a length of 1 and one that no padding rounds.
SIZES = ((1, 7), (2, 12), (3, 19))
TOLERANCE = 1e-4


def write_models(exporter, folder, only):
    """In a process of its own: each exporter's libraries are loaded alone, and `keras` takes one back end a process."""
    if exporter.startswith("keras-"):
        os.environ["KERAS_BACKEND"] = exporter.removeprefix("keras-")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    import exported_architectures as architectures

    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "log.txt", "a") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        try:
            cases = architectures.cases(exporter)
        except ImportError as missing:
            (folder / "not_installed.error").write_text(str(missing))
            return
        for case in cases:
            path = folder / f"{case.name}.onnx"
            if only not in case.name or path.exists():
                continue
            failure = path.with_suffix(".error")
            failure.unlink(missing_ok=True)
            try:
                case.write(path)
            except Exception as exception:  # noqa: BLE001: an exporter may fail in any way; the others go on
                traceback.print_exc()
                failure.write_text(f"{type(exception).__name__}: {exception}")


def size_of(dim, place, batch, length):
    """A dimension as an exporter names it, or leaves it without a name."""
    if isinstance(dim, int) and dim > 0:
        return dim
    name = str(dim or "")
    if "+" in name:
        return sum(size_of(part.strip(), place, batch, length) for part in name.split("+"))
    if name.isdigit():
        return int(name)
    if "past" in name:
        return 3
    if place == 0 or "batch" in name:
        return batch
    return length


def feeds(session, batch, length, extent, rng):
    """Values for each input, by its type and name."""
    values = {}
    for given in session.get_inputs():
        name = given.name.lower()
        if len(given.shape) == 4 and "float" in given.type and "past" not in name:  # an image
            open_sizes = (batch, 3, extent, 2 * extent)
            shape = [dim if isinstance(dim, int) else open_sizes[i] for i, dim in enumerate(given.shape)]
        else:
            # One element of a wave is far less than a token.
            steps = 100 + 40 * length if name == "input_values" else length
            shape = [size_of(dim, i, batch, steps) for i, dim in enumerate(given.shape)]
        if "mask" in name and "pixel" not in name:
            mask = np.ones(shape)
            for row in range(1, shape[0]):
                mask[row, shape[-1] - 2 * row:] = 0
            value = mask
        elif "position_ids" in name:
            value = np.broadcast_to(np.arange(shape[-1]), shape)
        elif "token_type" in name:
            value = rng.integers(0, 2, shape)
        elif "int" in given.type:
            value = rng.integers(3, 24, shape)
        elif "bool" in given.type:
            value = rng.integers(0, 2, shape)
        else:
            value = rng.normal(0, 1, shape)
        types = {"float": np.float32, "double": np.float64, "float16": np.float16, "bool": np.bool_}
        element = given.type[len("tensor("):-1]
        values[given.name] = np.ascontiguousarray(value, types.get(element) or np.dtype(element))
    return values


def served(said):
    """Returns the batching that `chairlift inspect` reports: one word, and the reason."""
    diagnosis = re.search("^diagnosis: (.*)", said, re.MULTILINE | re.DOTALL)
    text = diagnosis.group(1).strip() if diagnosis else ""
    if "packed policy" in text:
        return "packed", text
    if "cellular policy" in text:
        return "cells", text
    if "one by one" in text or not text:
        packed = re.search("^  packed: refused: (.*)", said, re.MULTILINE)
        return "alone", text + (f" (packed: {packed.group(1)})" if packed else "")
    return "batched", text


def first_line(text):
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return (lines[0] if lines else "no message").strip()[:300]


class Row:
    """The results for one file."""

    def __init__(self, path):
        self.path, self.opset, self.operators = path, "", 0
        self.loads, self.worst, self.served, self.remark = False, float("nan"), "", ""


def try_model(chairlift, path):
    row = Row(path)
    model = onnx.load(path, load_external_data=False)
    row.opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
    row.operators = len(model.graph.node)
    said = subprocess.run([chairlift, "inspect", path], capture_output=True, text=True, timeout=300)
    if said.returncode != 0:
        row.remark = first_line(said.stderr or said.stdout)
        return row
    row.loads = True
    row.served, row.remark = served(said.stdout)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        peer = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    except Exception as exception:  # noqa: BLE001: nothing to compare with
        row.remark = f"ONNX Runtime does not load it: {first_line(str(exception))}"
        return row
    rng = np.random.default_rng(5)
    for (batch, length), extent in zip(SIZES, (32, 64, 96)):
        given = feeds(peer, batch, length, extent, rng)
        try:
            wanted = peer.run(None, given)
        except Exception as exception:  # noqa: BLE001: a file that ONNX Runtime does not run says nothing of Chairlift
            row.remark = f"ONNX Runtime at batch {batch}: {first_line(str(exception))}"
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                got = run_offline(chairlift, path, given, pathlib.Path(folder))
                errors = [error(want, got(output.name)) for want, output in zip(wanted, peer.get_outputs())]
            except subprocess.CalledProcessError as exception:
                row.worst = float("inf")
                row.remark = f"batch {batch}: {first_line(exception.stderr or '')}"
                return row
        # A difference that is not a number is one.
        row.worst = max([0.0 if np.isnan(row.worst) else row.worst, *(np.inf if np.isnan(e) else e for e in errors)])
    return row


def print_table(rows):
    print("| exporter | architecture | opset | nodes | loads | largest difference | served | |\n|---|---|---|---|---|---|---|---|")
    for row in rows:
        difference = "" if np.isnan(row.worst) else f"{row.worst:.0e}"
        print(f"| {row.path.parent.name} | {row.path.stem} | {row.opset} | {row.operators} | "
              f"{'yes' if row.loads else 'NO'} | {difference} | {row.served} | {row.remark} |")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="exporters:\n" + "\n".join(f"  {name:18}{text}" for name, text in EXPORTERS.items()) + """

example:
  python3 -m venv exporters && exporters/bin/pip install -r tools/requirements-exporters.txt
  exporters/bin/python tests/models/exporters.py --chairlift build/release/bin/chairlift \\
      --folder exported --exporter dynamo --only bert

The models stay in --folder, one folder for each exporter, and are not written again while they are there. What an
exporter itself could not write is in log.txt beside them. `served` is what `chairlift inspect` finds: tokens (requests
of any length are packed), cells (requests join at every step), batched (rows share a batch), alone (one by one).
The program fails if a model that was written does not load, or differs from ONNX Runtime.""")
    parser.add_argument("--chairlift", type=pathlib.Path, required=True, help="the program to test")
    parser.add_argument("--exporter", action="append", choices=list(EXPORTERS), help="this one; may be repeated")
    parser.add_argument("--only", default="", help="architectures whose name holds this")
    parser.add_argument("--folder", type=pathlib.Path, help="where the models are written and stay")
    args = parser.parse_args()
    rows, unwritten = [], []
    with tempfile.TemporaryDirectory() as temporary:
        root = args.folder or pathlib.Path(temporary)
        for exporter in args.exporter or EXPORTERS:
            folder = root / exporter
            writer = multiprocessing.get_context("spawn").Process(target=write_models,
                                                                  args=(exporter, folder, args.only))
            writer.start()
            writer.join()
            for failure in sorted(folder.glob("*.error")):
                if args.only in failure.stem:
                    unwritten.append(f"{exporter} {failure.stem}: {first_line(failure.read_text())}")
            for path in sorted(folder.glob("*.onnx")):
                if args.only in path.stem:
                    rows.append(try_model(args.chairlift.absolute(), path))
                    print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print_table(rows)
    for line in unwritten:
        print(f"not written: {line}")
    failed = sum(not row.loads or not row.worst <= TOLERANCE for row in rows)
    print(f"{len(rows) - failed} passed, {failed} failed")
    return 1 if failed or not rows else 0


if __name__ == "__main__":
    sys.exit(main())

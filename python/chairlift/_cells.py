"""Models that are made of cells in Python, with your own unfold function: for experiments with batching.

An unfold function is a generator. It is called once for each request, with the inputs of the model by name, as read-only
arrays:

    def pairwise(x):                                       # [length, n]: combine pairs, then pairs of pairs
        rows = list(x)
        while len(rows) > 1:
            pairs = []
            for left, right in zip(rows[::2], rows[1::2]):
                pair = yield chairlift.cell("pair", left=left, right=right)      # adds a cell, and returns at once
                pairs.append(pair["both"])                                       # an output, as input of other cells
            rows = pairs + rows[2 * len(pairs):]
        return {"y": rows}                                 # the answer; a list holds rows, [rows, n]

Cells of all requests share batches. A cell runs when its inputs are ready. Yield a node or an output to wait for its
values: `both = yield pair["both"]` gives an array, `arrays = yield pair` a dict of arrays. The function may then decide by
these values.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import tempfile
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from . import _core
from ._errors import InvalidArgument
from ._model import Model, _engine

Unfold = Callable[..., Generator[Any, Any, Any]]
Spec = tuple[str, Sequence[int | str]]


def cell(name: str, inputs: Mapping[str, Any] | None = None, /, *, rows: int | None = None, **named: Any) -> _core.Cell:
    """A cell, for an unfold function to yield.

    inputs: by name, an array, an output of another cell (`node["h"]`), or a row of one (`node["h"][3]`).
    rows: the number of rows; arrays are then [rows, …], and all rows read an output that has one row. None: one row,
        whose arrays have no row axis.
    """
    return _core.Cell(name, {**(inputs or {}), **named}, -1 if rows is None else rows)


def load_cells(cells: Mapping[str, Any], unfold: Unfold | Mapping[str, Any],
               inputs: Mapping[str, Spec] | None = None, outputs: Mapping[str, Spec] | None = None, *,
               name: str = "cells", **settings: Any) -> Model:
    """Loads a model made of cells (docs/concepts/cells.md). A cell is a small ONNX graph with rows along dimension 0.

        model = chairlift.load_cells({"pair": "pair.onnx"}, pairwise,
                                     inputs={"x": ("float32", ["length", 4])}, outputs={"y": ("float32", [1, 4])})

    cells: by name, an ONNX file, an onnx.ModelProto, or its bytes.
    unfold: a generator function (see `chairlift.cell`), which also needs `inputs` and `outputs`. Or a dict like `unfold` in
        a model.yaml, for example {"chain": {"cell": "step", …}}.
    inputs, outputs: the inputs and outputs of the model by name, as (element type, dimensions). Dimensions of the same name
        are equal; "?" is any size.
    settings: settings of a model.yaml by name, for example policy="cellular".
    """
    manifest: dict[str, Any] = {"cells": {key: {} for key in cells}}
    function = None
    if isinstance(unfold, Mapping):
        if inputs or outputs:
            raise InvalidArgument("inputs and outputs follow from the cells; they are given with a function only")
        manifest["unfold"] = dict(unfold)
    elif callable(unfold):
        if not inputs or not outputs:
            raise InvalidArgument("an unfold function needs the model's inputs and outputs, as "
                                  'inputs={"x": ("float32", ["length", 4])}')
        function = unfold
        manifest["unfold"] = {"plugin": getattr(unfold, "__name__", "function"), "inputs": _specs(inputs),
                              "outputs": _specs(outputs)}
    else:
        raise InvalidArgument(f"unfold is {unfold!r}; it must be a generator function or a dict")
    with tempfile.TemporaryDirectory(prefix="chairlift") as folder:
        version = pathlib.Path(folder, name, "1")
        version.mkdir(parents=True)
        for key, source in cells.items():
            _write(version, key, source)
        (version.parent / "model.yaml").write_text(json.dumps(manifest))  # JSON is valid YAML
        return Model(_engine(), version.parent, settings, unfold=function)


def _specs(specs: Mapping[str, Spec]) -> dict[str, Any]:
    return {key: {"type": dtype, "shape": list(shape)} for key, (dtype, shape) in specs.items()}


def _write(folder: pathlib.Path, name: str, source: Any) -> None:
    if os.path.basename(name) != name or name.startswith("."):
        raise InvalidArgument(f"'{name}' cannot be a cell's name: it becomes a file's")
    path = folder / f"{name}.onnx"
    if isinstance(source, (bytes, bytearray, memoryview)):
        path.write_bytes(source)
    elif hasattr(source, "SerializeToString"):
        path.write_bytes(source.SerializeToString())
    else:
        shutil.copyfile(os.fspath(source), path)


def _describe(error: BaseException, trace: Any, generator: Any) -> tuple[bool, str]:
    """Returns whether a value comes from the request, and a line or the generator's last `yield` for error messages."""
    text = str(error) if isinstance(error, InvalidArgument) else f"{type(error).__name__}: {error}"
    frames = traceback.extract_tb(trace)
    if frames:
        text += f" ({os.path.basename(frames[-1].filename)}, line {frames[-1].lineno}, in {frames[-1].name})"
    elif getattr(generator, "gi_frame", None) is not None:
        frame = generator.gi_frame
        text += f" ({os.path.basename(frame.f_code.co_filename)}, line {frame.f_lineno}, in {frame.f_code.co_name})"
    return isinstance(error, InvalidArgument), text

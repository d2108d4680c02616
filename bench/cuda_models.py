"""Writes the models of BENCH=cuda with random weights, and draws the lengths of their requests.

The models are BERT-base in float32 and in 16 bits, and an LSTM after an embedding.
"""

import argparse
import json
import pathlib
import random
import sys

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

sys.path.append(str(pathlib.Path(__file__).parent.parent / "examples"))
from models import bert, builder, recurrent

HALVES = {"bf16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16), "fp16": (TensorProto.FLOAT16, np.float16)}
VOCABULARY = 30522


def lengths_of(name, count, seed=1):
    """Drawn from the histogram of that name in bench/data/lengths."""
    file = pathlib.Path(__file__).resolve().parent / "data" / "lengths" / f"{name}.json"
    histogram = json.loads(file.read_text())["histogram"]
    return random.Random(seed).choices([int(n) for n in histogram], list(histogram.values()), k=count)


def halved(model, kind):
    """The model with all of its float32 in 16 bits, its outputs too."""
    code, dtype = HALVES[kind]
    graph = model.graph

    def convert(tensor):
        if tensor.data_type != TensorProto.FLOAT:
            return
        values = numpy_helper.to_array(tensor)
        name = tensor.name
        tensor.Clear()
        tensor.name, tensor.data_type = name, code
        tensor.dims.extend(values.shape)
        tensor.raw_data = values.astype(dtype).tobytes()

    for tensor in graph.initializer:
        convert(tensor)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                convert(attribute.t)
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = code
    for values in (graph.input, graph.output, graph.value_info):
        for value in values:
            if value.type.tensor_type.elem_type == TensorProto.FLOAT:
                value.type.tensor_type.elem_type = code
    return model


def write(folder, name):
    """`bert_base`, `bert_base_bf16`, `lstm_1024`, `lstm_1024_fp16`."""
    family, size, *half = name.split("_")
    if family == "bert":
        shape = {"base": bert.BERT_BASE, "mini": bert.MINILM_L6}[size]
        model = bert.bert(shape, bert._Seeded(shape, 0))
    else:
        model = recurrent.lstm_encoder(int(size))
    if half:
        model = halved(model, half[0])
    path = folder / f"{name}.onnx"
    builder.save(model, path)
    return path


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*", default=["bert_base", "bert_base_bf16", "bert_base_fp16", "lstm_1024"])
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for name in args.names:
        print(write(args.folder, name))

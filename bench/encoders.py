"""The common part of the encoder benchmarks: models with seeded weights, lengths of requests, and FLOPs."""

import functools
import json
import pathlib
import random

import numpy as np

import encoder_peers
import flops
import harness
from models import bert, builder

VOCABULARY = 30000  # token ids in use
SHAPES = {"minilm_l6": bert.MINILM_L6, "bert_base": bert.BERT_BASE}
GLUE = {"RTE": "glue_rte_train_bert", "MRPC": "glue_mrpc_train_dev_bert", "CoLA": "glue_cola_train_bert"}
UNIFORM = {"2-100": (2, 100), "5-500": (5, 500)}


def draw_lengths(name, count, seed=1):
    chance = random.Random(seed)
    if name in UNIFORM:
        return [chance.randint(*UNIFORM[name]) for _ in range(count)]
    text = (harness.ROOT / "bench" / "data" / "lengths" / f"{GLUE[name]}.json").read_text()
    histogram = json.loads(text)["histogram"]
    return chance.choices([int(length) for length in histogram], list(histogram.values()), k=count)


def requests_of(lengths, seed=1):
    rng = np.random.default_rng(seed)
    return [rng.integers(1000, VOCABULARY, length) for length in lengths]


class Model:
    """One encoder on disk, as ONNX and for CTranslate2, from the same weights."""

    def __init__(self, name, folder):
        self.name, self.shape = name, SHAPES[name]
        self.path = pathlib.Path(folder) / f"{name}.onnx"
        self.folder = pathlib.Path(folder) / f"{name}-ctranslate2"
        seeded = bert._Seeded(self.shape, 0)
        self.weights = functools.cache(seeded)
        self.model = bert.bert(self.shape, self.weights)
        builder.save(self.model, self.path)

    def ways(self, wanted, openvino_precision="f32"):
        """The peers' ways to run it, by peer; each was seen to give ONNX Runtime's answers."""
        made = {}
        if "onnxruntime" in wanted:
            made["onnxruntime"] = encoder_peers.onnxruntime_ways(self.path)
        if "openvino" in wanted:
            made["openvino"] = encoder_peers.openvino_ways(self.path, openvino_precision)
        if "ctranslate2" in wanted:
            encoder_peers.ctranslate2_model(self.weights, self.shape, self.folder)
            made["ctranslate2"] = encoder_peers.ctranslate2_ways(self.folder)
        return made

    @functools.cache
    def operations(self, length):
        """FLOPs of one request."""
        return flops.count(self.model, encoder_peers.model_inputs([np.full(length, 1000)]))[0]

    def operations_of(self, lengths):
        # They are a polynomial of the second degree in the length, which three points give.
        at = [16, 64, 256]
        curve = np.polyfit(at, [self.operations(n) for n in at], 2)
        return float(np.polyval(curve, np.array(lengths)).sum())

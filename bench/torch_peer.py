#!/usr/bin/env python3
"""Runs an embedding and an LSTM or GRU layer in PyTorch on padded batches: a process of bench/cellular.py.

    > SECONDS FIRST STEP     batches FIRST, FIRST + STEP, ... in turn
    < one line of JSON: seconds, tokens and requests; padding counts for nothing

BATCHES.json: [[[length, ...], padded length], ...]. The weights are the model's; its answer to one sequence is compared
with ONNX Runtime's.
"""

import argparse
import json
import pathlib
import sys
import time

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import numpy_helper


class Encoder(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        weights = [numpy_helper.to_array(w) for w in model.graph.initializer if w.data_type == onnx.TensorProto.FLOAT]
        table, w, r, bias = weights
        hidden = r.shape[2]

        lstm = any(node.op_type == "LSTM" for node in model.graph.node)
        # LSTM: input, output, forget, cell → input, forget, cell, output. GRU: update, reset, new → reset, update, new.
        order = [0, 2, 3, 1] if lstm else [1, 0, 2]

        def gates(array):
            parts = np.split(array, len(order))
            return torch.from_numpy(np.concatenate([parts[i] for i in order]))

        self.embedding = torch.nn.Embedding.from_pretrained(torch.from_numpy(table.copy()))
        self.layer = (torch.nn.LSTM if lstm else torch.nn.GRU)(w.shape[2], hidden)
        self.layer.weight_ih_l0.data = gates(w[0])
        self.layer.weight_hh_l0.data = gates(r[0])
        self.layer.bias_ih_l0.data = gates(bias[0, : len(order) * hidden])
        self.layer.bias_hh_l0.data = gates(bias[0, len(order) * hidden :])

    def forward(self, tokens, lengths):
        """tokens [length, batch]; the state after each sequence's last token."""
        states, _ = self.layer(self.embedding(tokens))
        return states[lengths - 1, torch.arange(tokens.shape[1])]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL.onnx")
    parser.add_argument("batches", metavar="BATCHES.json")
    parser.add_argument("threads", type=int)
    parser.add_argument("onednn", type=int, choices=[0, 1], help="whether layers run by oneDNN")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.set_num_interop_threads(1)
    torch.backends.mkldnn.enabled = args.onednn == 1
    encoder = Encoder(onnx.load(args.model)).eval()
    vocabulary = encoder.embedding.num_embeddings
    draw = torch.Generator().manual_seed(1)
    made = []
    for lengths, padded in json.loads(pathlib.Path(args.batches).read_text()):
        tokens = torch.randint(0, vocabulary, (padded, len(lengths)), generator=draw)
        made.append((tokens, torch.tensor(lengths), sum(lengths)))
    with torch.inference_mode():
        tokens, lengths, _ = made[0]
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(args.model, options, providers=["CPUExecutionProvider"])
        alone = tokens[: int(lengths[0]), :1].T.numpy()
        if not np.allclose(encoder(tokens, lengths)[0], session.run(None, {"tokens": alone})[0][0], atol=1e-4):
            raise SystemExit("PyTorch and ONNX Runtime differ")
        del session
        print("ready", flush=True)
        for line in sys.stdin:
            seconds, first, step = line.split()
            begin = time.perf_counter()
            useful = requests = 0
            at = int(first)
            while time.perf_counter() - begin < float(seconds):
                tokens, lengths, total = made[at % len(made)]
                at += int(step)
                encoder(tokens, lengths)
                useful += total
                requests += len(lengths)
            out = {"seconds": time.perf_counter() - begin, "tokens": useful, "requests": requests}
            print(json.dumps(out), flush=True)


if __name__ == "__main__":
    main()

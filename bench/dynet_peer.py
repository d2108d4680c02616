#!/usr/bin/env python3
"""A binary TreeLSTM in DyNet with automatic batching, on one thread: a process of bench/tree.py.

    > closed BATCH FORM SECONDS      batches of trees, one after the other
    > open BATCH FORM RATE SECONDS SEED   Poisson arrivals; a batch takes the waiting requests, at most BATCH
    < one line of JSON: seconds, trees, nodes, latencies in ms

The weights are those of our cells (leaf.onnx, internal.onnx, classes.onnx), and the first tree's answer is compared
with numpy's. FORM says how an inner node's gates are written: "joined", one product with both children's states
joined, or "split", a product for each child.
"""

import argparse
import json
import pathlib
import random
import sys
import time

import dynet_config

dynet_config.set(mem="1536,1,512,1024", autobatch=1, random_seed=1)
dynet_config.set_gpu(False)

import dynet as dy  # noqa: E402
import numpy as np  # noqa: E402
import onnx  # noqa: E402
from onnx import numpy_helper  # noqa: E402


def weights(file):
    initializers = onnx.load(file).graph.initializer
    return [numpy_helper.to_array(w) for w in initializers if w.data_type == onnx.TensorProto.FLOAT]


def parse(line):
    """Children of each node, after its own; a leaf is None."""
    nodes, stack = [], []
    for c in line:
        if c == "(":
            continue
        if c == ".":
            nodes.append(None)
        else:
            right, left = stack.pop(), stack.pop()
            nodes.append((left, right))
        stack.append(len(nodes) - 1)
    return nodes


class Model:
    def __init__(self, folder):
        self.table, self.leaf, self.leaf_bias = weights(folder / "leaf.onnx")
        self.internal, self.internal_bias = weights(folder / "internal.onnx")
        (self.head,) = weights(folder / "classes.onnx")
        self.hidden = self.head.shape[0]
        self.parameters = dy.ParameterCollection()

        def parameter(array):
            return self.parameters.parameters_from_numpy(np.ascontiguousarray(array))

        self.d_table = self.parameters.lookup_parameters_from_numpy(np.ascontiguousarray(self.table))
        self.d_leaf, self.d_leaf_bias = parameter(self.leaf.T), parameter(self.leaf_bias)
        self.d_internal, self.d_internal_bias = parameter(self.internal.T), parameter(self.internal_bias)
        self.d_left, self.d_right = parameter(self.internal[: self.hidden].T), parameter(self.internal[self.hidden :].T)
        self.d_head = parameter(self.head.T)

    def logits(self, tree, tokens, form):
        h = self.hidden
        states = []
        for node, children in enumerate(tree):
            if children is None:
                x = dy.lookup(self.d_table, tokens[node], update=False)
                gates = dy.affine_transform([self.d_leaf_bias, self.d_leaf, x])
                i, g, o = (dy.pick_range(gates, k * h, (k + 1) * h) for k in range(3))
                c = dy.cmult(dy.logistic(i), dy.tanh(g))
            else:
                (h_left, c_left), (h_right, c_right) = (states[child] for child in children)
                if form == "joined":
                    both = dy.concatenate([h_left, h_right])
                    gates = dy.affine_transform([self.d_internal_bias, self.d_internal, both])
                else:
                    gates = dy.affine_transform([self.d_internal_bias, self.d_left, h_left, self.d_right, h_right])
                i, f_left, f_right, g, o = (dy.pick_range(gates, k * h, (k + 1) * h) for k in range(5))
                kept = dy.cmult(dy.logistic(f_left), c_left) + dy.cmult(dy.logistic(f_right), c_right)
                c = kept + dy.cmult(dy.logistic(i), dy.tanh(g))
            states.append((dy.cmult(dy.logistic(o), dy.tanh(c)), c))
        return self.d_head * states[-1][0]

    def reference(self, tree, tokens):
        def sigmoid(x):
            return 1 / (1 + np.exp(-x))

        states = []
        for node, children in enumerate(tree):
            if children is None:
                i, g, o = np.split(self.table[tokens[node]] @ self.leaf + self.leaf_bias, 3)
                c = sigmoid(i) * np.tanh(g)
            else:
                (h_left, c_left), (h_right, c_right) = (states[child] for child in children)
                gates = np.concatenate([h_left, h_right]) @ self.internal + self.internal_bias
                i, f_left, f_right, g, o = np.split(gates, 5)
                c = sigmoid(f_left) * c_left + sigmoid(f_right) * c_right + sigmoid(i) * np.tanh(g)
            states.append((sigmoid(o) * np.tanh(c), c))
        return states[-1][0] @ self.head

    def run(self, batch, form):
        dy.renew_cg()
        answers = [self.logits(tree, tokens, form) for tree, tokens in batch]
        dy.forward(answers)
        return [answer.npvalue() for answer in answers]


def closed(model, requests, form, size, seconds):
    begin = time.perf_counter()
    trees = nodes = at = 0
    while time.perf_counter() - begin < seconds:
        batch = [requests[(at + i) % len(requests)] for i in range(size)]
        at += size
        model.run(batch, form)
        trees += size
        nodes += sum(len(tree) for tree, _ in batch)
    return {"seconds": time.perf_counter() - begin, "trees": trees, "nodes": nodes, "latencies_ms": []}


def opened(model, requests, form, size, rate, seconds, seed):
    gaps = random.Random(seed)
    due, at = [], gaps.expovariate(rate)
    while at < seconds:
        due.append(at)
        at += gaps.expovariate(rate)
    begin = time.perf_counter()
    latencies, nodes, sent = [], 0, 0
    while sent < len(due):
        now = time.perf_counter() - begin
        if due[sent] > now:
            time.sleep(due[sent] - now)
            continue
        last = sent
        while last < len(due) and last - sent < size and due[last] <= now:
            last += 1
        batch = [requests[i % len(requests)] for i in range(sent, last)]
        model.run(batch, form)
        end = time.perf_counter() - begin
        latencies += [1e3 * (end - at) for at in due[sent:last]]
        nodes += sum(len(tree) for tree, _ in batch)
        sent = last
    return {"seconds": time.perf_counter() - begin, "trees": sent, "nodes": nodes, "latencies_ms": latencies}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", type=pathlib.Path, help="folder of the cells")
    parser.add_argument("trees", type=pathlib.Path, help="file of trees, one a line")
    args = parser.parse_args()
    model = Model(args.cells)
    draw = random.Random(1)
    trees = [parse(line) for line in args.trees.read_text().split()]
    requests = [(tree, [draw.randrange(len(model.table)) for _ in tree]) for tree in trees]
    for form in ("joined", "split"):
        (answer,) = model.run(requests[:1], form)
        if not np.allclose(answer, model.reference(*requests[0]), atol=1e-4):
            raise SystemExit("DyNet and numpy differ")
    print("ready", flush=True)
    for line in sys.stdin:
        verb, size, form, *rest = line.split()
        if verb == "closed":
            out = closed(model, requests, form, int(size), float(rest[0]))
        else:
            out = opened(model, requests, form, int(size), float(rest[0]), float(rest[1]), int(rest[2]))
        print(json.dumps(out), flush=True)


if __name__ == "__main__":
    main()

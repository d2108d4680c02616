#!/usr/bin/env python3
"""Compares random models of functions that call functions with ONNX Runtime.

Functions have attributes with and without defaults, passed on through calls. They have overloads, optional inputs,
unused outputs, and opsets of their own. Bodies of If, Loop and Scan call functions and capture values. Names are few,
so that those of functions, bodies and the model collide. Answers and the names of outputs must be equal.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import AttributeProto, TensorProto, helper

SHAPE = [3, 4]
DOMAIN = "local"
TOLERANCE = 1e-4


def tensor(name, dtype=TensorProto.FLOAT, shape=SHAPE):
    return helper.make_tensor_value_info(name, dtype, shape)


class Function:
    def __init__(self, name, overload, inputs, required, outputs, attributes, defaults):
        self.name, self.overload, self.inputs, self.required = name, overload, inputs, required
        self.outputs, self.attributes, self.defaults = outputs, attributes, defaults


class Writer:
    """Nodes of one scope: every value has shape [3, 4]."""

    def __init__(self, rng, functions, attributes=(), taken=(), depth=0):
        self.rng, self.functions, self.attributes, self.depth = rng, functions, attributes, depth
        self.nodes, self.values, self.taken = [], [], set(taken)

    def name(self):
        for length in (1, 1, 1, 2, 2, 3, 4, 6):
            name = "".join(self.rng.choice(list("abxyt"), length))
            if name not in self.taken:
                self.taken.add(name)
                return name
        raise RuntimeError("no name is left")

    def value(self):
        return str(self.rng.choice(self.values))

    def add(self, op, inputs, outputs=None, domain="", overload="", **attributes):
        outputs = outputs or [self.name()]
        node = helper.make_node(op, inputs, outputs, domain=domain, **attributes)
        if overload:
            node.overload = overload
        self.nodes.append(node)
        self.values += [o for o in outputs if o]
        return outputs[0]

    def refer(self, name, kind):
        """An attribute of the function around, or a number."""
        mine = [a for a in self.attributes if a.startswith(kind[0])]
        if mine and self.rng.random() < 0.7:
            attribute = AttributeProto()
            attribute.name, attribute.ref_attr_name = name, str(self.rng.choice(mine))
            attribute.type = {"f": AttributeProto.FLOAT, "i": AttributeProto.INT}[kind[0]]
            return attribute
        number = float(self.rng.integers(1, 9)) / 4 if kind[0] == "f" else int(self.rng.integers(0, 2))
        return helper.make_attribute(name, number)

    def with_attribute(self, op, inputs, attributes, **more):
        out = self.add(op, inputs, **more)
        self.nodes[-1].attribute.extend(attributes)
        return out

    def scalar(self, op, value):
        """A one-element value of it, which a body may capture or a condition compare."""
        reduced = self.name()
        self.nodes.append(helper.make_node(op, [value], [reduced], keepdims=0))
        return reduced

    def body(self):
        inner = Writer(self.rng, self.functions, self.attributes, self.taken, self.depth + 1)
        inner.values = list(self.values)
        return inner

    def condition(self):
        total, zero, flag = self.scalar("ReduceMax", self.value()), self.name(), self.name()
        self.nodes.append(helper.make_node("Constant", [], [zero], value_float=1.0))
        self.nodes.append(helper.make_node("Greater", [total, zero], [flag]))
        return flag

    def branch(self):
        inner = self.body()
        for _ in range(self.rng.integers(1, 3)):
            inner.step()
        self.taken |= inner.taken
        return helper.make_graph(inner.nodes, "branch", [], [tensor(inner.nodes[-1].output[0], shape=None)])

    def make_if(self):
        flag = self.condition()
        then, otherwise = self.branch(), self.branch()
        self.add("If", [flag], then_branch=then, else_branch=otherwise)

    def make_loop(self):
        count, keep, state = self.name(), self.name(), self.value()
        self.nodes.append(helper.make_node("Constant", [], [count], value_int=int(self.rng.integers(0, 3))))
        inner = self.body()
        i, c, s, out = inner.name(), inner.name(), inner.name(), inner.name()
        inner.values.append(s)
        for _ in range(self.rng.integers(1, 3)):
            inner.step()
        inner.nodes.append(helper.make_node("Tanh", [inner.values[-1]], [out]))
        inner.nodes.append(helper.make_node("Identity", [c], [keep]))
        graph = helper.make_graph(inner.nodes, "body", [tensor(i, TensorProto.INT64, []), tensor(c, TensorProto.BOOL, []),
                                                        tensor(s)],
                                  [tensor(keep, TensorProto.BOOL, []), tensor(out)])
        self.taken |= inner.taken
        self.add("Loop", [count, "", state], body=graph)

    def make_scan(self):
        inner = self.body()
        inner.values = []
        row, out = inner.name(), inner.name()
        inner.nodes.append(helper.make_node("Neg", [row], [inner.name()]))
        inner.nodes.append(helper.make_node("Mul", [inner.nodes[-1].output[0], row], [out]))
        graph = helper.make_graph(inner.nodes, "body", [tensor(row, shape=[4])], [tensor(out, shape=[4])])
        self.taken |= inner.taken
        self.add("Scan", [self.value()], body=graph, num_scan_inputs=1)

    def call(self, function, outputs=None):
        inputs = [self.value() for _ in function.inputs[:function.required]]
        for _ in function.inputs[function.required:]:
            inputs.append(self.name() if self.rng.random() < 0.5 else "")
            if inputs[-1]:
                self.nodes.append(helper.make_node("Constant", [], [inputs[-1]], value_float=-0.5))
        while inputs and not inputs[-1] and self.rng.random() < 0.5:
            inputs.pop()
        if outputs is None:
            outputs = [self.name() for _ in function.outputs]
        self.add(function.name, inputs, outputs, DOMAIN, function.overload)
        for name in function.attributes:
            self.nodes[-1].attribute.append(self.refer(name, name))
        for name in function.defaults:
            if self.rng.random() < 0.4:
                self.nodes[-1].attribute.append(self.refer(name, name))

    def step(self):
        choice = self.rng.random()
        if self.functions and choice < 0.35:
            self.call(self.functions[self.rng.integers(len(self.functions))])
        elif choice < 0.45 and self.depth < 2:
            self.make_if()
        elif choice < 0.52 and self.depth < 2:
            self.make_loop()
        elif choice < 0.57 and self.depth < 2:
            self.make_scan()
        elif choice < 0.68:
            self.with_attribute("LeakyRelu", [self.value()], [self.refer("alpha", "f")])
        elif choice < 0.76:
            self.with_attribute("Softmax", [self.value()], [self.refer("axis", "i")])
        elif choice < 0.86:
            number = self.name()
            self.nodes.append(helper.make_node("Constant", [], [number]))
            self.nodes[-1].attribute.append(self.refer("value_float", "f"))
            self.add(str(self.rng.choice(["Add", "Mul"])), [self.value(), number])
        elif choice < 0.93:
            self.add(str(self.rng.choice(["Add", "Sub"])), [self.value(), self.value()])
        else:
            self.add(str(self.rng.choice(["Neg", "Tanh", "Abs"])), [self.value()])


def make_function(rng, i, functions):
    """Returns a function and its properties. An optional input is a scalar for Clip, which works without it."""
    overload = "" if rng.random() < 0.6 else f"o{i}"
    name = f"f{i}" if not overload else "g"
    attributes = [a for a in ("f1", "i1") if rng.random() < 0.5]
    defaults = {"f2": float(rng.integers(1, 9)) / 8, "i2": int(rng.integers(0, 2))}
    defaults = {k: v for k, v in defaults.items() if rng.random() < 0.5}
    # ONNX Runtime computes with the opset of the model, whatever the function imports: all of these mean the same.
    opset = int(rng.choice([13, 15, 16, 17]))
    writer = Writer(rng, functions, [*attributes, *defaults])
    inputs = [writer.name() for _ in range(rng.integers(1, 4))]
    required = int(rng.integers(1, len(inputs) + 1))
    writer.values = inputs[:required]
    for optional in inputs[required:]:
        if rng.random() < 0.3:
            continue  # unused
        most = writer.name()
        writer.nodes.append(helper.make_node("Constant", [], [most], value_float=0.5))
        writer.add("Clip", [writer.value(), optional, most])
    for _ in range(rng.integers(2, 6)):
        writer.step()
    made = [o for node in writer.nodes for o in node.output if o and o in writer.values]
    outputs = [str(o) for o in rng.permutation(made)[:rng.integers(1, 4)]]
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, 1)]
    proto = helper.make_function(DOMAIN, name, inputs, outputs, writer.nodes, imports, attributes,
                                 [helper.make_attribute(k, v) for k, v in defaults.items()], overload=overload)
    return proto, Function(name, overload, inputs, required, outputs, attributes, list(defaults))


def make_model(rng):
    protos, functions = [], []
    for i in range(rng.integers(1, 5)):
        proto, function = make_function(rng, i, list(functions))
        protos.append(proto)
        functions.append(function)
    writer = Writer(rng, functions)
    inputs = [writer.name() for _ in range(2)]
    writer.values = list(inputs)
    for _ in range(rng.integers(1, 5)):
        writer.step()
    writer.call(functions[-1])
    made = [o for node in writer.nodes for o in node.output if o and o in writer.values]
    last = writer.nodes[-1].output[0]
    outputs = list(dict.fromkeys([last, *(str(o) for o in rng.permutation(made)[:3])]))
    graph = helper.make_graph(writer.nodes, "graph", [tensor(i) for i in inputs], [tensor(o, shape=None) for o in outputs])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=imports, functions=protos, ir_version=10), inputs, outputs


def without_overloads(model):
    """The same with functions of different names: ONNX Runtime has no overloads."""
    other = onnx.ModelProto()
    other.CopyFrom(model)

    def rename(nodes):
        for node in nodes:
            if node.overload:
                node.op_type, node.overload = node.op_type + node.overload, ""
            for attribute in node.attribute:
                rename(attribute.g.node)

    rename(other.graph.node)
    for function in other.functions:
        function.name, function.overload = function.name + function.overload, ""
        rename(function.node)
    return other


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chairlift", default="build/release/bin/chairlift")
    parser.add_argument("--models", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", help="where to write a model that fails")
    args = parser.parse_args()
    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    passed = failed = skipped = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for seed in range(args.seed, args.seed + args.models):
            rng = np.random.default_rng(seed)
            model, inputs, outputs = make_model(rng)
            feeds = {i: rng.normal(size=SHAPE).astype(np.float32) for i in inputs}
            try:
                peer_model = without_overloads(model).SerializeToString()
                peer = onnxruntime.InferenceSession(peer_model, options, ["CPUExecutionProvider"])
                want = dict(zip(outputs, peer.run(outputs, feeds)))
            except Exception as exception:  # noqa: BLE001: what the peer does not take is no case
                skipped += 1
                if args.keep:
                    print("skipped", seed, str(exception)[:300])
                continue
            onnx.save(model, folder / "model.onnx")
            out = folder / f"out{seed}"
            command = [args.chairlift, "run", folder / "model.onnx", "--output-dir", out]
            for key, value in feeds.items():
                np.save(folder / f"{key}.npy", value)
                command += ["--input", f"{key}={folder / key}.npy"]
            run = subprocess.run(command, capture_output=True, text=True)
            if run.returncode != 0:
                reason = run.stderr.strip() or f"exit status {run.returncode}"
            else:
                got = {path.stem: np.load(path) for path in out.iterdir()}
                reason = ""
                if set(got) != set(want):
                    reason = f"outputs are {sorted(got)}, not {sorted(want)}"
                for key in set(got) & set(want):
                    if got[key].shape != want[key].shape or not np.allclose(got[key], want[key], TOLERANCE, TOLERANCE):
                        reason = f"output {key} differs"
            if reason:
                failed += 1
                print(f"FAILED seed {seed}: {reason}")
                if args.keep:
                    onnx.save(model, pathlib.Path(args.keep) / f"functions_{seed}.onnx")
            else:
                passed += 1
    print(f"{passed} passed, {failed} failed, {skipped} that ONNX Runtime does not take")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())

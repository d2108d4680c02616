"""A small helper over onnx.helper: nodes in order, seeded weights, names made up."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Builder:
    def __init__(self, name, seed=0, opset=17):
        self.name = name
        self.opset = opset
        self.rng = np.random.default_rng(seed)
        self.nodes, self.initializers, self.inputs, self.outputs = [], [], [], []
        self._count = 0

    def unique(self, stem):
        self._count += 1
        return f"{stem}_{self._count}"

    def input(self, name, shape, dtype=TensorProto.FLOAT):
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def output(self, value, name, shape, dtype=TensorProto.FLOAT):
        self.nodes.append(helper.make_node("Identity", [value], [name], name=f"output_{name}"))
        self.outputs.append(helper.make_tensor_value_info(name, dtype, shape))

    def constant(self, array, name="constant"):
        name = self.unique(name)
        self.initializers.append(numpy_helper.from_array(np.array(array, order="C"), name))
        return name

    def weight(self, *shape, scale=None, name="weight"):
        """Seeded float32 weights; the default scale keeps activations near unit variance."""
        if scale is None:
            scale = (2.0 / max(1, int(np.prod(shape[1:])))) ** 0.5
        return self.constant((self.rng.standard_normal(shape) * scale).astype(np.float32), name)

    def ints(self, *values):
        return self.constant(np.array(values, dtype=np.int64), "ints")

    def scalar(self, value):
        return self.constant(np.array(value, dtype=np.float32), "scalar")

    def node(self, op_type, *inputs, outputs=1, domain="", **attributes):
        names = [self.unique(op_type.lower()) for _ in range(outputs)]
        self.nodes.append(
            helper.make_node(op_type, list(inputs), names, name=self.unique(op_type), domain=domain, **attributes)
        )
        return names[0] if outputs == 1 else names

    def model(self):
        graph = helper.make_graph(self.nodes, self.name, self.inputs, self.outputs, self.initializers)
        return helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", self.opset)],
            ir_version=8,
            producer_name="chairlift-examples",
        )


def save(model, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(path))

#!/usr/bin/env python3
"""Writes a model, y = x + x, [batch, 4]: doubling.py FILE"""

import sys

import onnx
from onnx import TensorProto, helper

value = (TensorProto.FLOAT, ["batch", 4])
graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "doubling",
                          [helper.make_tensor_value_info("x", *value)], [helper.make_tensor_value_info("y", *value)])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), sys.argv[1])

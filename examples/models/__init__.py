"""Builders of ONNX models from seeded or given weights, written as common exporters write them."""

#!/usr/bin/env python3
"""Writes src/graph/onnx/operator_attributes.inc: the attributes of each operator, by opset.

The operators of ai.onnx and ai.onnx.ml are those of the installed onnx, those of com.microsoft are
those of the installed onnxruntime.
"""

import argparse
import pathlib
import sys

import onnx
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as runtime

OUT = pathlib.Path(__file__).resolve().parent.parent / "src/graph/onnx/operator_attributes.inc"


def versions():
    """By domain and operator: pairs of a first opset and its attributes."""
    found = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain in ("", "ai.onnx.ml"):
            found.setdefault((schema.domain, schema.name), {})[schema.since_version] = sorted(schema.attributes)
    for schema in runtime.get_all_operator_schema():
        if schema.domain == "com.microsoft":
            found.setdefault((schema.domain, schema.name), {})[schema.since_version] = sorted(schema.attributes)
    return found


def text():
    lines = [
        f"// Made by tools/make_operator_attributes.py of onnx {onnx.__version__} and onnxruntime {onnxruntime.__version__}.",
        "// Domain, operator, first opset, attributes.",
    ]
    for (domain, name), by_opset in sorted(versions().items()):
        before = None
        for opset, attributes in sorted(by_opset.items()):
            if attributes != before:
                lines.append(f'{{"{domain}", "{name}", {opset}, "{" ".join(attributes)}"}},')
            before = attributes
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the file would change")
    if not parser.parse_args().check:
        OUT.write_text(text())
    elif OUT.read_text() != text():
        sys.exit(f"{OUT} is not what this onnx and this onnxruntime say: run tools/make_operator_attributes.py")


if __name__ == "__main__":
    main()

"""Writes the operator test cases of the `onnx` package to files.

DIR/node/<case> gets model.onnx and test_data_set_*, in the layout of Debian's libonnx-testdata. Cases of other domains
than ai.onnx are left out. So are cases with values that are not tensors.
"""
import argparse
import pathlib
import shutil
import warnings

from onnx import TensorProto, numpy_helper
from onnx.backend.test.loader import load_model_tests


def is_wanted(case):
    domains = {entry.domain for entry in case.model.opset_import}
    values = [*case.model.graph.input, *case.model.graph.output]
    return domains <= {"", "ai.onnx"} and all(v.type.HasField("tensor_type") for v in values)


def write_tensors(folder, prefix, values, infos):
    for i, (value, info) in enumerate(zip(values, infos)):
        if not isinstance(value, TensorProto):
            value = numpy_helper.from_array(value, info.name)
        (folder / f"{prefix}_{i}.pb").write_bytes(value.SerializeToString())


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=pathlib.Path, required=True, metavar="DIR")
    root = parser.parse_args().output / "node"
    warnings.simplefilter("ignore")  # cases overflow on purpose
    shutil.rmtree(root, ignore_errors=True)
    cases = [case for case in load_model_tests(kind="node") if is_wanted(case)]
    for case in cases:
        for i, (inputs, outputs) in enumerate(case.data_sets):
            folder = root / case.name / f"test_data_set_{i}"
            folder.mkdir(parents=True)
            write_tensors(folder, "input", inputs, case.model.graph.input)
            write_tensors(folder, "output", outputs, case.model.graph.output)
        (root / case.name / "model.onnx").write_bytes(case.model.SerializeToString())
    print(f"{len(cases)} cases in {root}")


if __name__ == "__main__":
    main()

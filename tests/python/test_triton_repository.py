"""A repository like Triton's examples, with config.pbtxt, over HTTP with the requests of Triton's clients."""

import json
import urllib.error
import urllib.request

import numpy as np
import pytest
from onnx import TensorProto

from conftest import onnx_file
from serving import Serving

TYPES = {"INT32": TensorProto.INT32, "INT8": TensorProto.INT8, "FP32": TensorProto.FLOAT}


def add(folder, name, config, *model):
    (folder / name / "1").mkdir(parents=True)
    (folder / name / "config.pbtxt").write_text(config)
    if model:
        onnx_file(folder / name / "1/model.onnx", *model)


def add_sub(kind):
    """The exporter gave each tensor's first dimension a name of its own."""
    value = [TYPES[kind], ["unk", 16]]
    return ([("Add", ["INPUT0", "INPUT1"], ["OUTPUT0"]), ("Sub", ["INPUT0", "INPUT1"], ["OUTPUT1"])],
            [("INPUT0", value[0], ["a", 16]), ("INPUT1", value[0], ["b", 16])],
            [("OUTPUT0", *value), ("OUTPUT1", *value)])


def simple(name, kind):
    tensors = [f'[ {{ name: "{prefix}0" data_type: TYPE_{kind} dims: [ 16 ] }},'
               f' {{ name: "{prefix}1" data_type: TYPE_{kind} dims: [ 16 ] }} ]' for prefix in ["INPUT", "OUTPUT"]]
    return f'name: "{name}" platform: "onnxruntime_onnx" max_batch_size: 8 input {tensors[0]} output {tensors[1]}'


# y = x + where(start, 0, state) + end · id: the computation of the sequence example, with the state outside.
SEQUENCE = ([("Sub", ["one", "START"], ["goes_on"]), ("Mul", ["STATE", "goes_on"], ["kept"]), ("Add", ["INPUT", "kept"], ["sum"]),
             ("Cast", ["CORRID"], ["id"], {"to": TensorProto.INT32}), ("Mul", ["id", "END"], ["last"]),
             ("Add", ["sum", "last"], ["OUTPUT"]), ("Identity", ["OUTPUT"], ["NEXT"])],
            [(name, TensorProto.INT32, [name + ".0", 1]) for name in ["INPUT", "START", "END", "READY", "STATE"]]
            + [("CORRID", TensorProto.UINT64, ["c", 1])],
            [("OUTPUT", TensorProto.INT32, ["n", 1]), ("NEXT", TensorProto.INT32, ["n", 1])],
            [("one", np.array([[1]], np.int32))])
SEQUENCE_CONFIG = """
name: "%s"
backend: "onnxruntime"
max_batch_size: 8
sequence_batching {
  max_sequence_idle_microseconds: 5000000
  %s
  control_input [
    { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
    { name: "END" control [ { kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 1 ] } ] },
    { name: "READY" control [ { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0, 1 ] } ] },
    { name: "CORRID" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ] }
  ]
  state [ { input_name: "STATE" output_name: "NEXT" data_type: TYPE_INT32 dims: [ 1 ] } ]
}
input [ { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU } ]
"""

DENSENET = """
name: "densenet_onnx"
platform: "onnxruntime_onnx"
max_batch_size : 0
input [ { name: "data_0" data_type: TYPE_FP32 format: FORMAT_NCHW dims: [ 3, 8, 8 ] reshape { shape: [ 1, 3, 8, 8 ] } } ]
output [ { name: "fc6_1" data_type: TYPE_FP32 dims: [ 3 ] reshape { shape: [ 1, 3, 1, 1 ] } label_filename: "labels.txt" } ]
"""

ENSEMBLE = """
name: "ensemble"
platform: "ensemble"
max_batch_size: 8
input [ { name: "A" data_type: TYPE_INT32 dims: [ 16 ] }, { name: "B" data_type: TYPE_INT32 dims: [ 16 ] } ]
output [ { name: "TWICE_A" data_type: TYPE_INT32 dims: [ 16 ] } ]
ensemble_scheduling {
  step [
    { model_name: "simple" model_version: -1
      input_map { key: "INPUT0" value: "sum" } input_map { key: "INPUT1" value: "difference" }
      output_map { key: "OUTPUT0" value: "TWICE_A" } },
    { model_name: "simple" model_version: -1
      input_map { key: "INPUT0" value: "A" } input_map { key: "INPUT1" value: "B" }
      output_map { key: "OUTPUT0" value: "sum" } output_map { key: "OUTPUT1" value: "difference" } }
  ]
}
"""


class Server(Serving):
    def __init__(self, folder):
        self.serve("--model-repository", folder, "--model-control-mode", "explicit", "--load-model", "*")

    def ask(self, path, body=None):
        request = urllib.request.Request(self.url + path, None if body is None else json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                text = response.read()
                return response.status, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def infer(self, model, parameters=None, outputs=None, **inputs):
        """`inputs`: (type, array)."""
        tensors = [{"name": name, "datatype": kind, "shape": list(array.shape), "data": array.ravel().tolist()}
                   for name, (kind, array) in inputs.items()]
        body = {"inputs": tensors, "parameters": parameters or {}, **({"outputs": outputs} if outputs else {})}
        status, answer = self.ask(f"/v2/models/{model}/infer", body)
        if status != 200:
            return status, answer["error"]
        return status, {one["name"]: np.array(one["data"]).reshape(one["shape"]) for one in answer["outputs"]}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("triton")
    add(folder, "simple", simple("simple", "INT32"), *add_sub("INT32"))
    add(folder, "simple_int8", simple("simple_int8", "INT8"), *add_sub("INT8"))
    add(folder, "simple_sequence", SEQUENCE_CONFIG % ("simple_sequence", "direct { }"), *SEQUENCE)
    add(folder, "simple_dyna_sequence",
        SEQUENCE_CONFIG % ("simple_dyna_sequence", "oldest { max_candidate_sequences: 1024 preferred_batch_size: [ 4, 8 ]"
                           " max_queue_delay_microseconds: 100 }"), *SEQUENCE)
    weight = np.arange(27, dtype=np.float32).reshape(3, 3, 3, 1)[..., :1].reshape(3, 9, 1, 1)[:, :3] + 1
    add(folder, "densenet_onnx", DENSENET,
        [("Conv", ["data_0", "w"], ["conv"]), ("GlobalAveragePool", ["conv"], ["fc6_1"])],
        [("data_0", TensorProto.FLOAT, [1, 3, 8, 8])], [("fc6_1", TensorProto.FLOAT, [1, 3, 1, 1])], [("w", weight)])
    (folder / "densenet_onnx/labels.txt").write_text("TENCH\nGOLDFISH\nSHARK\n")
    add(folder, "ensemble", ENSEMBLE)
    server = Server(folder)
    server.folder = folder
    yield server
    server.close()


@pytest.mark.parametrize(("model", "kind"), [("simple", "INT32"), ("simple_int8", "INT8")])
def test_the_first_dimension_is_the_batch(server, model, kind):
    config = server.ask(f"/v2/models/{model}/config")[1]
    assert (config["max_batch_size"], config["input"][0]["dims"]) == (8, [16])
    assert [one["shape"] for one in server.ask(f"/v2/models/{model}")[1]["outputs"]] == [[-1, 16]] * 2
    for rows, beside, wanted in [(3, 1, 400), (9, 9, 400), (3, 3, 200)]:
        a, b = np.arange(rows * 16).reshape(rows, 16) % 50, np.ones((beside, 16), int)
        status, answer = server.infer(model, INPUT0=(kind, a), INPUT1=(kind, b))
        assert status == wanted, answer
    np.testing.assert_array_equal(answer["OUTPUT0"], a + b)
    np.testing.assert_array_equal(answer["OUTPUT1"], a - b)


@pytest.mark.parametrize("model", ["simple_sequence", "simple_dyna_sequence"])
def test_sequences_fill_their_control_inputs(server, model):
    assert [one["name"] for one in server.ask(f"/v2/models/{model}")[1]["inputs"]] == ["INPUT"]
    assert "sequence_batching" in server.ask(f"/v2/models/{model}/config")[1]

    def chunk(sequence, value, **marks):
        status, answer = server.infer(model, {"sequence_id": sequence, **marks}, INPUT=("INT32", np.array([[value]])))
        assert status == 200, answer
        return answer["OUTPUT"].item()

    assert chunk(1007, 11, sequence_start=True) == 11
    assert chunk(1008, 5, sequence_start=True) == 5
    assert chunk(1007, 7) == 18
    assert chunk(1008, -5) == 0
    assert chunk(1007, 0, sequence_end=True) == 18 + 1007
    assert chunk(1007, 1, sequence_start=True) == 1
    assert server.infer(model, INPUT=("INT32", np.array([[1]])))[0] == 400
    assert server.infer(model, {"sequence_id": "text", "sequence_start": True}, INPUT=("INT32", np.array([[1]])))[0] == 400


def test_reshaped_images_get_classes_with_labels(server):
    assert server.ask("/v2/models/densenet_onnx")[1]["inputs"][0]["shape"] == [3, 8, 8]
    image = np.ones((3, 8, 8), np.float32)
    status, answer = server.infer("densenet_onnx", data_0=("FP32", image))
    assert status == 200, answer
    assert answer["fc6_1"].shape == (3,)
    best = int(answer["fc6_1"].argmax())
    status, classes = server.infer("densenet_onnx", data_0=("FP32", image),
                                   outputs=[{"name": "fc6_1", "parameters": {"classification": 2}}])
    assert status == 200, classes
    assert classes["fc6_1"].shape == (2,)
    assert classes["fc6_1"][0] == f"{answer['fc6_1'].max():f}:{best}:{['TENCH', 'GOLDFISH', 'SHARK'][best]}"
    assert server.infer("densenet_onnx", data_0=("FP32", image[None]))[0] == 400


def test_an_ensemble_runs_its_steps(server):
    a, b = np.arange(32).reshape(2, 16), np.ones((2, 16), int)
    status, answer = server.infer("ensemble", A=("INT32", a), B=("INT32", b))
    assert status == 200, answer
    np.testing.assert_array_equal(answer["TWICE_A"], 2 * a)
    assert server.infer("ensemble", A=("INT32", a), B=("INT32", b[:1]))[0] == 400


def test_a_client_loads_a_model_with_its_own_configuration(server):
    def load(**parameters):
        return server.ask("/v2/repository/models/simple/load", {"parameters": parameters})

    config = server.ask("/v2/models/simple/config")[1]
    config["max_batch_size"] = 2
    assert load(config=json.dumps(config)) == (200, None)
    assert server.ask("/v2/models/simple/config")[1]["max_batch_size"] == 2
    status, answer = load(config=json.dumps({**config, "no_such_field": 1}))
    assert status == 400 and "no_such_field" in answer["error"]
    assert load(config={})[0] == 400
    assert load(**{"file:1/model.onnx": "AA=="})[0] == 400
    assert load() == (200, None)
    assert server.ask("/v2/models/simple/config")[1]["max_batch_size"] == 8

"""Models of strings, in the package and over HTTP."""

import json
import struct
import urllib.request

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import chairlift
from serving import Serving

COLOURS = ["red", "a colour of more than sixteen bytes", ""]
NAMES = ["rouge", "une couleur de plus de seize octets", "rien"]


def colours(path):
    """name: each colour's, code: its number, same: the colours themselves. All [batch, 2]."""
    nodes = [helper.make_node("LabelEncoder", ["t"], ["name"], domain="ai.onnx.ml", keys_strings=COLOURS,
                              values_strings=NAMES, default_string="?"),
             helper.make_node("LabelEncoder", ["t"], ["code"], domain="ai.onnx.ml", keys_strings=COLOURS,
                              values_int64s=[0, 1, 2]),
             helper.make_node("Identity", ["t"], ["same"])]
    of = [helper.make_tensor_value_info(name, dtype, ["batch", 2]) for name, dtype in (
        ("t", TensorProto.STRING), ("name", TensorProto.STRING), ("code", TensorProto.INT64), ("same", TensorProto.STRING))]
    onnx.save(helper.make_model(
        helper.make_graph(nodes, "colours", of[:1], of[1:]), ir_version=8,
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]), path)
    return path


def expected(texts):
    codes = [COLOURS.index(text) if text in COLOURS else -1 for text in texts]
    return [NAMES[code] if code >= 0 else "?" for code in codes], codes


TEXTS = ["red", "", "déjà", "a colour of more than sixteen bytes"]


@pytest.mark.parametrize("given", [
    [TEXTS[:2], TEXTS[2:]], [[text.encode() for text in TEXTS[:2]], TEXTS[2:]], np.array(TEXTS).reshape(2, 2),
    np.array(TEXTS, object).reshape(2, 2)], ids=["lists", "bytes", "array", "objects"])
def test_the_package_takes_nested_text(folder, given):
    with chairlift.load(colours(folder / "colours.onnx")) as model:
        got = model(t=given)
    names, codes = expected(TEXTS)
    assert [text.decode() for text in got["name"].ravel()] == names
    assert got["code"].ravel().tolist() == codes
    assert [text.decode() for text in got["same"].ravel()] == TEXTS
    assert got["name"].shape == (2, 2)


@pytest.mark.parametrize("given", [[["a", "b"], ["c"]], [["a", "b"], "c"], [["a", 1]], "ab", [["a", ["b"]]]])
def test_the_package_refuses_other_nestings(folder, given):
    with chairlift.load(colours(folder / "colours.onnx")) as model:
        with pytest.raises(chairlift.InvalidArgument, match="input 't'"):
            model(t=given)


@pytest.mark.parametrize("given", ["red", b"red", np.array("red"), np.array("red", object), np.array(b"red")])
def test_the_package_takes_a_single_text(folder, given):
    of = [helper.make_tensor_value_info(name, TensorProto.STRING, []) for name in ("t", "y")]
    path = folder / "single.onnx"
    onnx.save(helper.make_model(
        helper.make_graph([helper.make_node("Identity", ["t"], ["y"])], "single", of[:1], of[1:]), ir_version=8,
        opset_imports=[helper.make_opsetid("", 17)]), path)
    with chairlift.load(path) as model:
        assert model(t=given).tolist() == b"red"
    with chairlift.load(colours(folder / "colours.onnx")) as model:
        with pytest.raises(chairlift.InvalidArgument, match="input 't' takes text: a list"):
            model(t=given)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    path = colours(tmp_path_factory.mktemp("text") / "colours.onnx")
    server = Serving()
    server.serve(path)
    yield server.url + "/v2/models/colours"
    server.close()


def post(url, body, **headers):
    request = urllib.request.Request(url, body, headers={name.replace("_", "-"): value for name, value in headers.items()})
    with urllib.request.urlopen(request) as answer:
        return answer.read(), answer.headers


def test_metadata_says_bytes(server):
    with urllib.request.urlopen(server) as answer:
        metadata = json.loads(answer.read())
    assert metadata["inputs"] == [{"name": "t", "datatype": "BYTES", "shape": [-1, 2]}]
    assert [output["datatype"] for output in metadata["outputs"]] == ["BYTES", "INT64", "BYTES"]


def test_strings_in_json(server):
    body = {"inputs": [{"name": "t", "datatype": "BYTES", "shape": [2, 2], "data": TEXTS}]}
    outputs = json.loads(post(server + "/infer", json.dumps(body).encode())[0])["outputs"]
    names, codes = expected(TEXTS)
    assert [output["data"] for output in outputs] == [names, codes, TEXTS]
    answer = json.loads(post(server + "/generate", json.dumps({"t": [TEXTS[:2]]}).encode())[0])
    assert answer["code"] in (codes[:2], [codes[:2]])


def test_strings_in_binary_data(server):
    data = b"".join(struct.pack("<I", len(text.encode())) + text.encode() for text in TEXTS)
    head = json.dumps({
        "inputs": [{"name": "t", "datatype": "BYTES", "shape": [2, 2], "parameters": {"binary_data_size": len(data)}}],
        "outputs": [{"name": "same", "parameters": {"binary_data": True}}]}).encode()
    body, headers = post(server + "/infer", head + data, Inference_Header_Content_Length=str(len(head)))
    assert body[int(headers["Inference-Header-Content-Length"]):] == data

"""Files and folders that are not what Chairlift serves."""

import gzip
import io
import os
import pickle
import struct
import zipfile

import numpy as np
import onnx
from onnx import TensorProto, helper

from workshop import Mistake, doubling, graph, nobody, tagger

REST = b"x" * 3000
FLOATS = [("x", TensorProto.FLOAT, [4])], [("y", TensorProto.FLOAT, [4])]


def file(name, data):
    """Serves a file of these bytes."""
    return lambda w: (w.put(f"files/{name}", data), w.run("inspect", f"files/{name}"))[1]


def folder(name, *names):
    """Serves a folder with these files."""
    def serve(w):
        for one in names:
            w.put(f"{name}/{one}", b"\x80\x02what")
        (w.folder / name).mkdir(exist_ok=True)
        return w.serve(name)
    return serve


def archive(*names):
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as into:
        for name in names:
            into.writestr(name, "x" * 99)
    return written.getvalue()


def node(op, *args, opset=17, domains=(), outputs=FLOATS[1]):
    """A model of one node."""
    model = graph([(op, *args)], FLOATS[0], outputs, opset=opset, domains=domains)
    return lambda w: (w.put("files/node.onnx", model), w.run("inspect", "files/node.onnx"))[1]


def external(change):
    """Inspects a model with weights in a file of their own, after `change` of its folder."""
    def inspect(w):
        model = graph([("Add", ["x", "big"], ["y"])], [("x", TensorProto.FLOAT, ["batch", 400])],
                      [("y", TensorProto.FLOAT, ["batch", 400])], [("big", np.ones(400, np.float32))])
        path = w.folder / "external"
        path.mkdir(exist_ok=True)
        for old in path.iterdir():
            old.unlink()
        onnx.save(model, path / "m.onnx", save_as_external_data=True, location="m.onnx.data", size_threshold=0)
        change(path)
        return w.run("inspect", "external/m.onnx")
    return inspect


def maps():
    """Takes a sequence of maps."""
    model = graph([("Identity", ["x"], ["y"])], [("x", TensorProto.FLOAT, [4])], [("y", TensorProto.FLOAT, [4])])
    of = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    model.graph.input[0].type.CopyFrom(helper.make_sequence_type_proto(of))
    return model


def locked(make, *args):
    """Runs as a user without the right to read what `make` makes."""
    def run(w):
        path = make(w)
        os.chmod(path, 0)
        return w.run(*args, preexec_fn=nobody(w))
    return run


EXPORT = r"export the model to ONNX \(docs/reference/exporters\.md\)"
SAFETENSORS = struct.pack("<Q", 60) + b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}      ' + b"1234"

MISTAKES = [
    Mistake("a PyTorch checkpoint", file("m.pt", archive("archive/data.pkl")), "'files/m.pt': not an ONNX model",
            "PyTorch checkpoint", EXPORT),
    Mistake("a PyTorch checkpoint that is named .onnx", file("m.onnx", archive("archive/data.pkl")),
            "'files/m.onnx': not an ONNX model", "PyTorch checkpoint", EXPORT),
    Mistake("an old PyTorch checkpoint", file("old.pt", pickle.dumps({"a": 1}, 2) + REST),
            "not an ONNX model", "Python pickle", EXPORT),
    Mistake("a scikit-learn pickle", file("sk.pkl", pickle.dumps({"a": 1}, 4) + REST),
            "not an ONNX model", "Python pickle, such as a scikit-learn model", EXPORT),
    Mistake("safetensors", file("model.safetensors", SAFETENSORS), "not an ONNX model", "a safetensors file", EXPORT),
    Mistake("TensorFlow Lite", file("m.tflite", b"\x1c\0\0\0TFL3" + REST),
            "not an ONNX model", "a TensorFlow Lite model", EXPORT),
    Mistake("GGUF", file("m.gguf", b"GGUF\3\0\0\0" + REST), "not an ONNX model", "a GGUF file of llama.cpp", EXPORT),
    Mistake("Keras, HDF5", file("m.h5", b"\x89HDF\r\n\x1a\n" + REST), "not an ONNX model", "an HDF5 file", EXPORT),
    Mistake("Keras", file("m.keras", archive("metadata.json", "config.json")), "not an ONNX model", "a Keras model", EXPORT),
    Mistake("a SavedModel", file("saved_model.pb", b"\x08\x01\x12\x02xx"),
            "not an ONNX model", "holds no graph.*TensorFlow SavedModel", EXPORT),
    Mistake("a TensorRT engine", file("m.plan", b"ptrt" + REST), "not an ONNX model", "a TensorRT engine",
            "use the .onnx file"),
    Mistake("OpenVINO", file("m.xml", b'<?xml version="1.0"?>\n<net name="m" version="11">'),
            "not an ONNX model", "a model of OpenVINO", "use the .onnx file"),
    Mistake("an ORT-format model", file("m.ort", b"\x40\0\0\0ORTM" + REST),
            "not an ONNX model", "ORT-format", "use the .onnx file"),
    Mistake("a picture", file("cat.jpg", b"\xff\xd8\xff\xe0" + REST), "not an ONNX model", "a JPEG image", "name the model"),
    Mistake("a web page", file("page.onnx", b"<!doctype html><html>"), "not an ONNX model", "an HTML page", "download the file"),
    Mistake("a message of a store", file("denied.onnx", b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>"),
            "not an ONNX model", "an error message of a file store", "download the file again"),
    Mistake("a line of text", file("404.onnx", b"404: Not Found"), "not an ONNX model", "text that begins '404: Not Found'",
            "download it again"),
    Mistake("a model's settings", file("config.json", b'{"architectures": ["BertModel"]}'),
            "not an ONNX model", "JSON text", "name the model's .onnx file"),
    Mistake("a compressed model", file("m.onnx.gz", gzip.compress(REST)), "not an ONNX model", "a gzip archive", "unpack it"),
    Mistake("a zipped model", file("m.zip", archive("model.onnx")), "not an ONNX model", "a ZIP archive", "unpack it first"),
    Mistake("Git LFS's pointer", file("lfs.onnx", b"version https://git-lfs.github.com/spec/v1\noid sha256:a\nsize 9\n"),
            "not an ONNX model", "Git LFS's pointer", "`git lfs pull`"),
    Mistake("half of a model", file("half.onnx", tagger().SerializeToString()[:200]),
            "'files/half.onnx': the ONNX model is truncated", "ends after 200 bytes", "download the file again"),
    Mistake("an empty file", file("empty.onnx", b""), "not an ONNX model", "the file is empty", "download the file again"),
    Mistake("any bytes", file("any.onnx", np.random.default_rng(1).bytes(3000)),
            "not an ONNX model", "malformed or of another format", EXPORT),
    Mistake("weights that are missing", external(lambda path: (path / "m.onnx.data").unlink()),
            "external data 'm.onnx.data'", "No such file", "belongs beside the model's under this name"),
    Mistake("weights that were renamed", external(lambda path: (path / "m.onnx.data").rename(path / "weights.data")),
            "external data 'm.onnx.data'", "No such file", "the folder has weights.data"),
    Mistake("weights that are cut", external(lambda path: (path / "m.onnx.data").write_bytes(b"x" * 100)),
            "external data 'm.onnx.data'", "needs 1600 bytes at offset 0, but the file has 100", "download it again"),
    Mistake("an empty folder", folder("nothing"), "'nothing' is not a model's folder", "it is empty", "it has no model.onnx"),
    Mistake("a folder of PyTorch", folder("torch", "config.json", "pytorch_model.bin"),
            "'torch' is not a model's folder", "torch/pytorch_model.bin, a PyTorch checkpoint", "export it"),
    Mistake("a folder of safetensors", folder("safe", "config.json", "model.safetensors"),
            "'safe' is not a model's folder", "safe/model.safetensors, weights without a graph", "export it"),
    Mistake("a folder of llama.cpp", folder("llama", "m-Q4.gguf"),
            "'llama' is not a model's folder", "llama/m-Q4.gguf, a GGUF file", "export it"),
    Mistake("a SavedModel of Triton's", folder("tf", "1/model.savedmodel/saved_model.pb"),
            "'tf' is not a model's folder", "a TensorFlow file", "export it"),
    Mistake("a version that is called v1", folder("words", "iris/v1/model.onnx"),
            "'words' is not a model's folder", "versions are numbers", "rename the folder v1, as 1"),
    Mistake("a model under its own name", folder("named", "1/iris.onnx"),
            "'named' is not a model's folder", "it has named/1/iris.onnx", "name it model.onnx, or set `file`"),
    Mistake("a folder that is too deep", folder("deep", "a/b/iris/1/model.onnx"),
            "'deep' is not a model's folder", "it has deep/a/b/iris/1/model.onnx", "serve .*deep/a/b/iris"),
    Mistake("a file that may not be read", locked(lambda w: w.put("locked.onnx", doubling()), "inspect", "locked.onnx"),
            "'locked.onnx'", "cannot be opened: Permission denied", "give this user the right to read it"),
    Mistake("a folder that may not be read", locked(lambda w: w.model("closed"), "inspect", "closed"),
            "cannot read 'closed'", "Permission denied", "give this user the right to read it"),
    Mistake("an operator that is misspelt", node("Conv2D", ["x"], ["y"]),
            "node 'Conv2D_0': operator Conv2D", "not supported", r"did you mean 'Conv'|docs/reference/operators\.md|export"),
    Mistake("an operator of one's own", node("MyOp", ["x"], ["y"], {"domain": "my.ops"}, domains=["my.ops"]),
            "operator MyOp of domain 'my.ops'", "not supported", "export the model without it|standard operators"),
    Mistake("an opset of the future", node("Add", ["x", "x"], ["y"], opset=99), "opset 99 of ai.onnx", "not supported",
            "opsets 1 to 28.*export"),
    Mistake("an opset that never was", node("Add", ["x", "x"], ["y"], opset=0), "opset 0 of ai.onnx", "not supported",
            "opsets 1 to 28.*version_converter"),
    Mistake("a value that no node writes", node("Add", ["x", "z"], ["y"]), r"node 0 \(Add\) reads 'z'",
            "which nothing defines", "export the model again"),
    Mistake("a DictVectorizer of no map", node("DictVectorizer", ["x"], ["y"], {"domain": "ai.onnx.ml"}, domains=["ai.onnx.ml"]),
            "ai.onnx.ml.DictVectorizer", "its map is only supported as an input of the model", "give the columns as a tensor"),
    Mistake("an operator of ONNX Runtime that is misspelt",
            node("BiasGeluu", ["x", "x"], ["y"], {"domain": "com.microsoft"}, domains=["com.microsoft"]),
            "operator BiasGeluu", "is not supported", "did you mean 'BiasGelu'"),
    Mistake("a sequence of maps as an input", file("maps.onnx", maps().SerializeToString()),
            "value 'x'", "values of type sequence are not supported", r"options=\{'zipmap': False\}"),
]

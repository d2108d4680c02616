"""Mistakes with run, inspect, profile, bench, simulate and doctor, and with the machine."""

import os

import numpy as np
from onnx import TensorProto

from workshop import ROOT, Mistake, doubling, graph

COSTS = str(ROOT / "bench/data/costs/v100.csv")


def run(*args):
    return lambda w: w.run(*args)


def with_file(name, text, *args):
    return lambda w: (w.text(name, text), w.run(*args))[1]


def run_on(name, save, *args):
    """Runs the model on a file that `save` writes."""
    def act(w):
        save(w.folder / name)
        return w.run("run", "doubling.onnx", "--input", f"x={name}", *args)
    return act


def last_of_nothing(w):
    """The last step of a sequence without any."""
    w.put("last.onnx", graph([("Gather", ["x", "last"], ["y"], {"axis": 1})], [("x", TensorProto.FLOAT, ["batch", "time"])],
                             [("y", TensorProto.FLOAT, ["batch"])], [("last", np.array(-1))]))
    np.save(w.folder / "nothing.npy", np.ones((1, 0), np.float32))
    return w.run("run", "last.onnx", "--input", "x=nothing.npy")


def bench_url(model, path=""):
    def bench(w):
        if w.server is None:
            w.start()
        return w.run("bench", model, "--url", f"http://127.0.0.1:{w.server.port}{path}", "--seconds", "1")
    return bench


def simulate(*args):
    return lambda w: w.run("simulate", "--costs", COSTS, *args)


def full(w):
    """Writes outputs to a disk that is full."""
    (w.folder / "full").mkdir(exist_ok=True)
    if not (w.folder / "full/y.npy").is_symlink():
        (w.folder / "full/y.npy").symlink_to("/dev/full")
    return w.run("run", "doubling.onnx", "--input", "x=x.npy", "--output-dir", "full")


def too_large(w):
    """Runs a model whose output is larger than any memory."""
    w.put("expand.onnx", graph(
        [("Expand", ["x", "s"], ["y"])], [("x", TensorProto.FLOAT, ["b"]), ("s", TensorProto.INT64, [2])],
        [("y", TensorProto.FLOAT, [None, None])]))
    np.save(w.folder / "s.npy", np.array([1 << 22, 1 << 20]))
    np.save(w.folder / "v.npy", np.ones(1, np.float32))
    return w.run("run", "expand.onnx", "--input", "x=v.npy", "--input", "s=s.npy")


def no_picture(w):
    """Draws a pipeline, which is refused and leaves no file."""
    w.text("pipe/model.yaml", "steps: [{model: a}]\n")
    said = w.run("inspect", "pipe", "--svg", "pipe.svg")
    assert not (w.folder / "pipe.svg").exists()
    return said


MISTAKES = [
    Mistake("run: an empty sequence", last_of_nothing, "input 'x' is empty", r"shape \[1,0\]", r"index -1 .*outside \[0, 0\)"),
    Mistake("run: no input", run("run", "doubling.onnx"), "input 'x' is missing", "missing", "the model's inputs are: 'x'"),
    Mistake("run: a missing file", run("run", "doubling.onnx", "--input", "x=nope.npy"), "--input x: cannot open nope.npy",
            "No such file", "name a .npy file"),
    Mistake("run: values", run("run", "doubling.onnx", "--input", "x=1,2,3,4"), "--input x: cannot open 1,2,3,4", "No such file",
            "name a .npy file"),
    Mistake("run: another name", run("run", "doubling.onnx", "--input", "X=x.npy"), "no input 'X'", "the model has no",
            "did you mean 'x'"),
    Mistake("run: no name", run("run", "doubling.onnx", "--input", "x.npy"), "'x.npy'", "has no name", "write it as NAME=FILE.npy"),
    Mistake("run: another size", run("run", "doubling.onnx", "--input", "x=wide.npy"), "dimension 1 of input 'x' is 5",
            "the model takes 4", r"\[batch,4\]"),
    Mistake("run: another type", run("run", "doubling.onnx", "--input", "x=double.npy"), "input 'x' has element type FP64",
            "the model takes FP32", r"array\.astype\('float32'\)"),
    Mistake("run: text", run_on("a.txt", lambda path: path.write_text("1,2,3,4")), "--input x: a.txt", "not a .npy file",
            "numpy.save writes one"),
    Mistake("run: an archive", run_on("a.npz", lambda path: np.savez(path, x=np.ones(4))), "--input x: a.npz", "an archive of arrays",
            "save the array alone with numpy.save"),
    Mistake("run: Python objects", run_on("o.npy", lambda path: np.save(path, np.array([{}]), allow_pickle=True)), "--input x: o.npy",
            r"element type '\|O' are not supported", "save one of float32"),
    Mistake("run: half of an array",
            lambda w: ((w.folder / "t.npy").write_bytes((w.folder / "x.npy").read_bytes()[:-4]),
                       w.run("run", "doubling.onnx", "--input", "x=t.npy"))[1],
            "--input x: t.npy: the file is truncated", r"shape \[1,4\] of float32 needs 16 bytes", "the file has 12"),
    Mistake("run: a folder that cannot be made", run("run", "doubling.onnx", "--input", "x=x.npy", "--output-dir", "x.npy/out"),
            "cannot make the folder x.npy/out", "Not a directory", "x.npy/out"),
    Mistake("run: a full disk", full, "cannot write full/y.npy", "No space left on device", "full/y.npy"),
    Mistake("run: too little memory", too_large, r"node 'Expand_0'", r"shape \[4194304,1048576\] is larger", "the limit of"),
    Mistake("run: two models", run("run", "doubling.onnx", "model", "--input", "x=x.npy"), "'model'", "one argument too many", "leave it out"),
    Mistake("run: no model", run("run", "--input", "x=x.npy"), "MODEL is missing", "missing", "name a model's file or folder"),
    Mistake("inspect: a folder of models", lambda w: (w.model("many/a"), w.model("many/b"), w.run("inspect", "many"))[2],
            "'many' is a folder of models", "folder of models", "name one of them, as many/a"),
    Mistake("inspect: another shape", run("inspect", "doubling.onnx", "--shape", "x=1x5"), "dimension 1 of input 'x' is 5",
            "the model takes 4", "set other shapes, as --shape x=BATCHx4"),
    Mistake("inspect: another name", run("inspect", "doubling.onnx", "--shape", "X=1x4"), "no input is named 'X'", "no input",
            "did you mean 'x'"),
    Mistake("inspect: a shape that is none", run("inspect", "doubling.onnx", "--shape", "x=(1,4)"), r"'\(1,4\)'", "not a shape",
            "write it as 1x3x224x224"),
    Mistake("inspect: a misspelt pass", run("inspect", "doubling.onnx", "--disable-pass", "fold_constant"), "no pass 'fold_constant'",
            "there is no", "did you mean 'fold_constants'"),
    Mistake("inspect: a folder that is missing", run("inspect", "doubling.onnx", "--svg", "nope/a.svg"), "cannot write nope/a.svg",
            "No such file or directory", "nope/a.svg"),
    Mistake("inspect: a picture of a pipeline", no_picture, "is a pipeline", "steps are models of a repository",
            "serve the folder of models"),
    Mistake("profile: a range", run("profile", "doubling.onnx", "--batch-sizes", "1-8"), "--batch-sizes: '1-8'", "not a number",
            "from 1 to 4096"),
    Mistake("profile: a flag of another", run("profile", "doubling.onnx", "--top", "3"), "--top", "has an effect only with --operators",
            "add it, or leave --top out"),
    Mistake("profile: a function", run("profile", "ok.py:predict"), "a Python model", "no operators to profile",
            "`chairlift bench`"),
    Mistake("bench: no server", run("bench", "doubling", "--url", "http://127.0.0.1:1"), "cannot connect to 127.0.0.1:1",
            "Connection refused", "--url must name a running server"),
    Mistake("bench: a misspelt model of a server", bench_url("dubling"), "no model 'dubling'", "is loaded", "did you mean 'doubling'"),
    Mistake("bench: a path", bench_url("doubling", "/v2"), "/v2' is not a server's URL", "not a server's URL", "write it as http://HOST:PORT"),
    Mistake("bench: TLS", run("bench", "doubling", "--url", "https://127.0.0.1:1"), "'https://127.0.0.1:1'", "not a server's URL",
            "write it as http://HOST:PORT"),
    Mistake("bench: a rate that is a word", run("bench", "doubling.onnx", "--rate", "fast"), "--rate: 'fast'", "not a number",
            "from 0.001"),
    Mistake("bench: a misspelt policy", run("bench", "doubling.onnx", "--policy", "windows"), "no batching policy 'windows'",
            "there is no", "did you mean 'window'"),
    Mistake("bench: tuning without waiting", run("bench", "doubling.onnx", "--policy", "none", "--tune-delay"), "--tune-delay",
            "needs a policy that waits", "window, length_dp or staged"),
    Mistake("bench: a missing file", run("bench", "doubling.onnx", "--length-histogram", "nope.json"), "--length-histogram: there is no file",
            "no file or folder 'nope.json'", "nope.json"),
    Mistake("bench: not a histogram", with_file("bad.json", '{"hist": {"1": 2}}', "bench", "doubling.onnx", "--length-histogram", "bad.json"),
            "bad.json: not a histogram of lengths", "'hist' is not a length", 'write it as {"histogram"'),
    Mistake("bench: lengths of a fixed model",
            with_file("good.json", '{"histogram": {"3": 2}}', "bench", "doubling.onnx", "--length-histogram", "good.json", "--seconds", "1"),
            "--length-histogram", "no input of doubling in process varies in length", "leave --length-histogram out"),
    Mistake("bench: a prompt for another model",
            run("bench", "doubling.onnx", "--prompt-lengths", "4", "--output-lengths", "4"), "model 'doubling'",
            "not served as one that generates", "leave out --prompt-lengths"),
    Mistake("bench: gaps that are words", with_file("gaps.txt", "a\nb\n", "bench", "doubling.onnx", "--request-intervals", "gaps.txt"),
            "gaps.txt line 1: 'a'", "not a number", "of milliseconds"),
    Mistake("bench: a folder that is missing", run("bench", "doubling.onnx", "--json", "nope/a.json"), "cannot write nope/a.json",
            "No such file or directory", "nope/a.json"),
    Mistake("simulate: nothing", run("simulate"), "--costs is missing", "required", "simulate --help"),
    Mistake("simulate: a placeholder", run("simulate", "--costs", "COSTS.csv", "--rate", "5"), "--costs: there is no file",
            "no file or folder 'COSTS.csv'", "simulate --help"),
    Mistake("simulate: costs that are none", with_file("costs.csv", "a,b\n", "simulate", "--costs", "costs.csv", "--rate", "5",
                                                       "--fixed-length", "4"),
            "costs.csv: line 1: 'a,b'", "is not cell,rows,microseconds", "cell,rows,length,microseconds"),
    Mistake("simulate: a misspelt cell", with_file("cells.csv", "setp,1,10\n", "simulate", "--costs", "cells.csv", "--rate", "5",
                                                   "--fixed-length", "4"),
            "no costs of the cell 'step'", "cells.csv has no", "only of: setp"),
    Mistake("simulate: not a histogram", with_file("bad.json", '{"hist": {"1": 2}}', "simulate", "--costs", COSTS, "--rate", "5",
                                                   "--length-histogram", "bad.json"),
            "bad.json: not a histogram of lengths", "not a histogram", 'write it as {"histogram"'),
    Mistake("simulate: no lengths", simulate("--rate", "5"), "no lengths are set", "use --", "--length-histogram, --uniform-lengths or --fixed-length"),
    Mistake("simulate: no load", simulate("--fixed-length", "4"), "no load is set", "use --rate", "--rate 100,200 or --concurrency 64"),
    Mistake("simulate: two lengths", simulate("--fixed-length", "4", "--uniform-lengths", "2-5", "--rate", "4"), "exclude each other", "use one",
            "--length-histogram, --uniform-lengths and --fixed-length"),
    Mistake("simulate: an application", simulate("--application", "gru", "--rate", "4"), "--application: 'gru'", "not one of",
            "lstm, seq2seq, tree"),
    Mistake("simulate: a range", simulate("--uniform-lengths", "2..9", "--rate", "4"), r"--uniform-lengths: '2\.\.9'", "not a range", "like 2-100"),
    Mistake("simulate: a misspelt policy", simulate("--fixed-length", "4", "--rate", "4", "--policy", "celular"),
            "no batching policy 'celular'", "there is no", "did you mean 'cellular'"),
    Mistake("simulate: a policy of another application", simulate("--fixed-length", "4", "--rate", "4", "--policy", "packed"),
            "policy 'packed'", "batches whole requests", "--application encoder"),
    Mistake("simulate: a tree that is none", with_file("trees.txt", "((.)\n", "simulate", "--costs", COSTS, "--application", "tree",
                                                       "--trees", "trees.txt", "--rate", "4"),
            "trees.txt line 1", "not a binary tree", r"like \(\(\.\.\)\.\)"),
    Mistake("simulate: a cell's size", simulate("--fixed-length", "4", "--rate", "4", "--cell-max", "stp=4"), "no cell 'stp'",
            "there is no", "did you mean 'step'"),
    Mistake("doctor: a misspelt file", run("doctor", "doublin.onnx"), "no file or folder 'doublin.onnx'", "there is no",
            "did you mean 'doubling.onnx'"),
    Mistake("doctor: a flag", run("doctor", "--fix"), "no flag --fix", "there is no", "doctor --help"),
]

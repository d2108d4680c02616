"""Mistakes with the Python package, and in Python models."""

import itertools
import os
import sys

from workshop import Mistake

IMPORT = "import chairlift, numpy as np\n"
MODEL = IMPORT + "m = chairlift.load('doubling.onnx')\nx = np.ones((1, 4), np.float32)\n"
number = itertools.count()


def python(code):
    return lambda w: w.python(IMPORT + code)


def model(code):
    return lambda w: w.python(MODEL + code)


def embed(code):
    """Runs code with `m`, a model that takes text."""
    def act(w):
        if w.server is None:
            w.start()
        return w.python(IMPORT + f"m = chairlift.load('served/embedder')\n{code}")
    return act


def function(body, arguments="x: np.ndarray", result=" -> np.ndarray", before=""):
    """Calls a Python model with this function."""
    def run(w):
        name = f"function{next(number)}"
        w.text(f"{name}.py", f"import numpy as np\n{before}\ndef predict({arguments}){result}:\n    {body}\n")
        return w.python(IMPORT + f"m = chairlift.load('{name}.py:predict')\nm(np.ones((1, 4), np.float32))")
    return run


def served(text, name="predict"):
    """Serves a function of a file with this text."""
    def serve(w):
        file = f"served{next(number)}.py"
        w.text(file, text)
        return w.serve(f"{file}:{name}")
    return serve


def interpreter(script):
    """Serves a function in an interpreter that is this shell script."""
    def serve(w):
        path = w.folder / f"python{next(number)}"
        path.write_text("#!/bin/sh\n" + script)
        path.chmod(0o755)
        return w.serve("ok.py:predict", env={"CHAIRLIFT_PYTHON": str(path)})
    return serve


def taken(w):
    return w.python(IMPORT + "import socket\ns = socket.create_server(('127.0.0.1', 0))\n"
                    "chairlift.Server('doubling.onnx', http_port=s.getsockname()[1], metrics_port=-1)")


BARE = os.path.realpath(sys.executable)

MISTAKES = [
    Mistake("a misspelt path", python("chairlift.load('doublin.onnx')"), "NotFound: there is no file or folder 'doublin.onnx'",
            "there is no", "did you mean 'doubling.onnx'"),
    Mistake("no path", python("chairlift.load(None)"), "not None", "a model is a path", "or a function or class"),
    Mistake("the name of a model on a hub", python("chairlift.load('sentence-transformers/all-MiniLM-L6-v2')"),
            "sentence-transformers", "models are not downloaded", "`hf download"),
    Mistake("a misspelt setting", python("chairlift.load('doubling.onnx', max_batch_sise=4)"), "no setting 'max_batch_sise'",
            "there is no", "did you mean 'max_batch_size'"),
    Mistake("a setting of onnxruntime's", python("chairlift.load('doubling.onnx', providers=['CPU'])"), "no setting 'providers'",
            "there is no", r"`chairlift serve --help` lists the settings|docs/guides/python-models\.md"),
    Mistake("NumPy's default type", model("m(x=np.ones((1, 4)))"), "input 'x' has element type FP64", "the model takes FP32",
            r"convert it first"),
    Mistake("another size", model("m(x=np.ones((1, 5), np.float32))"), "dimension 1 of input 'x' is 5", "the model takes 4",
            r"\[batch,4\]"),
    Mistake("no batch", model("m(x=np.ones(4, np.float32))"), r"input 'x' has shape \[4\]", "of rank 1", r"\[batch,4\], of rank 2"),
    Mistake("another name", model("m(X=x)"), "no input 'X'", "the model has no", "did you mean 'x'"),
    Mistake("too many arrays", model("m(x, x)"), "called with 2 arrays", "model 'doubling'", "its inputs are: x"),
    Mistake("no input", model("m()"), "input 'x' is missing", "missing", "the model's inputs are: 'x'"),
    Mistake("uneven lists", model("m(x=[[1, 2], [3]])"), "input 'x' cannot be made an array", "inhomogeneous",
            "lists of equal lengths"),
    Mistake("text", model("m(x='hello')"), "input 'x' is text", "is text", "it takes float32"),
    Mistake("None", model("m(x=None)"), "input 'x' has elements that are Python objects", "Python objects", "it takes float32"),
    Mistake("an output that the model lacks", model("m(x=x, outputs=['z'])"), "no output 'z'", "the model has no", "there are: 'y'"),
    Mistake("the name of an output", model("m(x=x, outputs='y')"), "outputs is 'y'", "must be", "a list of names"),
    Mistake("a time that is text", model("m(x=x, timeout='5s')"), "timeout is '5s'", "must be a number of seconds", "0 or more, or None"),
    Mistake("a method of onnxruntime's", model("m.run(None, {'x': x})"), "a Model has no 'run'", "has no", r"model\(x=array\)"),
    Mistake("a method of Keras'", model("m.predict(x)"), "a Model has no 'predict'", "has no", r"model\(x=array\)"),
    Mistake("a class of onnxruntime's", python("chairlift.InferenceSession('doubling.onnx')"), "chairlift has no 'InferenceSession'",
            "has no", r"chairlift\.load\("),
    Mistake("a misspelt function", python("chairlift.laod('doubling.onnx')"), "chairlift has no 'laod'", "has no", "did you mean 'load'"),
    Mistake("text for a model without a tokenizer", model("m.embed('a')"), "model 'doubling' takes no texts?", "there is no",
            "tokenizer.json beside its file"),
    Mistake("a number for text", embed("m.embed(5)"), "5 is not text", "not text", "give a str, or a list of str"),
    Mistake("numbers for text", embed("m.embed([5])"), "text 0 is 5", "must be", "a str"),
    Mistake("a model that was closed", model("m.close()\nm(x=x)"), "model 'doubling' is not ready", "unloaded", "unloaded"),
    Mistake("no torch", python("chairlift.from_torch(5, (1,))"), "from_torch needs torch", "No module named", "pip install torch"),
    Mistake("chairlift.infer in a program", python("import asyncio\nasyncio.run(chairlift.infer('doubling', {}))"),
            r"chairlift\.infer\(\)", "functions that a server runs", r"chairlift\.load\(\.\.\.\)\.infer"),
    Mistake("a repository that does not exist", python("chairlift.load_repository('nope')"), "'nope' holds no models", "no models",
            "a repository is <name>/<version>/model.onnx"),
    Mistake("a server's port in use", taken, "the server did not start", "already in use", "name another port, or 0"),
    Mistake("a server's misspelt model", python("chairlift.Server('doublin.onnx')"), "the server did not start", "no file or folder",
            "did you mean 'doubling.onnx'"),
    Mistake("a server's misspelt flag", python("chairlift.Server('doubling.onnx', http_prot=5)"), "no flag --http-prot", "there is no",
            "did you mean '--http-port'"),
    # Python models.
    Mistake("a misspelt function of a file", lambda w: w.serve("ok.py:predct"), "ok.py has no 'predct'", "has no", "it has: predict"),
    Mistake("a file without a function", lambda w: w.serve("ok.py"), "'ok.py' is a Python file", "name its function too", "ok.py:predict"),
    Mistake("a missing file", lambda w: w.serve("okk.py:predict"), "no file or folder 'okk.py'", "there is no", "did you mean 'ok.py'"),
    Mistake("a function of one text", function("return text", "text: str", " -> str"), "'text' is annotated with str",
            "a function gets a batch", r"annotate list\[str\]"),
    Mistake("text where numbers are served", function("return 'hello'"), "'predict' returned text", "served as float32",
            r"annotate -> list\[str\]"),
    Mistake("nothing returned", function("x + 1"), "'predict' returned None", "must return", "a result for each row"),
    Mistake("too few rows", function("return x[:0]"), "'predict' returned 0 rows", "for 1 rows", "a result for each row"),
    Mistake("another type returned", function("return x.astype(np.int64)"), "'predict' returned 'output' of type int64",
            "it is served as float32", "annotate the type that it returns"),
    Mistake("a single number returned", function("return 5"), "'predict' returned a single number", "for 1 rows", "a result for each row"),
    Mistake("an exception", function("raise KeyError('weights')"), "KeyError: 'weights'", r"function\d+\.py, line 4, in predict",
            "line 4"),
    Mistake("a syntax error", served("def predict(x)\n    return x\n"), "SyntaxError: expected ':'", r"served\d+\.py, line 1", "line 1"),
    Mistake("a missing package", served("import torchh\ndef predict(x):\n    return x\n"), "torchh", "No module named|lacks",
            "install|pip"),
    Mistake("a function without arguments", served("def predict():\n    return 1\n"), "'predict' takes no required argument", "takes no",
            "give it one"),
    Mistake("a number for a function", served("predict = 5\n"), "'predict' is not a function or a class", "of type int",
            "function or a class"),
    Mistake("an annotation that is not served", served("class Image: pass\ndef predict(image: Image):\n    return 1\n"),
            "'image' is annotated with", "Image", "arrays, lists of numbers"),
    # Interpreters.
    Mistake("an interpreter that is missing", lambda w: w.serve("ok.py:predict", env={"CHAIRLIFT_PYTHON": "/nope/python3"}),
            "'/nope/python3' cannot be started", "No such file", "`python_executable` in model.yaml or CHAIRLIFT_PYTHON"),
    Mistake("an interpreter without numpy", interpreter(f'exec {BARE} -S "$@"\n'), "has no numpy", "No module named 'numpy'",
            "install it there, or name another interpreter"),
    Mistake("an interpreter that fails", interpreter("echo 'broken installation' >&2\nexit 1\n"), "exited with code 1",
            "broken installation", "CHAIRLIFT_PYTHON"),
]

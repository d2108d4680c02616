"""Routes of other servers over HTTP: text-embeddings-inference, OpenAI, Cohere and vLLM."""

import json
import urllib.error
import urllib.request

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import test_completions
from models import bert
from serving import Serving
from test_texts import SMALL, TEXTS, Models, put

QUERY = "Where is snow?"
LABELS = ["NEGATIVE", "NEUTRAL", "POSITIVE"]


def classifier(seed):
    """Logits of three classes, of the first token."""
    model = bert.bert(SMALL, seed=seed, pooling=None)
    head = np.random.default_rng(seed).normal(0, 0.3, (SMALL.hidden, len(LABELS))).astype(np.float32)
    model.graph.initializer.extend([numpy_helper.from_array(head, "head"), numpy_helper.from_array(np.int64(0), "zero")])
    hidden = model.graph.output[0].name
    model.graph.node.extend([helper.make_node("Gather", [hidden, "zero"], ["first"], axis=1),
                             helper.make_node("MatMul", ["first", "head"], ["logits"])])
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", len(LABELS)]))
    onnx.checker.check_model(model)
    return model


class Server(Serving):
    def __init__(self, folder):
        self.serve("--model-repository", folder)

    def ask(self, path, body=None, method=None):
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url + path, data, method=method), timeout=60) as response:
                status, text = response.status, response.read()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read()
        return status, json.loads(text) if text else None

    def answer(self, path, body=None):
        status, answer = self.ask(path, body)
        assert status == 200, answer
        return answer

    def refusal(self, path, body=None, status=422):
        got, answer = self.ask(path, body)
        assert got == status, answer
        error = answer["error"]
        return error["message"] if isinstance(error, dict) else error


class TextServer(Models):
    """Those of Models with names of their own, beside classifiers."""

    def __init__(self, folder):
        super().__init__(folder)
        names = json.dumps({"id2label": dict(enumerate(LABELS))})
        self.sessions["mood"] = put(folder, "mood", classifier(7), config_json=names)
        self.sessions["topics"] = put(folder, "topics", classifier(8),
                                      config_json='{"problem_type": "multi_label_classification"}')
        put(folder, "torn", classifier(9), config_json='{"id2label": {"0": "A", "1": "B"}}')
        self.server = Server(folder)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    models = TextServer(tmp_path_factory.mktemp("routes"))
    yield models
    models.server.close()


@pytest.fixture(scope="module")
def only(tmp_path_factory):
    """A server of one encoder, as text-embeddings-inference is."""
    folder = tmp_path_factory.mktemp("only")
    put(folder, "enc", bert.bert(SMALL, seed=1, pooling=None), model_yaml="pooling: mean\n")
    server = Server(folder)
    yield server
    server.close()


@pytest.fixture(scope="module")
def decoders(tmp_path_factory):
    server = test_completions.Server(tmp_path_factory.mktemp("decoders"))
    yield server
    server.close()


def softmax(logits):
    powers = np.exp(logits - logits.max())
    return powers / powers.sum()


def test_health_version_and_info(only):
    for path in ("/health", "/healthz", "/ping"):
        assert only.ask(path) == (200, {"ready": True})
        assert only.ask(path, method="HEAD")[0] == 200
    assert only.answer("/version")["version"] == only.answer("/v2")["version"]
    info = only.answer("/info")
    assert info["model_id"] == "enc" and "embedding" in info["model_type"]
    assert info["max_client_batch_size"] == 2048 and info["version"]


def test_info_of_several_models(texts):
    info = texts.server.answer("/info")
    assert "model_id" not in info
    kinds = {model["model_id"]: list(model["model_type"]) for model in info["models"]}
    assert kinds["mean"] == ["embedding"] and kinds["scores"] == ["reranker"] and kinds["mood"] == ["classifier"]


def test_a_model_of_texts_is_described(texts):
    listed = texts.server.answer("/v1/models")["data"]
    assert {"mean", "scores", "mood"} <= {model["id"] for model in listed}
    for model in listed:
        assert texts.server.answer(f"/v1/models/{model['id']}") == model
        assert model["object"] == "model" and model["created"] > 1_600_000_000 and model["owned_by"]
    status, error = texts.server.ask("/v1/models/none")
    assert status == 404 and error["error"]["code"] == "model_not_found"
    status, error = texts.server.ask("/v1/models/unknown")  # its texts are refused
    assert status == 404 and "takes no text" in error["error"]["message"]


def test_similarity_is_the_cosine(texts, only):
    source, others = TEXTS[0], TEXTS[1:]
    got = texts.server.answer("/similarity", {"model": "mean", "inputs": {"source_sentence": source, "sentences": others}})
    vectors = [texts.scaled("mean", text) for text in TEXTS]
    np.testing.assert_allclose(got, [vectors[0] @ vector for vector in vectors[1:]], atol=2e-5)
    body = {"inputs": {"source_sentence": source, "sentences": others}, "parameters": {"truncate": True}}
    np.testing.assert_allclose(only.answer("/similarity", body), got, atol=2e-5)
    np.testing.assert_allclose(only.answer("/", body), got, atol=2e-5)
    inputs = {"source_sentence": source, "sentences": others}
    for wrong, why in (({"source_sentence": source}, '"sentences" is missing'), ({"sentences": others}, '"source_sentence" is missing'),
                       ({**inputs, "sentences": []}, "empty list"), ({**inputs, "source_sentence": 5}, "not a text"),
                       ({**inputs, "sentence": "a"}, "did you mean 'sentences'"), ("a", "not an object")):
        assert why in only.refusal("/similarity", {"inputs": wrong})


def test_embed_all_has_a_vector_for_each_token(texts):
    got = texts.server.answer("/embed_all", {"model": "mean", "inputs": TEXTS})
    assert len(got) == len(TEXTS)
    for text, vectors in zip(TEXTS, got):
        np.testing.assert_allclose(vectors, texts.run("mean", text)[0], atol=2e-5)
    one = texts.server.answer("/embed_all", {"model": "mean", "inputs": TEXTS[0]})
    np.testing.assert_allclose(one, got[:1], atol=1e-6)
    # In the inference protocol: all rows, one behind the other; only if it is asked for.
    inputs = [{"name": "text", "datatype": "BYTES", "shape": [2], "data": TEXTS[:2]},
              {"name": "options", "datatype": "INT64", "shape": [2, 2], "data": [0, 0, 0, 0]}]
    path = "/v2/models/mean%2Fembed/infer"
    answer = texts.server.answer(path, {"inputs": inputs, "outputs": [{"name": "token_embeddings"}]})
    assert answer["outputs"][0]["shape"] == [len(got[0]) + len(got[1]), 32]
    np.testing.assert_allclose(np.reshape(answer["outputs"][0]["data"], (-1, 32)), got[0] + got[1], atol=1e-6)
    named = {output["name"] for output in texts.server.answer(path, {"inputs": inputs})["outputs"]}
    assert named == {"embedding", "pooled", "num_tokens"}


def test_classes_are_sorted_by_score(texts):
    for text in TEXTS[:3]:
        scores = softmax(texts.run("mood", text)[0])
        got = texts.server.answer("/predict", {"model": "mood", "inputs": text})
        assert [entry["label"] for entry in got] == [LABELS[i] for i in np.argsort(-scores)]
        np.testing.assert_allclose([entry["score"] for entry in got], -np.sort(-scores), atol=2e-5)
        raw = texts.server.answer("/predict", {"model": "mood", "inputs": [text], "raw_scores": True})
        np.testing.assert_allclose([entry["score"] for entry in raw], -np.sort(-texts.run("mood", text)[0]), atol=2e-5)


def test_classes_of_pairs_and_lists(texts):
    pair = softmax(texts.run("mood", TEXTS[0], TEXTS[1])[0]).max()
    single = softmax(texts.run("mood", TEXTS[2])[0]).max()
    got = texts.server.answer("/predict", {"model": "mood", "inputs": [[TEXTS[2]], [TEXTS[0], TEXTS[1]]]})
    np.testing.assert_allclose([got[0][0]["score"], got[1][0]["score"]], [single, pair], atol=2e-5)
    alone = texts.server.answer("/predict", {"model": "mood", "inputs": [TEXTS[0], TEXTS[1]]})
    assert [entry["label"] for entry in alone] == [entry["label"] for entry in got[1]]
    few = texts.server.answer("/", {"model": "mood", "inputs": TEXTS[2], "parameters": {"top_k": 1}})
    assert len(few) == 1 and few[0]["label"] == got[0][0]["label"]


def test_several_classes_may_hold(texts):
    sigmoids = 1 / (1 + np.exp(-texts.run("topics", TEXTS[0])[0]))
    got = texts.server.answer("/predict", {"model": "topics", "inputs": TEXTS[0]})
    assert [entry["label"] for entry in got] == [f"LABEL_{i}" for i in np.argsort(-sigmoids)]
    np.testing.assert_allclose([entry["score"] for entry in got], -np.sort(-sigmoids), atol=2e-5)


def test_what_cannot_be_classified_is_named(texts):
    for inputs in ([], 7, [7], ["a", "b", "c"], [["a", "b", "c"]], [[]], [["a"], "b"]):
        assert '"inputs"' in texts.server.refusal("/predict", {"model": "mood", "inputs": inputs})
    assert "name one of: mood, topics" in texts.server.refusal("/predict", {"inputs": "a"})
    assert "\"id2label\"" in texts.server.refusal("/predict", {"model": "torn", "inputs": "a"})
    assert "not classes of text" in texts.server.refusal("/predict", {"model": "mean", "inputs": "a"})
    assert '"raw_scores": true' in texts.server.refusal(
        "/predict", {"model": "mood", "inputs": "a", "parameters": {"function_to_apply": "sigmoid"}})


def test_texts_are_tokenized_and_token_ids_decoded(texts):
    for name in ("mean", "scores", "mood"):
        (tokens,) = texts.server.answer("/tokenize", {"model": name, "inputs": TEXTS[0]})
        wanted = texts.tokenizer.encode(TEXTS[0])
        assert [token["id"] for token in tokens] == wanted.ids
        assert tokens[0] == {"id": wanted.ids[0], "text": "[CLS]", "special": True, "start": None, "stop": None}
        assert all(TEXTS[0][token["start"]:token["stop"]] == token["text"] for token in tokens if not token["special"])
        ids = [wanted.ids, wanted.ids[1:3]]
        assert texts.server.answer("/decode", {"model": name, "ids": ids}) == texts.tokenizer.decode_batch(ids)
    plain = texts.server.answer("/tokenize", {"model": "mean", "inputs": ["Schnee fällt.", ""], "add_special_tokens": False})
    assert not any(token["special"] for row in plain for token in row) and plain[1] == []
    whole = texts.server.answer("/decode", {"model": "mean", "ids": wanted.ids, "skip_special_tokens": False})
    assert whole == [texts.tokenizer.decode(wanted.ids, skip_special_tokens=False)]
    for path, body, why in (("/tokenize", {"inputs": [1, 2]}, "it must be a text"), ("/decode", {"ids": "a"}, "a list of token ids"),
                            ("/decode", {"ids": [99999999]}, "not in the vocabulary"), ("/decode", {}, '"ids" is missing'),
                            ("/tokenize", {"inputs": "a" * 140000}, "it may have 131072"),
                            ("/tokenize", {"inputs": ["a" * 100000] * 2}, "a request may have 163840"),
                            ("/decode", {"ids": [[1] * 30000] * 2}, "a request may have 163840"),
                            ("/tokenize", {"inputs": "a", "special": True}, "no field 'special'")):
        assert why in texts.server.refusal(path, {"model": "mean", **body})
    assert "is missing; name one of" in texts.server.refusal("/tokenize", {"inputs": "a"})


def test_the_root_does_what_the_model_does(texts, only):
    assert only.answer("/", {"inputs": TEXTS[0]}) == only.answer("/embed", {"inputs": TEXTS[0]})
    assert only.answer("/invocations", {"inputs": TEXTS[:2]}) == only.answer("/embed", {"inputs": TEXTS[:2]})
    ranked = texts.server.answer("/", {"model": "scores", "query": QUERY, "texts": TEXTS})
    assert ranked == texts.server.answer("/rerank", {"model": "scores", "query": QUERY, "texts": TEXTS})
    body = {"inputs": TEXTS[0], "normalize": False, "truncate": None, "prompt_name": None, "parameters": {"truncation_direction": "Right"}}
    assert len(only.answer("/", body)) == 1


def test_documents_are_ranked_as_cohere_and_jina_have_it(texts):
    body = {"model": "scores", "query": QUERY, "documents": TEXTS, "top_n": 2, "return_documents": True}
    wanted = texts.server.answer("/v1/rerank", body)
    assert len(wanted["results"]) == 2 and wanted["results"][0]["document"]["text"] in TEXTS
    for path in ("/rerank", "/v2/rerank"):
        assert texts.server.answer(path, {**body, "user": "me"}) == wanted
    passages = {"model": "scores", "query": QUERY, "texts": TEXTS}
    assert texts.server.answer("/v1/rerank", passages)["results"][0]["index"] == wanted["results"][0]["index"]
    assert "leave one out" in texts.server.refusal("/rerank", {**passages, "documents": TEXTS})


@pytest.mark.parametrize("path, body, why", [
    ("/embed", {"inputs": "a", "normalise": True}, "no field 'normalise'; did you mean 'normalize'?"),
    ("/rerank", {"query": "a", "texts": ["b"], "max_tokens_per_doc": 5}, '"truncate": true'),
    ("/rerank", {"query": "a", "texts": ["b"], "rank_fields": ["a"]}, "ranked by their"),
    ("/embed_sparse", {"inputs": "a"}, "sparse vectors"),
    ("/embed", {"inputs": "a", "parameters": {"inputs": "b"}}, '"inputs" is given twice'),
    ("/embed", {"inputs": [1, 2], "prompt_name": "query"}, "with token ids"),
    ("/embed_all", {"inputs": "a", "prompt_name": "query"}, "the model has no prompts"),
    ("/similarity", {"inputs": {"source_sentence": "a", "sentences": ["b"]}, "prompt_name": "query"}, "the model has no prompts"),
    ("/tokenize", {"inputs": "a", "prompt_name": "query"}, "no field 'prompt_name'"),
])
def test_fields_that_would_change_an_answer_are_refused_by_name(texts, path, body, why):
    assert why in texts.server.refusal(path, {"model": "scores", **body} if "query" in body else {"model": "mean", **body})


def test_fields_that_change_no_answer_are_accepted(texts):
    plain = {"model": "mean", "input": "a"}
    assert texts.server.answer("/v1/embeddings", {**plain, "user": "me", "metadata": {}, "priority": 1}) == \
        texts.server.answer("/embeddings", plain)
    whole, part = (np.array(texts.server.answer("/embeddings", {**plain, **more})["data"][0]["embedding"])
                   for more in ({}, {"dimensions": 5}))
    np.testing.assert_allclose(part, whole[:5] / np.linalg.norm(whole[:5]), atol=1e-6)
    assert "no field 'embedding_format'" in texts.server.refusal("/v1/embeddings", {**plain, "embedding_format": "float"}, 400)


def test_unknown_paths_name_those_that_are_near(only):
    for path, near in (("/v1/model", "GET /v1/models"), ("/v1/embedding", "POST /v1/embeddings"), ("/generate", "/v2/models/{model}/generate"),
                       ("/v2/models/enc/infere", "POST /v2/models/{model}/infer"), ("/chat/completions", "POST /v1/chat/completions"),
                       ("/v1/responses", "/v1/chat/completions"), ("/v2/models", "POST /v2/repository/index"), ("/nothing", "GET / lists the paths")):
        assert near in only.refusal(path, {}, 404), path
    assert "use POST" in only.refusal("/embed", status=405)
    # As OpenAI's clients read it.
    assert only.ask("/v1/nothing", {})[1]["error"]["code"] is None and "use POST" in only.ask("/v1/embeddings")[1]["error"]["message"]
    try:
        urllib.request.urlopen(only.url + "/predict", timeout=30)
    except urllib.error.HTTPError as error:
        assert error.code == 405 and error.headers["Allow"] == "POST, OPTIONS"


def test_several_prompts(decoders):
    prompts = ["ab", "a", "ba c", "c"]
    ids = [decoders.tokenizers["gpt2"].encode(prompt).ids for prompt in prompts]
    body = {"model": "gpt2", "max_tokens": 6, "n": 2, "temperature": 1.0, "seed": 3}
    alone = [decoders.ask("/v1/completions", {**body, "prompt": prompt})[1] for prompt in prompts]
    wanted = [choice["text"] for answer in alone for choice in answer["choices"]]
    for given in (prompts, ids, [prompts[0], ids[1], *prompts[2:]]):
        status, got = decoders.ask("/v1/completions", {**body, "prompt": given})
        assert status == 200, got
        assert [choice["text"] for choice in got["choices"]] == wanted
        assert [choice["index"] for choice in got["choices"]] == list(range(8))
        for count in ("prompt_tokens", "completion_tokens"):
            assert got["usage"][count] == sum(answer["usage"][count] for answer in alone)
    assert decoders.streamed({**body, "prompt": prompts})[0] == dict(enumerate(wanted))
    status, got = decoders.ask("/v2/models/gpt2/generate", {"text_input": prompts, "max_tokens": 6, "stop": ["zz"]})
    assert status == 200 and len(got["text_output"]) == 4 and got["num_prompt_tokens"] == [len(own) for own in ids]
    many = decoders.ask("/v1/completions", {"model": "gpt2", "prompt": ["ab"] * 100, "max_tokens": 3})[1]
    assert len(many["choices"]) == 100 and len({choice["text"] for choice in many["choices"]}) == 1
    for wrong, why in (({"prompt": ["a", ""]}, "prompt 1"), ({"prompt": ["a", 5]}, '"prompt" has 5'), ({"prompt": ["a"] * 1025}, "1024"),
                       ({"prompt": ["a", "b"], "num_beams": 2}, "with beams it may have one"),
                       ({"prompt": ["a"] * 40, "n": 32}, "1024 answers")):
        status, error = decoders.ask("/v1/completions", {"model": "gpt2", **wrong})
        assert status == 400 and why in error["error"]["message"], error


def test_a_prompt_is_echoed(decoders):
    body = {"model": "gpt2", "prompt": "ab c\u00e9", "max_tokens": 5}
    _, plain = decoders.ask("/v1/completions", body)
    for more in ({}, {"n": 2}):
        status, got = decoders.ask("/v1/completions", {**body, **more, "echo": True})
        assert status == 200, got
        assert all(choice["text"] == body["prompt"] + plain["choices"][0]["text"] for choice in got["choices"])
        assert decoders.streamed({**body, **more, "echo": True})[0] == {c["index"]: c["text"] for c in got["choices"]}
    _, none = decoders.ask("/v1/completions", {**body, "echo": True, "max_tokens": 0})
    (choice,) = none["choices"]
    assert choice["text"] == body["prompt"] and choice["finish_reason"] == "length"
    assert none["usage"]["completion_tokens"] == 0
    ids = decoders.tokenizers["gpt2"].encode(body["prompt"]).ids
    _, of_tokens = decoders.ask("/v1/completions", {**body, "prompt": ids, "echo": True})
    assert of_tokens["choices"][0]["text"] == body["prompt"] + plain["choices"][0]["text"]
    many = {"model": "gpt2", "prompt": ["ab " * 43_000] * 6, "n": 32, "echo": True, "max_tokens": 0}
    status, error = decoders.ask("/v1/completions", many)
    assert status == 400 and "more than 16777216 bytes" in error["error"]["message"]
    status, error = decoders.ask("/v1/completions", {"model": "t5", "prompt": "ab", "echo": True})
    assert status == 400 and "echo is true" in error["error"]["message"]


@pytest.mark.parametrize("name", ["gpt2", "llama", "bytes"])
def test_echoed_prompts_have_log_probabilities(decoders, name):
    """Each token has the model's log-probability after the tokens before it. A bias makes the model choose them."""
    tokenizer = decoders.tokenizers[name]
    for prompts in (["ab c"], ["a"], ["ab c", "ba", "cab"]):
        body = {"model": name, "prompt": prompts, "max_tokens": 2, "echo": True, "logprobs": 2, "ignore_eos": True}
        status, got = decoders.ask("/v1/completions", body)
        assert status == 200, got
        for prompt, choice in zip(prompts, got["choices"]):
            ids, said = tokenizer.encode(prompt).ids, choice["logprobs"]
            assert len(said["tokens"]) == len(ids) + 2 and "".join(said["tokens"]) == choice["text"]
            assert said["token_logprobs"][0] is None and said["top_logprobs"][0] is None
            for i in range(1, len(ids)):
                _, forced = decoders.ask(f"/v2/models/{name}/generate", {
                    "input_ids": ids[:i], "max_tokens": 1, "logprobs": 2, "logit_bias_tokens": [ids[i]], "logit_bias": [100]})
                assert forced["output_ids"] == [ids[i]]
                assert test_completions.close(said["token_logprobs"][i], forced["token_logprobs"][0])
                assert test_completions.close(max(said["top_logprobs"][i].values()), max(forced["top_logprobs"][0] + forced["token_logprobs"]))
            assert said["text_offset"] == [len("".join(said["tokens"][:i])) for i in range(len(said["tokens"]))]
        streamed = test_completions.logprobs_of_a_stream(decoders, body)
        for choice in got["choices"]:
            assert test_completions.close(streamed[choice["index"]], choice["logprobs"])
        _, none = decoders.ask("/v1/completions", {**body, "max_tokens": 0})
        for all_, prompt in zip(got["choices"], none["choices"]):
            assert test_completions.close(prompt["logprobs"]["token_logprobs"], all_["logprobs"]["token_logprobs"][:-2])


def test_a_bias_changes_which_tokens_come(decoders):
    body = {"model": "gpt2", "prompt": "ab", "max_tokens": 6, "ignore_eos": True}
    for token in (5, 9):
        for more in ({}, {"temperature": 0.5, "seed": 1}, {"num_beams": 2}):
            status, got = decoders.ask("/v1/completions", {**body, **more, "logit_bias": {str(token): 100}})
            assert status == 200, got
            ids = decoders.tokenizers["gpt2"].encode("ab").ids
            assert got["choices"][0]["text"] == decoders.text("gpt2", ids, [token] * 6 + [1])
    _, (answer,) = decoders.tokens("gpt2", "ab", max_tokens=6, ignore_eos=True)
    banned = {str(answer[0]): -100}
    _, got = decoders.tokens("gpt2", "ab", max_tokens=6, ignore_eos=True, logit_bias_tokens=[answer[0]], logit_bias=[-100])
    assert answer[0] not in got[0]
    chat = {"model": "llama", "messages": [{"role": "user", "content": "a"}], "max_tokens": 3}
    assert decoders.ask("/v1/chat/completions", {**chat, "logit_bias": banned})[0] == 200
    for wrong, why in (({"5": 101}, "from -100 to 100"), ({"x": 1}, "token ids"), ({"5": "a"}, "token ids"), ({"900": 1}, "the model has tokens 0 to 60"),
                       ([5], "not an object"), ({"-1": 1}, "tokens 0 to 60")):
        status, error = decoders.ask("/v1/completions", {**body, "logit_bias": wrong})
        assert status == 400 and why in error["error"]["message"], error


def test_a_developer_is_the_system_of_a_template_without_developers(decoders):
    body = {"model": "llama", "max_tokens": 4}
    answers = []
    for role in ("system", "developer"):
        messages = [{"role": role, "content": "d"}, {"role": "user", "content": "a"}]
        status, got = decoders.ask("/v1/chat/completions", {**body, "messages": messages})
        assert status == 200, got
        answers.append((got["choices"], got["usage"]))
    assert answers[0] == answers[1]


@pytest.mark.parametrize("more, why", [
    ({"max_token": 5}, "no field 'max_token'; did you mean 'max_tokens'?"),
    ({"prompt_logprobs": 1}, "no field 'prompt_logprobs'"),
    ({"guided_json": {}}, "no field 'guided_json'"),
    ({"include_stop_str_in_output": True}, "only false is supported"),
    ({"stream_options": {"continuous_usage_stats": True}}, "continuous_usage_stats"),
    ({"text_input": "b"}, "no field 'text_input'"),
    ({"x" * 5000: 1}, "a name of 5000 bytes"),
])
def test_unknown_fields_of_completions_are_refused(decoders, more, why):
    for path, body in (("/v1/completions", {"prompt": "a"}), ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]})):
        status, error = decoders.ask(path, {"model": "llama", **body, **more})
        assert status == 400 and why in error["error"]["message"], error


def test_fields_that_change_no_completion_are_accepted(decoders):
    body = {"model": "llama", "prompt": "a", "max_tokens": 3}
    _, plain = decoders.ask("/v1/completions", body)
    more = {"user": "me", "metadata": {"a": "b"}, "store": True, "service_tier": "auto", "suffix": "", "skip_special_tokens": True,
            "stream_options": {"include_obfuscation": False}, "logit_bias": {}, "best_of": 1, "echo": False, "max_completion_tokens": 3}
    status, got = decoders.ask("/v1/completions", {**body, **more})
    assert status == 200 and got["choices"] == plain["choices"], got


def test_other_fields_of_generate_are_parameters(decoders):
    body = {"text_input": "ab", "max_tokens": 4}
    _, plain = decoders.ask("/v2/models/gpt2/generate", body)
    status, got = decoders.ask("/v2/models/gpt2/generate", {**body, "request_name": "x", "verbose": False, "level": 3, "timeout": 50_000_000})
    assert status == 200 and got == plain
    for wrong, why in (({"max_token": 4}, "did you mean 'max_tokens'"), ({"images": [1]}, "no input 'images'"), ({"timeout": -1}, '"timeout"'),
                       ({"sequence_start": True}, '"sequence_id"')):
        status, error = decoders.ask("/v2/models/gpt2/generate", {**body, **wrong})
        assert status == 400 and why in error["error"], error


def test_how_long_an_answer_may_be_is_said_of_what_it_continues(decoders):
    status, error = decoders.ask("/v1/completions", {"model": "t5", "prompt": "ab", "max_tokens": -1})
    assert status == 400 and "max_tokens is -1; it must be from 1 to" in error["error"]["message"]
    status, error = decoders.ask("/v1/completions", {"model": "gpt2", "prompt": "ab", "max_tokens": -1})
    assert status == 400 and "after a prompt of 2 tokens" in error["error"]["message"]

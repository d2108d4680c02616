"""Completions over HTTP: the text of the same tokens, in one piece and as a stream."""

import json
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
import shutil
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from serving import ROOT, Serving

MODELS = ROOT / "tests/models"
VOCABULARY = 61  # of the small models there, whose weights are seeded
PROMPTS = ["a", "ab ba", "caf\u00e9", "\u65e5a", "c" * 12]


def byte_level():
    """A tokenizer whose tokens are single bytes, of a few letters and of characters of two, three and four bytes.

    So most tokens of a random model are parts of characters.
    """
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    to_byte_char = byte_characters()
    wanted = "abc \u00e9\u65e5\U0001f6a1".encode()
    names = ["<s>", "</s>"] + sorted({to_byte_char[byte] for byte in wanted})
    names += [c for c in sorted(alphabet) if c not in names][:VOCABULARY - len(names)]
    tokenizer = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<s>", special=True), AddedToken("</s>", special=True)])
    return tokenizer


def byte_characters():
    """Returns GPT-2's character for each byte."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in kept]
    return {**{byte: chr(byte) for byte in kept}, **{byte: chr(256 + i) for i, byte in enumerate(others)}}


def metaspace():
    """Words that begin with a mark for their space, as Llama's and T5's."""
    names = ["<pad>", "</s>", "<unk>"] + ["\u2581" + letter for letter in "abcdefghij"] + list("abcdefghij")
    names += [f"\u2581{letter}{i}" for i in range(4) for letter in "abcdefghij"]
    tokenizer = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names[:VOCABULARY])}, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("\u2581?."), "isolated")
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in ("<pad>", "</s>", "<unk>")])
    return tokenizer


# As models have it: a mark for each message, and one behind which the answer begins.
TEMPLATE = """{{- bos_token }}
{%- for message in messages %}
    {%- if message.role not in ["system", "user", "assistant"] %}
        {{- raise_exception("there are no " + message.role + "s") }}
    {%- endif %}
    {{- {"system": "c", "user": "a", "assistant": "b"}[message["role"]] + " " + message["content"] | trim + eos_token }}
{%- endfor %}
{%- if add_generation_prompt %}{{ "b " }}{% endif %}"""

TEMPLATE_OF_ODD_ROLES = r"""
{%- for message in messages %}
    {%- if message.role == "endless" %}{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}{% endif %}
    {%- if message.role == "large" %}{{ "a" * 10 ** 15 }}{% endif %}
    {%- if message.role == "wrong" %}{{ "abc" | truncate(-5) }}{% endif %}
    {%- if message.role == "half" %}{{ "\ud800" }}{% endif %}
    {{- message.content }}
{%- endfor %}"""


# As models have it that were trained on what they said: the blocks mark that, and add nothing.
GENERATION_TEMPLATE = """{%- for message in messages %}
    {%- if loop.index > 9 %}{% break %}{% endif %}
    {%- if message.role == "assistant" %}
        {%- set mark = "b " %}
        {%- generation %}{{ mark + message.content + eos_token }}{% endgeneration %}
    {%- else %}{{- "a " + message.content }}{% endif %}
{%- endfor %}
{{- strftime_now("c") }}{{ {"k": "<\u00e9>"} | tojson(indent=1) | length }}"""

# More time and memory than there is.
COSTLY_TEMPLATE = """{% if messages[0].role == "power" %}{{ (messages | length + 8) ** (9 ** 9) }}{% endif %}
{%- if messages[0].role == "large" %}{{ ("a" * 10 ** 6) * 10 ** 4 }}{% endif %}
{%- if messages[0].role == "list" %}{{ (messages * 10 ** 9) | length }}{% endif %}
{%- if messages[0].role == "deep" %}{% macro again(n) %}{{ again(n + 1) }}{% endmacro %}{{ again(0) }}{% endif %}
{{- "b " }}"""


class Server(Serving):
    def __init__(self, folder):
        self.folder = folder
        self.tokenizers = {"gpt2": byte_level(), "llama": metaspace(), "t5": metaspace(), "bytes": byte_level()}
        for name, file in {"gpt2": "gpt2_hf5_torchscript_sdpa_17", "llama": "llama_hf5_torchscript_sdpa_17",
                           "bytes": "qwen2_hf5_torchscript_sdpa_17"}.items():
            (folder / name / "1").mkdir(parents=True)
            shutil.copy(MODELS / f"decoders/{file}.onnx", folder / name / "1/model.onnx")
            (folder / name / "1/generation_config.json").write_text('{"eos_token_id": 1}')
        shutil.copytree(MODELS / "encoder_decoders/t5_hf5_torchscript_eager_14", folder / "t5/1")
        for name, tokenizer in self.tokenizers.items():
            tokenizer.save(str(folder / name / "tokenizer.json"))
        config = {"chat_template": TEMPLATE, "bos_token": {"content": "<unk>"}, "eos_token": "</s>"}
        (folder / "llama/tokenizer_config.json").write_text(json.dumps(config))
        (folder / "bytes/chat_template.jinja").write_text(TEMPLATE_OF_ODD_ROLES)
        (folder / "gpt2/chat_template.jinja").write_text("{% break %}")
        templates = {"generation": GENERATION_TEMPLATE, "costly": COSTLY_TEMPLATE, "frozen": "{{ 9 ** (9 ** 9) }}"}
        for name, template in templates.items():
            shutil.copytree(folder / "llama", folder / name)
            self.tokenizers[name] = self.tokenizers["llama"]
            settings = {**config, "chat_template": template, "model_max_length": 60}
            (folder / name / "tokenizer_config.json").write_text(json.dumps(settings))
        (folder / "silent/1").mkdir(parents=True)
        shutil.copy(folder / "gpt2/1/model.onnx", folder / "silent/1/model.onnx")
        self.serve("--model-repository", folder, "--http-metrics")

    def open(self, path, body):
        return urllib.request.urlopen(urllib.request.Request(self.url + path, json.dumps(body).encode()), timeout=60)

    def ask(self, path, body):
        try:
            with self.open(path, body) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def events(self, path, body):
        with self.open(path, body) as response:
            assert response.headers["Content-Type"].startswith("text/event-stream")
            return [line[6:] for line in response.read().decode().splitlines() if line]

    def streamed(self, body):
        """Returns the texts of a stream's choices, the numbers of their pieces, and their finish reasons."""
        events = self.events("/v1/completions", {**body, "stream": True})
        assert events.pop() == "[DONE]"
        texts, reasons, pieces = {}, {}, 0
        for event in map(json.loads, events):
            assert event["object"] == "text_completion" and event["model"] == body["model"]
            for choice in event["choices"]:
                assert choice["index"] not in reasons
                texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
                pieces += bool(choice["text"])
                if choice["finish_reason"]:
                    reasons[choice["index"]] = choice["finish_reason"]
        return texts, pieces, reasons

    def tokens(self, name, text, **parameters):
        """The tokens of the answer that the model itself gives."""
        ids = self.tokenizers[name].encode(text).ids
        status, answer = self.ask(f"/v2/models/{name}/generate", {"input_ids": ids, **parameters})
        assert status == 200, answer
        rows = answer["output_ids"]
        rows = rows if isinstance(rows[0], list) else [rows]
        return ids, [[token for token in row if token >= 0] for row in rows]

    def text(self, name, prompt, answer):
        tokenizer = self.tokenizers[name]
        answer = answer[:-1] if answer[-1] == 1 else answer  # the end token
        if name == "t5":
            return tokenizer.decode(answer)
        return tokenizer.decode(prompt + answer)[len(tokenizer.decode(prompt)):]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("completions"))
    yield server
    server.close()


@pytest.mark.parametrize("name", ["gpt2", "llama", "t5", "bytes"])
def test_the_text_is_that_of_the_models_tokens(server, name):
    def check(case):
        i, prompt = case
        given = {"max_tokens": 3 + 5 * (i % 4), "temperature": 0.9 * (i % 3 > 0), "seed": i}
        if name in ("llama", "t5"):
            prompt = "ab c"[:1 + i % 4]
        ids, (answer,) = server.tokens(name, prompt, **given)
        wanted = server.text(name, ids, answer)
        status, got = server.ask("/v1/completions", {"model": name, "prompt": prompt, **given})
        assert status == 200, got
        assert got["choices"] == [{"index": 0, "text": wanted, "logprobs": None,
                                   "finish_reason": "stop" if answer[-1] == 1 else "length"}]
        assert got["usage"] == {"prompt_tokens": len(ids), "completion_tokens": len(answer),
                                "total_tokens": len(ids) + len(answer)}
        texts, _, reasons = server.streamed({"model": name, "prompt": prompt, **given})
        assert texts.get(0, "") == wanted and reasons == {0: got["choices"][0]["finish_reason"]}

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(check, [(i, PROMPTS[i % len(PROMPTS)]) for i in range(32)]))
    # Pieces that are ready at the same time are sent together, on a busy machine all of them.
    prompt = {"model": name, "prompt": "ab", "max_tokens": 18, "temperature": 0.9}
    assert any(server.streamed({**prompt, "seed": seed})[1] > 1 for seed in range(200))


def test_characters_are_sent_whole(server):
    """For a model that draws bytes of characters: what cannot become one is sent as U+FFFD, what can is not."""
    wholes = 0
    kept = set(server.tokenizers["bytes"].encode("a\u00e9").ids)
    given = {"max_tokens": 40, "temperature": 1.5, "ignore_eos": True,
             "suppress_tokens": [token for token in range(VOCABULARY) if token not in kept]}
    for seed in range(12):
        body = {"model": "bytes", "prompt": "\u00e9", "seed": seed, "stream": True, **given}
        texts = [json.loads(event)["choices"][0]["text"] for event in server.events("/v1/completions", body)[:-1]]
        ids, (answer,) = server.tokens("bytes", "\u00e9", seed=seed, **given)
        tokenizer = server.tokenizers["bytes"]
        wanted = tokenizer.decode(ids + answer)[len(tokenizer.decode(ids)):]
        assert "".join(texts) == wanted
        pieces = [text for text in texts if text]
        assert not any(text.endswith("\ufffd") for text in pieces[:-1])
        wholes += wanted.count("\u00e9")
    assert wholes > 10


def test_stop_strings_end_the_text_before_them(server):
    _, whole = server.ask("/v1/completions", {"model": "llama", "prompt": "ab", "max_tokens": 24, "ignore_eos": True})
    text = whole["choices"][0]["text"]
    for begin in range(2, len(text) - 2, 3):
        stop = text[begin:begin + 3]
        cut = text[:text.find(stop)]
        for stops in (stop, [stop], ["never", stop]):
            body = {"model": "llama", "prompt": "ab", "max_tokens": 24, "ignore_eos": True, "stop": stops}
            _, got = server.ask("/v1/completions", body)
            assert got["choices"][0]["text"] == cut and got["choices"][0]["finish_reason"] == "stop"
            texts, _, reasons = server.streamed(body)
            assert texts.get(0, "") == cut and reasons == {0: "stop"}
    # The rest is not generated; how much of it depends on when that was seen.
    assert got["usage"]["completion_tokens"] <= 24


def test_several_choices(server):
    body = {"model": "gpt2", "prompt": "ab", "max_tokens": 10, "n": 3, "temperature": 1.0, "seed": 5}
    _, got = server.ask("/v1/completions", body)
    texts = [choice["text"] for choice in got["choices"]]
    assert [choice["index"] for choice in got["choices"]] == [0, 1, 2] and len(set(texts)) > 1
    for i, text in enumerate(texts):  # as if asked for alone
        _, alone = server.ask("/v1/completions", {**body, "n": 1, "seed": 5 + i})
        assert alone["choices"][0]["text"] == text
    assert server.streamed(body)[0] == dict(enumerate(texts))
    ids, answers = server.tokens("t5", "ab", max_tokens=8, num_beams=4, num_return_sequences=3)
    body = {"model": "t5", "prompt": "ab", "max_tokens": 8, "num_beams": 4, "n": 3}
    _, got = server.ask("/v1/completions", body)
    assert [choice["text"] for choice in got["choices"]] == [server.text("t5", ids, answer) for answer in answers]
    assert server.streamed(body)[0] == {i: choice["text"] for i, choice in enumerate(got["choices"])}


def close(got, wanted):
    """As lists and dicts of numbers that were computed in batches of different sizes."""
    if isinstance(wanted, dict):
        return isinstance(got, dict) and list(got) == list(wanted) and all(close(got[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        return isinstance(got, list) and len(got) == len(wanted) and all(map(close, got, wanted))
    return got == pytest.approx(wanted, abs=1e-4) if isinstance(wanted, float) else got == wanted


def logprobs_of_a_stream(server, body):
    """The lists of each choice's pieces, joined."""
    joined = {}
    for event in map(json.loads, server.events("/v1/completions", {**body, "stream": True})[:-1]):
        for choice in event["choices"]:
            if not choice["logprobs"]:
                assert not choice["text"] or choice["finish_reason"]
                continue
            own = joined.setdefault(choice["index"], {key: [] for key in choice["logprobs"]})
            for key, values in choice["logprobs"].items():
                own[key] = None if values is None else own[key] + values
    return joined


@pytest.mark.parametrize("name", ["gpt2", "llama", "t5", "bytes"])
def test_log_probabilities_are_those_of_the_texts_tokens(server, name):
    tokenizer, prompt = server.tokenizers[name], "ab c"
    for seed in range(6):
        given = {"max_tokens": 14, "temperature": 1.2, "seed": seed}
        for count in (0, 3):
            ids = tokenizer.encode(prompt).ids
            status, model = server.ask(f"/v2/models/{name}/generate", {"input_ids": ids, "logprobs": count, **given})
            assert status == 200, model
            answer = [token for token in model["output_ids"] if token >= 0]
            answer = answer[:-1] if answer[-1] == 1 else answer  # the end token has no text
            body = {"model": name, "prompt": prompt, "logprobs": count, **given}
            status, got = server.ask("/v1/completions", body)
            assert status == 200, got
            (choice,) = got["choices"]
            said = choice["logprobs"]
            assert "".join(said["tokens"]) == choice["text"] and len(said["tokens"]) == len(answer)
            assert close(said["token_logprobs"], model["token_logprobs"][:len(answer)])
            assert said["text_offset"] == [len("".join(said["tokens"][:i])) for i in range(len(answer))]
            if count == 0:
                assert said["top_logprobs"] is None
            else:
                for i, (token, likely) in enumerate(zip(answer, said["top_logprobs"])):
                    # Special tokens, and those that are parts of characters, by their names in the vocabulary.
                    assert said["tokens"][i] in likely or tokenizer.id_to_token(token) in likely
                    wanted = dict(zip(model["top_token_ids"][i], model["top_logprobs"][i]))
                    wanted[token] = said["token_logprobs"][i]
                    assert 0 < len(likely) <= len(wanted)
                    assert all(any(close(own, other) for other in wanted.values()) for own in likely.values())
                    assert close(next(iter(likely.values())), max(wanted.values()))
            assert close(logprobs_of_a_stream(server, body).get(0, said), said)


def test_tokens_behind_a_stop_string_have_no_log_probabilities(server):
    body = {"model": "llama", "prompt": "ab", "max_tokens": 24, "ignore_eos": True, "logprobs": 2}
    _, whole = server.ask("/v1/completions", body)
    text, said = whole["choices"][0]["text"], whole["choices"][0]["logprobs"]
    for begin in range(2, len(text) - 2, 3):
        stops = {**body, "stop": [text[begin:begin + 3]]}
        _, got = server.ask("/v1/completions", stops)
        (choice,) = got["choices"]
        own = choice["logprobs"]
        assert "".join(own["tokens"]) == choice["text"] == text[:text.find(stops["stop"][0])]
        assert close(own["token_logprobs"], said["token_logprobs"][:len(own["tokens"])])
        assert own["text_offset"] == said["text_offset"][:len(own["tokens"])]
        assert close(logprobs_of_a_stream(server, stops).get(0, own), own)


def test_several_choices_have_log_probabilities_of_their_own(server):
    for more in ({"model": "gpt2", "temperature": 1.0, "seed": 5}, {"model": "t5", "num_beams": 4}):
        body = {"prompt": "ab", "max_tokens": 8, "n": 3, "logprobs": 1, **more}
        status, got = server.ask("/v1/completions", body)
        assert status == 200, got
        for choice in got["choices"]:
            assert "".join(choice["logprobs"]["tokens"]) == choice["text"]
        streamed = logprobs_of_a_stream(server, body)
        for choice in got["choices"]:
            assert close(streamed.get(choice["index"], choice["logprobs"]), choice["logprobs"])


def test_the_generate_extension_has_log_probabilities_of_texts(server):
    body = {"text_input": "ab", "max_tokens": 9, "logprobs": 2}
    _, whole = server.ask("/v2/models/gpt2/generate", body)
    assert "".join(whole["tokens"]) == whole["text_output"] and len(whole["top_tokens"]) == len(whole["tokens"])
    pieces = [json.loads(event) for event in server.events("/v2/models/gpt2/generate_stream", body)]
    for key in ("tokens", "token_logprobs", "text_offset", "top_tokens", "top_logprobs"):
        assert close([value for piece in pieces for row in piece.get(key, []) for value in row], whole[key])
    _, without = server.ask("/v2/models/gpt2/generate", {"text_input": "ab", "max_tokens": 9})
    assert "tokens" not in without and "token_logprobs" not in without


def chat_of_a_stream(server, body):
    """The message of each choice, its log-probabilities, and why it ended."""
    events = server.events("/v1/chat/completions", {**body, "stream": True})
    assert events.pop() == "[DONE]"
    messages, logprobs, reasons = {}, {}, {}
    for event in map(json.loads, events):
        assert event["object"] == "chat.completion.chunk" and event["id"].startswith("chatcmpl-")
        for choice in event["choices"]:
            index, delta = choice["index"], choice["delta"]
            assert ("role" in delta) == (index not in messages and not choice["finish_reason"])
            messages[index] = messages.get(index, "") + delta.get("content", "")
            if choice["logprobs"]:
                logprobs.setdefault(index, []).extend(choice["logprobs"]["content"])
            if choice["finish_reason"]:
                reasons[index] = choice["finish_reason"]
    return messages, logprobs, reasons


def test_chats_are_continued_as_the_template_writes_them(server):
    user = {"role": "user", "content": " ab "}
    parts = {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    answered = {"role": "assistant", "content": None}
    for messages, prompt in [([user], "<unk>a ab</s>b "), ([{"role": "system", "content": "d"}, user], "<unk>c d</s>a ab</s>b "),
                             ([user, answered, user], "<unk>a ab</s>b </s>a ab</s>b "), ([parts], "<unk>a a\nb</s>b ")]:
        for seed in range(4):
            given = {"temperature": 1.0, "seed": seed}
            status, got = server.ask("/v1/chat/completions",
                                     {"model": "llama", "messages": messages, "max_completion_tokens": 9, "max_tokens": 1, **given})
            assert status == 200, got
            ids = server.tokenizers["llama"].encode(prompt, add_special_tokens=False).ids
            _, wanted = server.ask("/v1/completions", {"model": "llama", "prompt": ids, "max_tokens": 9, **given})
            assert got["object"] == "chat.completion" and got["usage"] == wanted["usage"]
            (choice,), (same,) = got["choices"], wanted["choices"]
            assert choice == {"index": 0, "message": {"role": "assistant", "content": same["text"]}, "logprobs": None,
                              "finish_reason": same["finish_reason"]}
            body = {"model": "llama", "messages": messages, "max_tokens": 9, **given}
            assert chat_of_a_stream(server, body) == ({0: same["text"]}, {}, {0: same["finish_reason"]})
    body = {"model": "bytes", "messages": [{"role": "bard", "content": "ab"}], "max_tokens": 4}  # a file of its own
    assert server.ask("/v1/chat/completions", body)[0] == 200


def test_a_chat_goes_on_until_it_ends(server):
    """Without max_tokens, as OpenAI's do; other requests have 16 tokens."""
    body = {"model": "llama", "messages": [{"role": "user", "content": "ab"}], "seed": 1, "temperature": 1.0}
    status, got = server.ask("/v1/chat/completions", {**body, "ignore_eos": True})
    assert status == 200 and got["choices"][0]["finish_reason"] == "length"
    assert got["usage"]["total_tokens"] == 2048  # as long as sequences are where no file says it
    assert server.ask("/v1/chat/completions", body)[1]["choices"][0]["finish_reason"] == "stop"
    status, got = server.ask("/v1/chat/completions", {**body, "ignore_eos": True, "max_tokens": 20})
    assert got["usage"]["completion_tokens"] == 20
    status, got = server.ask("/v1/completions", {"model": "llama", "prompt": "ab", "ignore_eos": True})
    assert got["usage"]["completion_tokens"] == 16


def test_chats_have_log_probabilities(server):
    body = {"model": "llama", "messages": [{"role": "user", "content": "ab"}], "max_tokens": 6, "ignore_eos": True, "n": 2,
            "temperature": 1.0, "seed": 3}
    ids = server.tokenizers["llama"].encode("<unk>a ab</s>b ", add_special_tokens=False).ids
    for likely in (None, 2):
        chat = {**body, "logprobs": True} if likely is None else {**body, "logprobs": True, "top_logprobs": likely}
        status, got = server.ask("/v1/chat/completions", chat)
        assert status == 200, got
        alone = {key: value for key, value in body.items() if key != "messages"}
        _, wanted = server.ask("/v1/completions", {**alone, "prompt": ids, "logprobs": likely or 0})
        for choice, same in zip(got["choices"], wanted["choices"]):
            content, said = choice["logprobs"]["content"], same["logprobs"]
            assert [entry["token"] for entry in content] == said["tokens"]
            assert close([entry["logprob"] for entry in content], said["token_logprobs"])
            assert all(bytes(entry["bytes"]).decode() == entry["token"] for entry in content)
            top = [{entry["token"]: entry["logprob"] for entry in each["top_logprobs"]} for each in content]
            assert close(top, said["top_logprobs"] or [{}] * len(content))
        _, streamed, _ = chat_of_a_stream(server, chat)
        for choice in got["choices"]:
            assert close(streamed.get(choice["index"], []), choice["logprobs"]["content"])


@pytest.mark.parametrize("body, why", [
    ({}, '"messages" is missing'),
    ({"messages": "hello"}, "must be a list of messages"),
    ({"messages": []}, "must be a list of one message or more"),
    ({"messages": ["hello"]}, 'message 0 must be an object with a "role"'),
    ({"messages": [{"content": "a"}]}, 'message 0 must be an object with a "role"'),
    ({"messages": [{"role": "user", "content": 7}]}, 'the "content" of message 0 must be a string'),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, "has a part 'image_url'"),
    ({"messages": [{"role": "bard", "content": "a"}]}, "refuses these messages: there are no bards"),
    ({"messages": [{"role": "user", "content": "a" * 140_000}]}, "it may have 131072"),
    ({"messages": [{"role": "assistant", "content": "a", "tool_calls": [{}]}]}, 'has "tool_calls"'),
    ({"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "function"}]}, '"tools" are not supported'),
    ({"messages": [{"role": "user", "content": "a"}], "tool_choice": "required"}, "tools are not supported, so leave it out"),
    ({"messages": [{"role": "user", "content": "a"}], "response_format": {"type": "json_object"}}, '"response_format"'),
    ({"messages": [{"role": "user", "content": "a"}], "top_logprobs": 2}, 'it goes with "logprobs": true'),
    ({"messages": [{"role": "user", "content": "a"}], "logprobs": 2}, '"logprobs"'),
    ({"messages": [{"role": "user", "content": "a"}], "logprobs": True, "top_logprobs": 21}, "it must be from 0 to 20"),
    ({"messages": [{"role": "user", "content": "a"}], "model": "t5"}, "the model has no chat template"),
    ({"messages": [{"role": "user", "content": "a"}], "model": "gpt2"}, "invalid chat template: 'break' outside loop"),
    ({"messages": [{"role": "large", "content": "a"}], "model": "bytes"}, "does not take these messages: MemoryError"),
    ({"messages": [{"role": "wrong", "content": "a"}], "model": "bytes"}, "does not take these messages: expected length"),
    ({"messages": [{"role": "half", "content": "a"}], "model": "bytes"}, "the text is not UTF-8"),
    ({"messages": [{"role": "user", "content": "a"}], "echo": True}, "for chats only false is supported"),
])
def test_what_is_wrong_of_a_chat_is_named(server, body, why):
    for more in ({}, {"stream": True}):
        status, error = server.ask("/v1/chat/completions", {"model": "llama", **body, **more})
        assert status == 400 and why in error["error"]["message"], error
        assert error["error"]["type"] == "invalid_request_error"


def test_a_template_that_takes_too_long_holds_up_other_texts_for_some_seconds_only(server):
    with ThreadPoolExecutor() as pool:
        endless = [pool.submit(server.ask, "/v1/chat/completions",
                               {"model": "bytes", "messages": [{"role": "endless", "content": "a"}]}) for _ in range(2)]
        body = {"model": "bytes", "messages": [{"role": "user", "content": "a"}], "max_tokens": 2}
        begin = time.monotonic()
        assert server.ask("/v1/chat/completions", body)[0] == 200
        assert time.monotonic() - begin < 40  # those whose worker does not come back take 60
        for future in endless:
            status, error = future.result()
            assert status == 400 and "is not done with them within 5 s" in error["error"]["message"], error


def test_chats_with_generation_blocks(server):
    messages = [{"role": "user", "content": "ab"}, {"role": "assistant", "content": "c"}, {"role": "user", "content": "d"}]
    status, got = server.ask("/v1/chat/completions", {"model": "generation", "messages": messages, "max_tokens": 4})
    assert status == 200, got
    ids = server.tokenizers["llama"].encode("a abb c</s>a dc14", add_special_tokens=False).ids
    _, wanted = server.ask("/v1/completions", {"model": "generation", "prompt": ids, "max_tokens": 4})
    assert got["usage"] == wanted["usage"] and got["choices"][0]["message"]["content"] == wanted["choices"][0]["text"]


@pytest.mark.parametrize("role, why", [
    ("power", "within 5 s"), ("large", "MemoryError"), ("list", "MemoryError"), ("deep", "maximum recursion depth exceeded")])
def test_a_costly_template_fails_its_own_chats_only(server, role, why):
    body = {"model": "costly", "messages": [{"role": role, "content": "a"}], "max_tokens": 2}
    status, error = server.ask("/v1/chat/completions", body)
    assert status == 400 and why in error["error"]["message"], error
    assert server.ask("/v1/completions", {"model": "costly", "prompt": "a", "max_tokens": 2})[0] == 200
    assert server.ask("/v1/chat/completions", {**body, "messages": [{"role": "user", "content": "a"}]})[0] == 200


def test_a_template_that_takes_too_long_to_compile_does_not_hold_up_its_model(server):
    status, error = server.ask("/v1/chat/completions", {"model": "frozen", "messages": [{"role": "user", "content": "a"}]})
    assert status == 400 and "invalid chat template: it is not compiled within 5 s" in error["error"]["message"]
    assert server.ask("/v1/completions", {"model": "frozen", "prompt": "a", "max_tokens": 2})[0] == 200


def test_usage_at_the_end_of_a_stream(server):
    body = {"model": "gpt2", "prompt": "abc", "max_tokens": 4, "ignore_eos": True, "stream": True,
            "stream_options": {"include_usage": True}}
    events = server.events("/v1/completions", body)
    usage = json.loads(events[-2])
    assert usage["choices"] == [] and usage["usage"]["completion_tokens"] == 4 and events[-1] == "[DONE]"


def test_the_generate_extension_takes_texts(server):
    ids, (answer,) = server.tokens("gpt2", "ab", max_tokens=9)
    wanted = server.text("gpt2", ids, answer)
    given = {"stream": False, "max_tokens": 9, "exclude_input_in_output": True}
    status, got = server.ask("/v2/models/gpt2/generate", {"text_input": "ab", "parameters": given})
    assert status == 200, got
    assert got["text_output"] == wanted and got["num_tokens"] == len(answer) and got["model_name"] == "gpt2"
    events = server.events("/v2/models/gpt2/generate_stream", {"text_input": "ab", "max_tokens": 9})
    pieces = [json.loads(event) for event in events]
    assert all(piece["model_name"] == "gpt2" for piece in pieces)
    assert "".join(piece.get("text_output", "") for piece in pieces) == wanted
    assert pieces[-1]["finish_reason"] in ("stop", "length")


def test_a_request_counts_once_however_many_parts_it_has(server):
    def requests(outcome):
        with urllib.request.urlopen(server.url + "/metrics", timeout=30) as response:
            lines = response.read().decode().splitlines()
        counts = [line.split()[-1] for line in lines
                  if line.startswith('chairlift_requests_total{model="gpt2"') and f'outcome="{outcome}"' in line]
        return sum(map(float, counts))

    good, bad = requests("success"), requests("failure")
    assert server.ask("/v1/completions", {"model": "gpt2", "prompt": ["ab", "c"], "max_tokens": 3, "n": 2})[0] == 200
    assert server.ask("/v2/models/gpt2/generate", {"input_ids": [3, 4], "max_tokens": 3})[0] == 200
    assert requests("success") == good + 2
    assert server.ask("/v1/completions", {"model": "gpt2", "prompt": "ab " * 4000})[0] == 400
    assert requests("failure") == bad + 1


@pytest.mark.parametrize("path", ["/v1/completions", "/v2/models/generation/generate"])
def test_a_long_prompt_is_not_told_to_be_truncated(server, path):
    body = {"model": "generation", "prompt": "ab " * 4000} if path.startswith("/v1") else {"text_input": "ab " * 4000}
    status, answer = server.ask(path, body)
    assert status == 400 and "shorten it" in str(answer) and "truncate" not in str(answer)


def test_fields_that_are_always_refused_are_not_offered(server):
    status, answer = server.ask("/v1/completions", {"model": "gpt2", "prompt": "a", "xyzzy": 1})
    message = answer["error"]["message"]
    assert status == 400 and "there is no field 'xyzzy'" in message and "'max_tokens'" in message
    assert "suffix" not in message and "best_of" not in message
    status, answer = server.ask("/v1/completions", {"model": "gpt2", "prompt": "a", "truncate": True})
    assert status == 400 and "prompts are not truncated; shorten them" in answer["error"]["message"]


def test_prompts_may_be_tokens(server):
    ids = server.tokenizers["gpt2"].encode("ab").ids
    _, of_text = server.ask("/v1/completions", {"model": "gpt2", "prompt": "ab", "max_tokens": 6})
    for prompt in (ids, [ids], ["ab"]):
        status, got = server.ask("/v1/completions", {"model": "gpt2", "prompt": prompt, "max_tokens": 6})
        assert status == 200 and got["choices"] == of_text["choices"]


@pytest.mark.parametrize("body, why", [
    ({"model": "gpt2"}, '"prompt" is missing'),
    ({"model": "gpt2", "prompt": 7}, "must be a text, a list of token ids, or a list of these"),
    ({"model": "gpt2", "prompt": []}, "must be a text, a list of token ids, or a list of these"),
    ({"model": "gpt2", "prompt": [1, -1]}, "whole numbers of 0 or more"),
    ({"model": "gpt2", "prompt": [1, 900]}, "not in the vocabulary"),
    ({"model": "gpt2", "prompt": ""}, "the text has no tokens"),
    ({"model": "gpt2", "prompt": "a", "max_tokens": 100000}, "max_tokens is 100000"),
    ({"model": "gpt2", "prompt": "a", "temperature": -1}, "temperature is -1"),
    ({"model": "gpt2", "prompt": "a", "temperature": "hot"}, '"temperature"'),
    ({"model": "gpt2", "prompt": "a", "n": 33}, '"n" is 33; it must be from 1 to 32'),
    ({"model": "gpt2", "prompt": "a", "stop": [""]}, "stop has a string of 0 bytes"),
    ({"model": "gpt2", "prompt": "a", "stop": ["b"] * 17}, "stop has 17 strings"),
    ({"model": "gpt2", "prompt": "a", "logprobs": 21}, "logprobs is 21; it must be from 0 to 20"),
    ({"model": "gpt2", "prompt": "a", "logprobs": True}, '"logprobs"'),
    ({"model": "gpt2", "prompt": "a", "best_of": 2}, 'it must equal "n", 1'),
    ({"model": "gpt2", "prompt": "a", "num_beams": 2, "num_return_sequences": 2}, 'send "n"'),
    ({"model": "gpt2", "prompt": "a", "num_beams": 2, "temperature": 1}, "beams are not sampled"),
])
def test_what_is_wrong_is_named(server, body, why):
    for more in ({}, {"stream": True}):
        status, error = server.ask("/v1/completions", {**body, **more})
        assert status == 400 and why in error["error"]["message"], error
        assert error["error"]["type"] == "invalid_request_error"


def test_models_without_a_tokenizer(server):
    status, error = server.ask("/v1/completions", {"model": "silent", "prompt": "a"})
    assert status == 400 and "no tokenizer.json" in error["error"]["message"]
    status, error = server.ask("/v2/models/silent/generate", {"text_input": "a"})
    assert status == 400 and "no tokenizer.json" in error["error"]
    status, error = server.ask("/v1/completions", {"model": "gpt4", "prompt": "a"})
    names = ", ".join(f"'{name}'" for name in sorted(server.tokenizers))
    assert status == 404 and f"there are: {names}" in error["error"]["message"]
    with urllib.request.urlopen(server.url + "/v1/models", timeout=30) as response:
        assert [model["id"] for model in json.load(response)["data"]] == sorted(server.tokenizers)


def test_a_client_that_leaves_ends_its_request(server):
    for _ in range(8):
        response = server.open("/v1/completions", {"model": "gpt2", "prompt": "ab", "max_tokens": 50, "ignore_eos": True,
                                                   "stream": True})
        response.readline()
        response.close()
    status, got = server.ask("/v1/completions", {"model": "gpt2", "prompt": "ab", "max_tokens": 5})
    assert status == 200 and got["choices"][0]["text"] is not None


def test_lists_of_tokens_may_differ_in_length(server):
    ids = server.tokenizers["gpt2"].encode("ab").ids
    given = {"input_ids": ids, "max_tokens": 12, "ignore_eos": True}
    ragged = {"stop_sequences": [[5], [7, 8, 9]], "bad_words_ids": [[3, 4], [6]]}
    filled = {"stop_sequences": [[5, -1, -1], [7, 8, 9]], "bad_words_ids": [[3, 4], [6, -1]]}
    _, got = server.ask("/v2/models/gpt2/generate", {**given, **ragged})
    _, wanted = server.ask("/v2/models/gpt2/generate", {**given, **filled})
    assert got["output_ids"] == wanted["output_ids"]
    status, error = server.ask("/v2/models/gpt2/generate", {**given, "stop_sequences": [[5], []]})
    assert status == 400 and "sequence 1 must be one or more tokens" in error["error"]

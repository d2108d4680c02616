"""The openai package, unmodified, against MiniLM and the Transformer that pronounces, with their tokenizers."""

import json
import math
import os
import unittest
import urllib.error
import urllib.request

import openai

URL = f"http://{os.environ['CHAIRLIFT_ADDRESS']}"
LIKE, ALSO, OTHER = "The kitten fell asleep.", "A cat is sleeping.", "Interest rates were raised again."


def similarity(a, b):
    return sum(x * y for x, y in zip(a, b))


def post(path, body):
    """Returns the status and the answer's JSON."""
    request = urllib.request.Request(URL + path, json.dumps(body).encode() if isinstance(body, dict) else body)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


class OpenAi(unittest.TestCase):
    def setUp(self):
        self.client = openai.OpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0)
        self.addCleanup(self.client.close)

    def embed(self, texts, **more):
        return self.client.embeddings.create(model="minilm", input=texts, **more)

    def test_models_are_listed(self):
        self.assertEqual([model.id for model in self.client.models.list()], ["minilm", "g2p"])

    def test_a_model_is_described(self):
        model = self.client.models.retrieve("minilm")
        self.assertEqual((model.id, model.object), ("minilm", "model"))
        self.assertGreater(model.created, 0)
        with self.assertRaisesRegex(openai.NotFoundError, "gpt4"):
            self.client.models.retrieve("gpt4")

    def test_vectors_of_like_texts_are_alike(self):
        answer = self.embed([LIKE, ALSO, OTHER])  # base64, which the package asks for by itself
        vectors = [entry.embedding for entry in answer.data]
        self.assertEqual([entry.index for entry in answer.data], [0, 1, 2])
        self.assertEqual([len(vector) for vector in vectors], [384] * 3)
        for vector in vectors:
            self.assertAlmostEqual(math.hypot(*vector), 1, places=5)
        self.assertGreater(similarity(vectors[0], vectors[1]), 0.5)
        self.assertLess(similarity(vectors[0], vectors[2]), 0.3)
        self.assertEqual(answer.model, "minilm")

    def test_floats_and_base64_are_the_same_numbers(self):
        floats = self.embed(LIKE, encoding_format="float").data[0].embedding
        for x, y in zip(floats, self.embed(LIKE).data[0].embedding):
            self.assertAlmostEqual(x, y, places=6)

    def test_token_ids_are_the_text(self):
        ids = [101, 1996, 18401, 3062, 6680, 1012, 102]  # LIKE
        self.assertEqual(self.embed(LIKE).usage.prompt_tokens, len(ids))
        for given in (ids, [ids, ids]):
            for x, y in zip(self.embed(given).data[-1].embedding, self.embed(LIKE).data[0].embedding):
                self.assertAlmostEqual(x, y, places=5)
        self.assertEqual(self.embed([LIKE, LIKE]).usage.total_tokens, 2 * len(ids))

    def test_a_long_text_is_refused_or_truncated(self):
        with self.assertRaisesRegex(openai.BadRequestError, "more than the 256 tokens that the model takes"):
            self.embed("word " * 1000)
        answer = self.embed("word " * 1000, extra_body={"truncate": True})
        self.assertEqual(answer.usage.prompt_tokens, 256)

    def test_errors_are_its_exceptions(self):
        with self.assertRaisesRegex(openai.NotFoundError, "'gpt' does not exist \\(there are: 'minilm'\\)"):
            self.client.embeddings.create(model="gpt", input="a")
        for wrong in ([], ["a"] * 2049, [[30522]], [[-1]], [["a"]], [1.5], "a\x00" * 70000):
            with self.assertRaises(openai.BadRequestError, msg=str(wrong)[:40]):
                self.embed(wrong)

    def complete(self, word, **more):
        return self.client.completions.create(model="g2p", prompt=word, **more)

    def test_a_text_is_continued(self):
        answer = self.complete("gondola")
        self.assertEqual(answer.choices[0].text, "G AA N D OW L AH")
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertEqual((answer.usage.prompt_tokens, answer.usage.completion_tokens), (7, 8))
        self.assertEqual(self.complete("gondola", max_tokens=2).choices[0].finish_reason, "length")

    def test_a_text_comes_in_pieces(self):
        chunks = list(self.complete("gondola", stream=True, stream_options={"include_usage": True}))
        self.assertEqual("".join(c.choices[0].text for c in chunks if c.choices), "G AA N D OW L AH")
        self.assertGreaterEqual(len(chunks), 3)  # text, why it ended, usage
        self.assertEqual([c.choices[0].finish_reason for c in chunks if c.choices][-1], "stop")
        self.assertEqual(chunks[-1].usage.completion_tokens, 8)

    def test_several_texts(self):
        best = [choice.text for choice in self.complete("read", n=3, extra_body={"num_beams": 4}).choices]
        self.assertEqual(len(set(best)), 3)
        self.assertEqual({"R IY D", "R EH D"} - set(best), set())
        drawn = self.complete("read", n=4, temperature=1.5, seed=1, top_p=0.9, presence_penalty=0.1).choices
        self.assertEqual([choice.index for choice in drawn], [0, 1, 2, 3])

    def test_several_prompts(self):
        answer = self.complete(["gondola", "read", "gondola"], n=2)
        texts = [choice.text for choice in answer.choices]
        self.assertEqual([choice.index for choice in answer.choices], list(range(6)))
        self.assertEqual(texts[:2], ["G AA N D OW L AH"] * 2)
        self.assertEqual(texts[4:], texts[:2])
        self.assertEqual(texts[2], self.complete("read").choices[0].text)

    def test_a_bias_chooses_a_token(self):
        plain = self.complete("gondola", max_tokens=4).choices[0].text
        self.assertNotEqual(self.complete("gondola", max_tokens=4, logit_bias={"5": 100}).choices[0].text, plain)
        self.assertEqual(self.complete("gondola", max_tokens=4, logit_bias={"5": 0}).choices[0].text, plain)
        with self.assertRaisesRegex(openai.BadRequestError, "from -100 to 100"):
            self.complete("gondola", logit_bias={"5": 101})

    def test_what_changes_no_answer_is_accepted_and_what_would_is_not(self):
        answer = self.complete("gondola", user="me", extra_body={"metadata": {}, "store": False, "service_tier": "auto"})
        self.assertEqual(answer.choices[0].text, "G AA N D OW L AH")
        with self.assertRaisesRegex(openai.BadRequestError, "did you mean 'max_tokens'"):
            self.complete("gondola", extra_body={"max_token": 3})
        with self.assertRaisesRegex(openai.BadRequestError, "echo is true"):
            self.complete("gondola", echo=True)

    def test_a_stop_string_ends_it(self):
        self.assertEqual(self.complete("gondola", stop=" D").choices[0].text, "G AA N")
        with self.assertRaisesRegex(openai.BadRequestError, "temperature is -1"):
            self.complete("gondola", temperature=-1)
        with self.assertRaisesRegex(openai.BadRequestError, "not generated text"):
            self.client.completions.create(model="minilm", prompt="a")

    def test_many_texts_of_all_lengths(self):
        texts = [" ".join(["snow"] * (1 + i % 60)) for i in range(200)]
        vectors = [entry.embedding for entry in self.embed(texts).data]
        alone = self.embed(texts[137]).data[0].embedding
        for x, y in zip(alone, vectors[137]):
            self.assertAlmostEqual(x, y, places=5)


class TextEmbeddingsInference(unittest.TestCase):
    def test_embed(self):
        status, vectors = post("/embed", {"inputs": [LIKE, OTHER]})
        self.assertEqual((status, len(vectors), len(vectors[0])), (200, 2, 384))
        status, one = post("/embed", {"inputs": LIKE, "normalize": False})
        self.assertEqual((status, len(one)), (200, 1))

    def test_similarity_and_tokens(self):
        status, scores = post("/similarity", {"inputs": {"source_sentence": LIKE, "sentences": [ALSO, OTHER]}})
        self.assertEqual(status, 200)
        self.assertGreater(scores[0], 0.5)
        self.assertLess(scores[1], 0.3)
        status, (tokens,) = post("/tokenize", {"model": "minilm", "inputs": LIKE})
        self.assertEqual([token["id"] for token in tokens], [101, 1996, 18401, 3062, 6680, 1012, 102])
        status, texts = post("/decode", {"model": "minilm", "ids": [1996, 18401]})
        self.assertEqual((status, texts), (200, ["the kitten"]))
        status, error = post("/embed_all", {"inputs": LIKE})  # its file pools by itself
        self.assertEqual(status, 422)
        self.assertIn("none for each token", error["error"])

    def test_errors(self):
        status, error = post("/embed", {"inputs": []})
        self.assertEqual((status, error["error_type"]), (422, "Validation"))
        status, error = post("/embed", b"{")
        self.assertEqual((status, error["error_type"]), (422, "Validation"))
        status, error = post("/rerank", {"query": "a", "texts": ["b"]})
        self.assertIn("no model for this is served", error["error"])


if __name__ == "__main__":
    unittest.main()

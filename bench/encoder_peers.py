"""Runs the peers of the encoder benchmarks: a BERT encoder on requests of varying length, each with both cores.

A way takes a list of requests (arrays of token ids) and computes every token's last hidden state. ONNX Runtime runs in
each way that a user might choose. CTranslate2 (with the same weights) and OpenVINO run as their documentation
recommends for latency and for throughput.
"""

import concurrent.futures
import pathlib
import statistics
import time

import numpy as np
import onnxruntime

THREADS = 2


def model_inputs(batch):
    """Requests as one padded batch: input_ids, attention_mask, token_type_ids."""
    longest = max(map(len, batch))
    ids = np.zeros((len(batch), longest), np.int64)
    mask = np.zeros_like(ids)
    for row, request in enumerate(batch):
        ids[row, :len(request)] = request
        mask[row, :len(request)] = 1
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}


def sorted_buckets(requests, size):
    order = sorted(requests, key=len)
    return [order[i:i + size] for i in range(0, len(order), size)]


def groups(requests, size):
    return [requests[i:i + size] for i in range(0, len(requests), size)]


class Way:
    """`split` cuts requests into batches, which `lanes` threads run, each with its own share of the cores."""

    def __init__(self, name, run_batch, split, lanes=1):
        self.name, self.run_batch, self.split, self.lanes = name, run_batch, split, lanes
        self.pool = concurrent.futures.ThreadPoolExecutor(lanes)

    def seconds(self, requests):
        """For all requests, which all arrive at the beginning."""
        begin = time.perf_counter()
        list(self.pool.map(self.run_batch, self.split(requests)))
        return time.perf_counter() - begin

    def close(self):
        self.pool.shutdown()


def one_by_one(requests):
    return [[request] for request in requests]


def onnxruntime_ways(path):
    def session(threads):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    both, single = session(THREADS), session(1)  # a session may run on several threads at once

    def run(which):
        return lambda batch: which.run(["last_hidden_state"], model_inputs(batch))

    return [
        Way("ort, one by one, 2 threads", run(both), one_by_one),
        Way("ort, one by one, 2 runs of 1 thread", run(single), one_by_one, THREADS),
        Way("ort, padded batches of 32", run(both), lambda r: groups(r, 32)),
        Way("ort, sorted buckets of 8", run(both), lambda r: sorted_buckets(r, 8)),
        Way("ort, sorted buckets of 8, 2 runs", run(single), lambda r: sorted_buckets(r, 8)[::-1], THREADS),
    ]


def openvino_ways(path, precision="f32"):
    """`precision`: OpenVINO's hint; None: its default."""
    import openvino

    core = openvino.Core()

    def compiled(hint, streams):
        return core.compile_model(str(path), "CPU", {
            "PERFORMANCE_HINT": hint, "NUM_STREAMS": str(streams), "INFERENCE_NUM_THREADS": THREADS,
            **({} if precision is None else {"INFERENCE_PRECISION_HINT": precision})})

    latency = compiled("LATENCY", 1).create_infer_request()
    streams = compiled("THROUGHPUT", THREADS)
    idle = [streams.create_infer_request() for _ in range(THREADS)]

    def on_a_stream(batch):
        request = idle.pop()
        request.infer(model_inputs(batch))
        idle.append(request)

    return [
        Way("openvino, one by one, latency", lambda batch: latency.infer(model_inputs(batch)), one_by_one),
        Way("openvino, one by one, 2 streams", on_a_stream, one_by_one, THREADS),
        Way("openvino, sorted buckets of 8, 2 streams", on_a_stream, lambda r: sorted_buckets(r, 8)[::-1], THREADS),
    ]


def ctranslate2_model(weights, shape, folder):
    """Writes the weights as a CTranslate2 model."""
    from ctranslate2 import specs

    spec = specs.TransformerEncoderModelSpec(specs.TransformerEncoderSpec(
        shape.layers, shape.heads, pre_norm=False, activation=specs.Activation.GELU, layernorm_embedding=True,
        num_source_embeddings=2, embeddings_merge=specs.EmbeddingsMerge.ADD))
    encoder = spec.encoder
    encoder.scale_embeddings = False
    encoder.embeddings[0].weight = weights("embeddings.word_embeddings.weight")
    encoder.embeddings[1].weight = weights("embeddings.token_type_embeddings.weight")
    encoder.position_encodings.encodings = weights("embeddings.position_embeddings.weight")

    def norm(to, name):
        to.gamma, to.beta = weights(name + ".weight"), weights(name + ".bias")

    def linear(to, *names):
        to.weight = np.concatenate([weights(name + ".weight") for name in names])
        to.bias = np.concatenate([weights(name + ".bias") for name in names])

    norm(encoder.layernorm_embedding, "embeddings.LayerNorm")
    for index, layer in enumerate(encoder.layer):
        p = f"encoder.layer.{index}."
        linear(layer.self_attention.linear[0], *(p + "attention.self." + n for n in ("query", "key", "value")))
        linear(layer.self_attention.linear[1], p + "attention.output.dense")
        norm(layer.self_attention.layer_norm, p + "attention.output.LayerNorm")
        linear(layer.ffn.linear_0, p + "intermediate.dense")
        linear(layer.ffn.linear_1, p + "output.dense")
        norm(layer.ffn.layer_norm, p + "output.LayerNorm")
    spec.register_vocabulary([str(i) for i in range(shape.vocabulary)])
    spec.config.layer_norm_epsilon = 1e-12
    spec.config.unk_token = "0"
    spec.validate()
    spec.optimize()
    pathlib.Path(folder).mkdir(parents=True)
    spec.save(str(folder))
    return folder


def ctranslate2_ways(folder):
    import ctranslate2

    both = ctranslate2.Encoder(str(folder), device="cpu", intra_threads=THREADS, compute_type="float32")
    lanes = ctranslate2.Encoder(str(folder), device="cpu", inter_threads=THREADS, intra_threads=1,
                                compute_type="float32")

    def run(which):
        return lambda batch: np.array(which.forward_batch([request.tolist() for request in batch]).last_hidden_state)

    return [
        Way("ctranslate2, one by one, 2 threads", run(both), one_by_one),
        Way("ctranslate2, one by one, 2 runs of 1 thread", run(lanes), one_by_one, THREADS),
        Way("ctranslate2, batches of 32", run(both), lambda r: groups(r, 32)),
        Way("ctranslate2, sorted buckets of 8, 2 runs", run(lanes), lambda r: sorted_buckets(r, 8)[::-1], THREADS),
    ]


def best_of(ways, requests):
    """The way that takes least, by its second run."""
    times = {}
    for way in ways:
        way.seconds(requests)
        times[way.name] = way.seconds(requests)
    return min(ways, key=lambda way: times[way.name])


def check(answers, expected):
    """Two lists of last hidden states must agree."""
    worst = max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(answers, expected))
    if not worst <= 1e-3:
        raise SystemExit(f"a peer's answers differ by {worst:.1e} of the range: not a comparison")
    return worst

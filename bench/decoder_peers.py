#!/usr/bin/env python3
"""Runs the peers that generate on two cores, in a separate process: CTranslate2, loops of ONNX Runtime, llama.cpp.

It reads one line of JSON for each question, and answers with one line:
    {"ask": "ways"}                                                     [names]
    {"ask": "check", "way": W, "prompts": [[…]], "tokens": N}           [[tokens of the answers]]
    {"ask": "run", "way": W, "counts": [[prompt, answer], …]}           seconds until all are answered
    {"ask": "serve", "way": W, "counts": …, "rate": R, "seconds": S, "seed": N}     latencies of Poisson arrivals in ms

Answers have the requested lengths, whatever their tokens. Batches are formed by the lengths of answers or prompts. No
server knows these in advance, so this is the peers' best case.
"""

import argparse
import concurrent.futures
import ctypes
import json
import pathlib
import queue
import random
import sys
import threading
import time

import numpy as np

import decoder_models

THREADS = 2


class Request:
    def __init__(self, tokens, count):
        self.tokens, self.count, self.answer = tokens, count, None


def drawn(counts, seed=1):
    rng = np.random.default_rng(seed)
    return [Request(rng.integers(2, 32, prompt).tolist(), count) for prompt, count in counts]


class Way:
    """`run_batch` answers some requests, on one of `lanes` threads; `batches` cuts all that there are."""

    def __init__(self, name, run_batch, batches, lanes=1, together=1):
        self.name, self.run_batch, self.batches, self.lanes = name, run_batch, batches, lanes
        self.together = together  # requests that are taken at once where they come one by one

    def run(self, requests):
        begin = time.perf_counter()
        with concurrent.futures.ThreadPoolExecutor(self.lanes) as pool:
            list(pool.map(self.run_batch, self.batches(requests)))
        return time.perf_counter() - begin

    def serve(self, requests, rate, seconds, seed):
        waiting, latencies = queue.SimpleQueue(), []

        def lane():
            while True:
                taken = [waiting.get()]
                while len(taken) < self.together and not waiting.empty():
                    taken.append(waiting.get())
                real = [item for item in taken if item is not None]
                if real:
                    self.run_batch([request for _, request in real])
                    now = time.perf_counter()
                    latencies.extend((now - due) * 1e3 for due, _ in real)
                if len(real) < len(taken):
                    for _ in range(len(taken) - len(real) - 1):
                        waiting.put(None)
                    return

        lanes = [threading.Thread(target=lane) for _ in range(self.lanes)]
        for thread in lanes:
            thread.start()
        chance = random.Random(seed)
        due = begin = time.perf_counter()
        sent = 0
        while True:
            due += chance.expovariate(rate)
            if due - begin > seconds:
                break
            time.sleep(max(0.0, due - time.perf_counter()))
            waiting.put((due, requests[sent % len(requests)]))
            sent += 1
        for _ in lanes:
            waiting.put(None)
        for thread in lanes:
            thread.join()
        return latencies


def one_by_one(requests):
    return [[request] for request in requests]


def sorted_batches(size, key=lambda r: r.count):
    def cut(requests):
        order = sorted(requests, key=key, reverse=True)
        return [order[i:i + size] for i in range(0, len(order), size)]
    return cut


def all_at_once(requests):
    return [requests]


# ---- ONNX Runtime ----


class OnnxRuntime:
    """A batch begins together and ends with its longest answer; what is read again stays in the library's tensors."""

    def __init__(self, folder, threads):
        import onnxruntime
        self.ort = onnxruntime
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        self.options, self.folder = options, folder

    def session(self, name):
        return self.ort.InferenceSession(str(self.folder / name), self.options, providers=["CPUExecutionProvider"])

    def values(self, **arrays):
        return {name: self.ort.OrtValue.ortvalue_from_numpy(array) for name, array in arrays.items()}

    @staticmethod
    def call(session, feeds):
        names = [output.name for output in session.get_outputs()]
        wanted = {i.name for i in session.get_inputs()}
        return dict(zip(names, session.run_with_ort_values(names, {k: v for k, v in feeds.items() if k in wanted})))


class OrtDecoder(OnnxRuntime):
    def __init__(self, folder, threads):
        super().__init__(folder, threads)
        self.model = self.session("model.onnx")
        self.past = [i for i in self.model.get_inputs() if i.name.startswith("past_key_values")]

    def __call__(self, batch):
        longest = max(len(r.tokens) for r in batch)
        ids, mask = np.zeros((len(batch), longest), np.int64), np.zeros((len(batch), longest), np.int64)
        for row, request in enumerate(batch):  # padded in front
            ids[row, longest - len(request.tokens):] = request.tokens
            mask[row, longest - len(request.tokens):] = 1
        positions = np.maximum(mask.cumsum(1) - 1, 0)
        past = self.values(**{i.name: np.zeros((len(batch), i.shape[1], 0, i.shape[3]), np.float32) for i in self.past})
        answers = []
        for _ in range(max(r.count for r in batch)):
            got = self.call(self.model, {**self.values(input_ids=ids, attention_mask=mask, position_ids=positions), **past})
            ids = got["logits"].numpy()[:, -1].argmax(1)[:, None]
            answers.append(ids)
            past = {i.name: got["present." + i.name.removeprefix("past_key_values.")] for i in self.past}
            mask = np.concatenate([mask, np.ones((len(batch), 1), np.int64)], 1)
            positions = positions[:, -1:] + 1
        for row, request in enumerate(batch):
            request.answer = [int(step[row, 0]) for step in answers[:request.count]]


class OrtEncoderDecoder(OnnxRuntime):
    def __init__(self, folder, threads):
        super().__init__(folder, threads)
        self.encoder, self.first, self.step = (
            self.session(name) for name in ("encoder_model.onnx", "decoder_model.onnx", "decoder_with_past_model.onnx"))
        self.past = [i.name for i in self.step.get_inputs() if i.name.startswith("past_key_values")]
        self.start = json.loads((folder / "generation_config.json").read_text())["decoder_start_token_id"]

    def __call__(self, batch):
        longest = max(len(r.tokens) for r in batch)
        ids, mask = np.zeros((len(batch), longest), np.int64), np.zeros((len(batch), longest), np.int64)
        for row, request in enumerate(batch):
            ids[row, :len(request.tokens)] = request.tokens
            mask[row, :len(request.tokens)] = 1
        source = self.values(input_ids=ids, attention_mask=mask)
        hidden = self.call(self.encoder, source)["last_hidden_state"]
        source = {"encoder_attention_mask": source["attention_mask"], "encoder_hidden_states": hidden}
        ids, past, answers = np.full((len(batch), 1), self.start, np.int64), {}, []
        for step in range(max(r.count for r in batch)):
            got = self.call(self.step if past else self.first, {**source, **self.values(input_ids=ids), **past})
            ids = got["logits"].numpy()[:, -1].argmax(1)[:, None]
            answers.append(ids)
            for name in self.past:  # those of the source come from the first step alone
                past[name] = got.get("present." + name.removeprefix("past_key_values."), past.get(name))
        for row, request in enumerate(batch):
            request.answer = [int(step[row, 0]) for step in answers[:request.count]]


def onnxruntime_ways(shape, folder):
    if shape.beams > 1:
        return []
    kind = OrtEncoderDecoder if shape.source else OrtDecoder
    both, single = kind(folder / "1", THREADS), kind(folder / "1", 1)
    return [Way("ort, one by one, 2 threads", both, one_by_one),
            Way("ort, one by one, 2 runs of 1 thread", single, one_by_one, THREADS),
            Way("ort, static batches of 16", both, sorted_batches(16), together=16),
            Way("ort, static batches of 32", both, sorted_batches(32), together=32)]


# ---- CTranslate2 ----


def ctranslate2_ways(shape, folder):
    import ctranslate2

    path = str(folder / "ctranslate2")
    kind = ctranslate2.Translator if shape.source else ctranslate2.Generator
    both = kind(path, device="cpu", intra_threads=THREADS, compute_type="float32")
    lanes = kind(path, device="cpu", inter_threads=THREADS, intra_threads=1, compute_type="float32")

    def run(model, size, batch_type="examples"):
        def call(batch):
            counts = [r.count for r in batch]
            if not shape.source:  # steps begin behind the shortest prompt
                counts = [count + len(r.tokens) - min(len(r.tokens) for r in batch) for count, r in zip(counts, batch)]
            most = max(counts)
            options = dict(beam_size=shape.beams, max_batch_size=size, batch_type=batch_type)
            if shape.beams == 1:  # a row leaves its batch when its answer is as long as it should be
                options["callback"] = lambda step: step.step + 1 >= counts[step.batch_id]
            tokens = [[str(t) for t in r.tokens] for r in batch]
            if shape.source:
                results = model.translate_batch(tokens, max_decoding_length=most, min_decoding_length=most, **options)
                answers = [result.hypotheses[0] for result in results]
            else:
                results = model.generate_batch(tokens, max_length=most, min_length=most, include_prompt_in_result=False,
                                               **options)
                answers = [result.sequences[0] for result in results]
            for request, answer in zip(batch, answers):
                request.answer = [int(t) for t in answer]
        return call

    made = [Way("ctranslate2, one by one, 2 threads", run(both, 1), one_by_one),
            Way("ctranslate2, one by one, 2 runs of 1 thread", run(lanes, 1), one_by_one, THREADS)]
    # Prompts of a batch go on token by token behind the length of the shortest.
    by, key = ("answer", lambda r: (r.count, len(r.tokens))) if shape.source else ("prompt", lambda r: len(r.tokens))
    for size in (16, 32) if shape.source else (4, 16):
        made += [Way(f"ctranslate2, batches of {size} by {by}", run(both, size), sorted_batches(size, key), together=size),
                 Way(f"ctranslate2, batches of {size} by {by}, 2 runs", run(lanes, size), sorted_batches(size, key), THREADS,
                     together=size)]
    for size in (512, 1024) if shape.source else ():
        made += [Way(f"ctranslate2, {size} tokens", run(both, size, "tokens"), all_at_once, together=64),
                 Way(f"ctranslate2, {size} tokens, 2 runs", run(lanes, size, "tokens"), all_at_once, together=64)]
    return made


# ---- llama.cpp ----


class LlamaCpp:
    """The loop of llama.cpp's server on its library: every sequence under way has a token in each batch, and the
    prompts of new requests are batched with them, up to `n_batch` tokens."""

    def __init__(self, folder, sequences, n_batch):
        import llama_cpp
        self.c = c = llama_cpp
        c.llama_log_set(_quiet, ctypes.c_void_p(0))
        c.llama_backend_init()
        self.model = c.llama_model_load_from_file(str(folder / "model.gguf").encode(), c.llama_model_default_params())
        if not self.model:
            raise SystemExit("llama.cpp did not take model.gguf")
        params = c.llama_context_default_params()
        params.n_ctx, params.n_seq_max = sequences * 1024, sequences
        params.n_batch = params.n_ubatch = n_batch
        params.n_threads = params.n_threads_batch = THREADS
        params.type_k = params.type_v = 0  # float32
        params.kv_unified = True  # as its server has it: a batch of all sequences is one computation
        self.context = c.llama_init_from_model(self.model, params)
        if not self.context:
            raise SystemExit("llama.cpp made no context")
        self.vocabulary = c.llama_vocab_n_tokens(c.llama_model_get_vocab(self.model))
        self.batch = c.llama_batch_init(n_batch, 0, 1)
        self.sequences, self.n_batch = sequences, n_batch
        self.memory = c.llama_get_memory(self.context)

    def __call__(self, requests):
        waiting, idle, live = list(requests), list(range(self.sequences)), {}
        while waiting or live:
            while waiting and idle:
                request = waiting.pop(0)
                request.answer = []
                live[idle.pop()] = [request, 0, request.tokens]  # tokens before, tokens to be computed
            n, wanted = 0, []
            # Steps first.
            for sequence, (request, past, tokens) in sorted(live.items(), key=lambda item: (len(item[1][2]), item[0])):
                take = tokens[:self.n_batch - n]
                for i, token in enumerate(take):
                    self.batch.token[n], self.batch.pos[n] = token, past + i
                    self.batch.n_seq_id[n], self.batch.seq_id[n][0] = 1, sequence
                    self.batch.logits[n] = i + 1 == len(tokens)
                    n += 1
                if len(take) == len(tokens) and take:
                    wanted.append((sequence, n - 1))
                live[sequence][1:] = [past + len(take), tokens[len(take):]]
            self.batch.n_tokens = n
            if self.c.llama_decode(self.context, self.batch) != 0:
                raise SystemExit("llama_decode failed")
            for sequence, row in wanted:
                logits = np.ctypeslib.as_array(self.c.llama_get_logits_ith(self.context, row), (self.vocabulary,))
                request = live[sequence][0]
                request.answer.append(int(logits.argmax()))
                live[sequence][2] = request.answer[-1:]
                if len(request.answer) == request.count:
                    del live[sequence]
                    idle.append(sequence)
                    self.c.llama_memory_seq_rm(self.memory, sequence, -1, -1)


def _no_log(_level, _text, _data):
    pass


_quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(_no_log)


def llama_ways(shape, folder):
    return [] if shape.source else [Way("llama.cpp, one by one", LlamaCpp(folder, 1, 512), all_at_once),
            Way("llama.cpp, 16 sequences", LlamaCpp(folder, 16, 512), all_at_once, together=16)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=decoder_models.SHAPES, help="of decoder_models.py")
    parser.add_argument("folder", type=pathlib.Path, help="of its files")
    parser.add_argument("kinds", nargs="*", choices=["ctranslate2", "ort", "llama.cpp"], metavar="KIND")
    args = parser.parse_args()
    shape, folder = decoder_models.SHAPES[args.model], args.folder
    makers = {"ctranslate2": ctranslate2_ways, "ort": onnxruntime_ways, "llama.cpp": llama_ways}
    ways = {way.name: way for kind in args.kinds for way in makers[kind](shape, folder)}
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["ask"] == "ways":
            answer = list(ways)
        elif asked["ask"] == "check":
            requests = [Request(prompt, asked["tokens"]) for prompt in asked["prompts"]]
            ways[asked["way"]].run(requests)
            answer = [r.answer for r in requests]
        else:
            way, requests = ways[asked["way"]], drawn(asked["counts"])
            if asked["ask"] == "run":
                answer = way.run(requests)
                short = [r for r in requests if len(r.answer) != r.count]
                if short:
                    raise SystemExit(f"{way.name}: an answer has {len(short[0].answer)} tokens, not {short[0].count}")
            else:
                answer = way.serve(requests, asked["rate"], asked["seconds"], asked["seed"])
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

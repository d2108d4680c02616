#!/usr/bin/env python3
"""Compares answers of served decoders, with and without beams, with transformers' generate() and the same weights.

    pip install torch transformers onnx
    python tests/models/compare_generation.py build/release/bin/chairlift

Tokens must be equal, and scores of beams within 1e-3. If fewer answers are possible than were asked for, generate()
repeats its fill value with scores of -1e9, and the server gives fewer.
"""

import argparse
import json
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import urllib.request
import warnings

import export_decoders
import export_encoder_decoders
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import ending  # noqa: E402

ENDS = [7, 11]  # of decoders
IMPOSSIBLE = -1e8


def export_models(folder):
    """name: model"""
    models = {}
    torch.manual_seed(11)
    for name, model in export_encoder_decoders.models("sdpa"):
        for parameter in model.parameters():
            large = 0.02 if parameter.dim() == 1 else 1.0 if parameter.shape[0] == 61 else 0.4
            parameter.data += large * torch.randn_like(parameter)
        export_encoder_decoders.export(model.eval(), folder / name / "1", 17, False)
        models[name] = model
    for name, model, kv_heads in export_decoders.models("sdpa"):
        for parameter in model.parameters():
            parameter.data += 0.3 * torch.randn_like(parameter)
        version = folder / name / "1"
        version.mkdir(parents=True)
        export_decoders.export(model.eval(), kv_heads, version / "model.onnx", 17)
        (version / "generation_config.json").write_text(json.dumps({"eos_token_id": ENDS}))
        model.generation_config.update(eos_token_id=ENDS, pad_token_id=0, bos_token_id=None)
        models[name] = model
    return models


def random_request(rng):
    most, beams = rng.randint(1, 20), rng.randint(1, 6)
    request = {
        "input_ids": [rng.randrange(2, 61) for _ in range(rng.randint(1, 30))],
        "max_tokens": most,
        "min_tokens": rng.choice([0, 0, min(3, most)]),
        "num_beams": beams,
        "num_return_sequences": rng.randint(1, beams),
        "length_penalty": rng.choice([-0.5, 0.0, 0.5, 1.0, 2.0]),
        "early_stopping": rng.random() < 0.5,
        "repetition_penalty": rng.choice([1.0, 1.0, 1.3]),
        "no_repeat_ngram_size": rng.choice([0, 0, 2]),
    }
    if rng.random() < 0.5:
        request["suppress_tokens"] = [rng.randrange(3, 61) for _ in range(5)]
    if rng.random() < 0.5:
        request["bad_words_ids"] = [[rng.randrange(61), rng.randrange(61)] for _ in range(20)]
    return request


def generated(model, request):
    """[(tokens, score)]"""
    options = dict(request)
    source = torch.tensor([options.pop("input_ids")])
    options["max_new_tokens"] = options.pop("max_tokens")
    options["min_new_tokens"] = options.pop("min_tokens") or None
    if request["num_beams"] == 1:
        del options["length_penalty"], options["early_stopping"]
    with torch.no_grad():
        got = model.generate(source, attention_mask=torch.ones_like(source), do_sample=False,
                             return_dict_in_generate=True, output_scores=True, **options)
    ends = model.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    before = 1 if model.config.is_encoder_decoder else source.shape[1]
    scores = got.sequences_scores.tolist() if request["num_beams"] > 1 else [0.0]
    answers = []
    for row, score in zip(got.sequences[:, before:].tolist(), scores):
        length = next((i + 1 for i, token in enumerate(row) if token in ends), len(row))
        if score > IMPOSSIBLE:
            answers.append((row[:length], score))
    return answers


def served(url, name, request):
    body = json.dumps({**request, "input_ids": [request["input_ids"]]}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{url}/v2/models/{name}/generate", body)) as response:
        got = json.load(response)
    scores = got.get("sequences_scores", [0.0])
    return [([token for token in row if token >= 0], score) for row, score in zip(got["output_ids"], scores)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("chairlift", help="the program")
    parser.add_argument("--requests", type=int, default=60, help="of each model")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    rng = random.Random(5)
    different = count = with_beams = 0
    apart = 0.0
    with tempfile.TemporaryDirectory() as folder:
        models = export_models(pathlib.Path(folder))
        server = ending.start([args.chairlift, "serve", folder, "--http-port", "0", "--metrics-port", "-1"],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            url = next(match.group() for line in server.stdout
                       if (match := re.search(r"http://[\d.]+:\d+", line)))
            for name, model in models.items():
                for _ in range(args.requests):
                    request = random_request(rng)
                    want, got = generated(model, request), served(url, name, request)
                    count += 1
                    with_beams += request["num_beams"] > 1
                    if [tokens for tokens, _ in want] != [tokens for tokens, _ in got]:
                        different += 1
                        print(f"{name}: {request}\n  want {want}\n  got  {got}")
                        continue
                    apart = max([apart, *(abs(a - b) for (_, a), (_, b) in zip(want, got))])
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait()
    print(f"{count} requests, {with_beams} of them with beams: {different} different; scores differ by at most {apart:.1g}")
    raise SystemExit(different > 0 or apart > 1e-3)


if __name__ == "__main__":
    main()

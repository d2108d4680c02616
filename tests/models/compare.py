#!/usr/bin/env python3
"""Compares every output of pretrained models with ONNX Runtime on varied shapes, in process and over HTTP.

The largest difference must stay within 1e-4 of the output's range (its largest magnitude).
"""

import argparse
import importlib.util
import json
import logging
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import urllib.request

import numpy as np
import onnx
import onnxruntime

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import ending  # noqa: E402

TOLERANCE = 1e-4
HALF_TOLERANCE = 1e-3  # of answers in float16: a rounding that falls otherwise


def vad(chunk):
    def cases(rng):
        for batch in (1, 3):
            state = np.zeros((2, batch, 128), np.float32) if batch == 1 else rng.normal(0, 0.5, (2, batch, 128))
            yield {
                "input": rng.normal(0, 0.1, (batch, chunk)).astype(np.float32),
                "state": state.astype(np.float32),
                "sr": np.array(16000, np.int64),
            }
        if chunk == 576:
            yield {
                "input": rng.normal(0, 0.1, (1, 288)).astype(np.float32),
                "state": rng.normal(0, 0.5, (2, 1, 128)).astype(np.float32),
                "sr": np.array(8000, np.int64),
            }

    return cases


def images(*shapes):
    def cases(rng):
        for shape in shapes:
            yield {"x": rng.uniform(-1, 1, shape).astype(np.float32)}

    return cases


# 5×7 dot-matrix letters, as input of text detection. On noise a detector answers 1e-7 everywhere, but ONNX Runtime's
# own sigmoid is exact only to 6e-8.
GLYPHS = {
    "A": "01110 10001 10001 11111 10001 10001 10001",
    "E": "11111 10000 10000 11110 10000 10000 11111",
    "L": "10000 10000 10000 10000 10000 10000 11111",
    "T": "11111 00100 00100 00100 00100 00100 00100",
}


def written_pages(*shapes):
    def cases(rng):
        for shape in shapes:
            image = np.full(shape, 2.0, np.float32)
            for row in range(4, shape[2] - 28, 36):
                for column in range(6, shape[3] - 20, 18):
                    rows = GLYPHS[rng.choice(list(GLYPHS))].split()
                    dots = np.array([[int(d) for d in r] for r in rows]).repeat(3, 0).repeat(3, 1)
                    patch = image[:, :, row : row + 21, column : column + 15]
                    patch[:, :, dots.astype(bool)] = -2.0
            yield {"x": image + rng.normal(0, 0.05, shape).astype(np.float32)}

    return cases


def magika(rng):
    for batch in (1, 2, 5):
        yield {"bytes": rng.integers(0, 257, (batch, 2048)).astype(np.int32)}


def tokens(rng):
    for batch, length in ((1, 1), (1, 7), (2, 16), (3, 33), (1, 130)):
        ids = rng.integers(1000, 30000, (batch, length))
        mask = np.ones_like(ids)
        for row in range(batch):
            mask[row, length - row * length // 8 :] = 0
        yield {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}


def characters(rng):
    for batch, length in ((1, 1), (4, 9), (2, 40)):
        yield {"tokens": rng.integers(0, 256, (batch, length))}


CASES = {
    "silero_vad": vad(576),
    "ocr_detection": written_pages((1, 3, 64, 96), (1, 3, 160, 128), (2, 3, 96, 96)),
    "ocr_recognition": images((1, 3, 48, 64), (1, 3, 48, 320), (3, 3, 48, 121)),
    "ocr_orientation": images((1, 3, 48, 192), (4, 3, 48, 192)),
    "magika": magika,
    "minilm": tokens,
    "lstm_classifier": characters,
}

# Encoders of tiny sizes as exporters write them (export_encoders.py): in one process only.
ENCODERS = pathlib.Path(__file__).parent / "encoders"


def kept_encoder_cases(names):
    rng = np.random.default_rng(3)
    for batch, length in ((1, 2), (1, 7), (3, 9), (2, 24)):
        mask = np.ones((batch, length), np.int64)
        for row in range(1, batch):
            mask[row, length - 1 - row * length // 8 :] = 0
        feeds = {"input_ids": rng.integers(3, 24, (batch, length)), "attention_mask": mask,
                 "token_type_ids": rng.integers(0, 2, (batch, length))}
        yield {name: feeds[name] for name in names}


DATATYPES = {"FP32": np.float32, "FP64": np.float64, "INT64": np.int64, "INT32": np.int32, "BOOL": np.bool_}
NAMES = {np.dtype(v): k for k, v in DATATYPES.items()}


def run_offline(chairlift, model, inputs, folder):
    arguments = []
    for name, value in inputs.items():
        path = folder / f"in_{name.replace('/', '_')}.npy"
        np.save(path, value)
        arguments += ["--input", f"{name}={path}"]
    out = folder / "out"
    subprocess.run([chairlift, "run", model, *arguments, "--output-dir", out], check=True, capture_output=True, text=True)
    return lambda name: np.load(out / (name.replace("/", "_") + ".npy"))


def run_http(port, model, inputs, binary):
    request = {"inputs": [], "parameters": {"binary_data_output": binary}}
    blobs = b""
    for name, value in inputs.items():
        entry = {"name": name, "shape": list(value.shape), "datatype": NAMES[value.dtype]}
        if binary:
            entry["parameters"] = {"binary_data_size": value.nbytes}
            blobs += value.tobytes()
        else:
            entry["data"] = value.ravel().tolist()
        request["inputs"].append(entry)
    header = json.dumps(request).encode()
    headers = {"Inference-Header-Content-Length": str(len(header))} if binary else {}
    call = urllib.request.Request(
        f"http://127.0.0.1:{port}/v2/models/{model}/infer", data=header + blobs, headers=headers, method="POST")
    with urllib.request.urlopen(call, timeout=60) as answer:
        body = answer.read()
        size = int(answer.headers.get("Inference-Header-Content-Length") or len(body))
    outputs, offset = {}, size
    for entry in json.loads(body[:size])["outputs"]:
        dtype = DATATYPES[entry["datatype"]]
        if "data" in entry:
            value = np.array(entry["data"], dtype)
        else:
            count = entry["parameters"]["binary_data_size"]
            value = np.frombuffer(body[offset : offset + count], dtype)
            offset += count
        outputs[entry["name"]] = value.reshape(entry["shape"])
    return outputs.__getitem__


def error(want, got):
    if want.shape != got.shape or want.dtype != got.dtype:
        return float("inf")
    if want.size == 0:
        return 0.0
    difference = np.abs(want.astype(np.float64) - got.astype(np.float64)).max()
    scale = np.abs(want).max()
    return float(difference / scale) if scale > 0 else float(difference)


def compare_encoders(chairlift):
    """How many answers were right and how many wrong."""
    passed = failed = 0
    worst = 0.0
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # what it thinks of the exporters' redundant nodes
    with tempfile.TemporaryDirectory() as converted:
        for path in sorted(ENCODERS.glob("*.onnx")):
            half, wide = in_float16(path, pathlib.Path(converted))
            for model, like in ((path, path), (half, wide)):
                peer = onnxruntime.InferenceSession(str(like), options, providers=["CPUExecutionProvider"])
                for inputs in kept_encoder_cases([i.name for i in peer.get_inputs()]):
                    with tempfile.TemporaryDirectory() as folder:
                        got = run_offline(chairlift, model, inputs, pathlib.Path(folder))
                        wanted = dict(zip([o.name for o in peer.get_outputs()], peer.run(None, inputs)))
                        if model == half:  # answers alone are rounded to 16 bits
                            wanted = {name: want.astype(np.float16) for name, want in wanted.items()}
                        errors = [error(want, got(name)) for name, want in wanted.items()]
                    right = max(errors) <= (TOLERANCE if model == path else HALF_TOLERANCE)
                    if model == path:
                        worst = max(worst, *errors)
                    passed, failed = passed + right, failed + (not right)
                    if not right:
                        print(f"FAILED {model.name} {inputs['input_ids'].shape}: errors {errors}")
    print(f"encoders as exported, and in float16: largest error of the first {worst:.1e} of the output's range", flush=True)
    return passed, failed


# Decoders of tiny sizes as exporters write them, attention in one operator or in many (export_decoders.py,
# export_genai_decoders.py, export_ort_decoders.py).
DECODERS = pathlib.Path(__file__).parent / "decoders"


def greedy(peer, prompt, count):
    """Tokens that ONNX Runtime's loop gives, and by how much the narrowest was the most likely."""
    past, added, answer, margin = {}, list(prompt), [], float("inf")
    outputs = [output.name for output in peer.get_outputs()]
    while len(answer) < count:
        cached = len(prompt) + len(answer) - len(added)
        feeds = {}
        for given in peer.get_inputs():
            integers = np.int32 if "int32" in given.type else np.int64
            if given.name == "input_ids":
                feeds[given.name] = np.array([added], integers)
            elif given.name == "attention_mask":
                feeds[given.name] = np.ones((1, cached + len(added)), integers)
            elif given.name == "position_ids":
                feeds[given.name] = np.arange(cached, cached + len(added), dtype=integers)[None]
            else:  # keys or values, [batch, heads, past, columns], or [2, …] both
                both = given.shape[:1] if len(given.shape) == 5 else []
                columns = given.shape[-1] if isinstance(given.shape[-1], int) else 16
                feeds[given.name] = past.get(given.name, np.zeros((*both, 1, given.shape[-3], 0, columns), np.float32))
        results = dict(zip(outputs, peer.run(None, feeds)))
        last = results.pop("logits")[0, -1]
        past = {name.replace("present_", "past_").replace("present.", "past_key_values."): value
                for name, value in results.items()}
        margin = min(margin, np.diff(np.sort(last))[-1])
        added = [int(last.argmax())]
        answer += added
    return answer, margin


def in_float16(path, folder):
    """As onnxruntime's converter writes it in float16, cache and logits included; and that with float32 in its place."""
    from onnxruntime.transformers.float16 import convert_float_to_float16

    logging.getLogger("onnxruntime.transformers.float16").setLevel(logging.ERROR)
    half, wide = (folder / f"{path.stem}_{name}.onnx" for name in ("float16", "widened"))
    model = convert_float_to_float16(onnx.load(path), keep_io_types=False)
    onnx.save(model, half)
    del model.graph.value_info[:]
    for value in (*model.graph.input, *model.graph.output):
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT16:
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    attributes = [attribute for node in model.graph.node for attribute in node.attribute]
    for tensor in (*model.graph.initializer, *(a.t for a in attributes if a.type == onnx.AttributeProto.TENSOR)):
        if tensor.data_type == onnx.TensorProto.FLOAT16:
            tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor).astype(np.float32), tensor.name))
    for attribute in attributes:
        if attribute.name == "to" and attribute.i == onnx.TensorProto.FLOAT16:
            attribute.i = onnx.TensorProto.FLOAT
    onnx.save(model, wide)
    return half, wide


def rounds_alone(path):
    """Whether ONNX Runtime alone may round activations to 8 bits here, as a model with 4-bit weights may allow."""
    allowed = any(attribute.name == "accuracy_level" and attribute.i == 4
                  for node in onnx.load(path).graph.node for attribute in node.attribute)
    return allowed and "avx2" not in pathlib.Path("/proc/cpuinfo").read_text()


def compare_decoders(chairlift):
    """How many answers were right and how many wrong."""
    passed = failed = 0
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    with tempfile.TemporaryDirectory() as converted:
        written = [path for path in sorted(DECODERS.glob("*.onnx")) if not rounds_alone(path)]
        for path, like in [(path, path) for path in written] + [in_float16(path, pathlib.Path(converted)) for path in written]:
            peer = onnxruntime.InferenceSession(str(like), options, providers=["CPUExecutionProvider"])
            rng = np.random.default_rng(3)
            for length in (1, 7, 33):
                prompt = rng.integers(0, 61, length)
                want, margin = greedy(peer, prompt, 16)
                inputs = {"input_ids": prompt[None], "max_tokens": np.array([16], np.int32), "ignore_eos": np.array([True])}
                with tempfile.TemporaryDirectory() as folder:
                    got = run_offline(chairlift, path, inputs, pathlib.Path(folder))("output_ids")[0].tolist()
                right = got == want or margin < 1e-4
                passed, failed = passed + right, failed + (not right)
                if not right:
                    print(f"FAILED {path.name} {length} tokens: {got}, not {want}")
    print(f"decoders as exported, and in float16: {passed} answers with ONNX Runtime's tokens", flush=True)
    return passed, failed


def compare_meanings(port):
    """The example that finds sentences of like meaning finds them."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples"))
    import similar

    wrong = 0
    for query, word in {"I can't sign in": "log in", "the software fails": "crashes", "borrowing costs": "borrowing"}.items():
        first = similar.rank(f"http://127.0.0.1:{port}", query, similar.SENTENCES)[0][1]
        if word not in first:
            print(f"FAILED '{query}' is taken to mean '{first}'")
            wrong += 1
    return 3 - wrong, wrong


def compare_pronunciations(port):
    """The example that says words runs with the standard library alone, and without a server says so in one line."""
    script = pathlib.Path(__file__).resolve().parents[2] / "examples" / "pronounce.py"

    def run(url):
        return subprocess.run([sys.executable, "-S", script, "gondola", "--url", url], capture_output=True, text=True)

    said, alone = run(f"http://127.0.0.1:{port}"), run("http://127.0.0.1:1")
    right = [said.stdout.split() == "gondola G AA N D OW L AH".split(),
             alone.returncode == 1 and alone.stderr.count("\n") == 1 and "no server answers" in alone.stderr]
    ways = subprocess.run([sys.executable, "-S", script, "gondola", "--best", "2", "--url", f"http://127.0.0.1:{port}"],
                          capture_output=True, text=True)
    lines = ways.stdout.splitlines()
    right.append(len(lines) == 2 and lines[0].split() == said.stdout.split() and lines[0] != lines[1])
    if not all(right):
        print(f"FAILED examples/pronounce.py: {ways.stdout}{ways.stderr}", end="")
        print(f"FAILED examples/pronounce.py: {said.stdout}{said.stderr}{alone.stderr}")
    return sum(right), len(right) - sum(right)


def compare_g2p_en(port):
    """Words as the package's own loop says them, in float64."""
    weights = np.load(importlib.util.find_spec("g2p_en").submodule_search_locations[0] + "/checkpoint20.npz")

    def step(part, token, h):
        w, r, given, kept = (weights[f"{part}_{key}"].astype(np.float64) for key in ("w_ih", "w_hh", "b_ih", "b_hh"))
        given, kept = (np.split(v, 3) for v in (w @ weights[f"{part}_emb"][token] + given, r @ h + kept))
        reset, update = (1 / (1 + np.exp(-given[i] - kept[i])) for i in (0, 1))
        return (1 - update) * np.tanh(given[2] + reset * kept[2]) + update * h

    passed = failed = 0
    for word in ("lift", "gondola", "cable", "mountain", "zephyr", "a", "pneumonoultramicroscopic"):
        source = [ord(letter) - ord("a") + 3 for letter in word] + [2]
        h = np.zeros(weights["enc_w_hh"].shape[1])
        for token in source:
            h = step("enc", token, h)
        want, token = [], 2
        while len(want) < len(source) + 4 and token != 3:
            h = step("dec", token, h)
            token = int((weights["fc_w"] @ h + weights["fc_b"]).argmax())
            want.append(token)
        got = run_http(port, "g2p_en", {"source": np.array([source])}, False)("tokens").ravel().tolist()
        right = [token for token in got if token != 3] == [token for token in want if token != 3]
        passed, failed = passed + right, failed + (not right)
        if not right:
            print(f"FAILED g2p_en '{word}': {got}, not {want}")
    print(f"g2p_en: {passed} words as the package says them", flush=True)
    return passed, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=pathlib.Path, required=True, help="repository made by examples/build_models.py")
    parser.add_argument("--chairlift", type=pathlib.Path, required=True, help="the program to test")
    parser.add_argument("--only", default="", help="models whose name holds this")
    args = parser.parse_args()

    server = ending.start(
        [args.chairlift, "serve", "--model-repository", args.models, "--http-port", "0", "--metrics-port", "-1"],
        env={**os.environ, "CHAIRLIFT_PYTHON": sys.executable}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True)
    port, log = None, []
    for line in server.stdout:
        log.append(line)
        if "models on http://" in line:
            port = int(line.split("models on http://")[1].split(":")[1].split(",")[0])
            break
    if port is None:
        sys.exit("the server did not start:\n" + "".join(log))

    passed, failed = compare_encoders(args.chairlift) if args.only in "encoders" else (0, 0)
    if args.only in "decoders":
        right, wrong = compare_decoders(args.chairlift)
        passed, failed = passed + right, failed + wrong
    try:
        for name, cases in CASES.items():
            if args.only not in name:
                continue
            path = args.models / name / "1" / "model.onnx"
            peer = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
            outputs = [o.name for o in peer.get_outputs()]
            worst = 0.0
            for inputs in cases(np.random.default_rng(7)):
                want = dict(zip(outputs, peer.run(None, inputs)))
                with tempfile.TemporaryDirectory() as folder:
                    ways = {
                        "offline": lambda: run_offline(args.chairlift, path, inputs, pathlib.Path(folder)),
                        "HTTP JSON": lambda: run_http(port, name, inputs, False),
                        "HTTP binary": lambda: run_http(port, name, inputs, True),
                    }
                    for way, run in ways.items():
                        try:
                            got = run()
                            errors = {output: error(want[output], got(output)) for output in outputs}
                            wrong = {output: e for output, e in errors.items() if not e <= TOLERANCE}
                            worst = max(worst, *errors.values())
                            reason = f"errors {wrong}" if wrong else ""
                        except Exception as exception:  # noqa: BLE001: whatever broke is the test's finding
                            detail = exception.read().decode() if hasattr(exception, "read") else ""
                            reason = f"{exception} {detail}"
                        passed, failed = passed + (not reason), failed + bool(reason)
                        if reason:
                            shapes = {k: v.shape for k, v in inputs.items()}
                            print(f"FAILED {name} {way} {shapes}: {reason}")
            print(f"{name}: largest error {worst:.1e} of the output's range", flush=True)
        if args.only in "minilm":
            right, wrong = compare_meanings(port)
            passed, failed = passed + right, failed + wrong
        if args.only in "g2p_en":
            right, wrong = compare_g2p_en(port)
            passed, failed = passed + right, failed + wrong
        if args.only in "pronouncer":
            right, wrong = compare_pronunciations(port)
            passed, failed = passed + right, failed + wrong
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=60)
    if server.returncode != 0:
        print(f"FAILED the server ended with {server.returncode}")
        failed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""How models of the newest torch and transformers are served: kind, reason, answers and generated tokens.

Architectures of small sizes and seeded random weights (architectures.py) are exported, inspected, and served. Twelve
unequal requests at once must be answered as ONNX Runtime answers each alone, within 1e-4 of an output's range. Decoders
with a cache must generate the tokens of transformers' generate(). `--page` writes the table as a page of the docs.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

import numpy as np
import onnxruntime

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / name) for name in ("models", "support")]
import ending  # noqa: E402
from compare import error, run_http  # noqa: E402

TOLERANCE = 1e-4
TOKENS = 24


def jobs(only):
    """(name, export(path), torch model or None, its maker) of all that is exported."""
    import architectures as a

    for entry in a.ENCODERS:
        yield f"encoder {entry[0]}", lambda path, e=entry: a.export_plain(a.build(e, a.attention(e)), path), None
    yield ("embedding qwen3", lambda path: a.export_plain(
        a.Embedding(a.build(("qwen3", "Qwen3Config", {}, "Qwen3Model"))), path), None)  # fmt: skip
    for entry in a.RERANKERS:
        yield (f"rerank {entry[0]}",
               lambda path, e=entry: a.export_plain(a.build(e, a.attention(e)), path, use_cache=False), None)  # fmt: skip
    for entry in a.OTHERS:
        yield (f"other {entry[0]}",
               lambda path, e=entry: a.export_other(a.build(e, a.attention(e)), path, e[4]), None)  # fmt: skip
    for entry in a.ENCODER_DECODERS:
        for cached in (False, True):
            yield (f"encoder-decoder {entry[0]}{', cache' if cached else ''}",
                   lambda path, e=entry, c=cached: a.export_pair(a.build(e, a.attention(e)), path, c),
                   lambda e=entry: a.build(e, a.attention(e)))  # fmt: skip
    for entry in a.DECODERS:
        yield (f"plain {entry[0]}",
               lambda path, e=entry: a.export_plain(a.build(e, a.attention(e)), path, use_cache=False), None)  # fmt: skip
        for positions in (False, True):
            ways = "positions, eager" if positions else "cache"
            yield (f"{ways} {entry[0]}",
                   lambda path, e=entry, p=positions: a.export_cached(a.build(e, "eager" if p else a.attention(e)), path, p),
                   lambda e=entry, p=positions: a.build(e, "eager" if p else a.attention(e)))  # fmt: skip


def kind_of(said):
    """How it is served, and why not better: by the list of kinds that `inspect` ends with."""
    kinds = dict(re.findall(r"^ +(\w+): (.*)$", said[said.find("how the model is served"):], re.MULTILINE))
    used = next((kind for kind, text in kinds.items() if text.startswith("used")), "?")
    diagnosis = next((line for line in said.splitlines() if line.startswith("diagnosis")), "")
    served = {"decoder": "continuous", "packed": "packed", "cells": "cells"}.get(used)
    if served is None:
        served = "one by one" if used == "?" or "one by one" in diagnosis else "batched"
    better = "decoder" if "decoder" in kinds else "packed"
    why = kinds.get(better, "").removeprefix("not used: ") if served in ("batched", "one by one") else ""
    return served, why if served == "batched" else diagnosis.removeprefix("diagnosis: ") if served == "one by one" else ""


def feeds(session, batch, length, rng):
    """Marks of several shapes: all, the rest padded, and holes."""
    made = {}
    for given in session.get_inputs():
        if "mask" in given.name:
            mask = np.ones((batch, length), np.int64)
            way = rng.integers(0, 3)
            for row in mask if way else []:
                row[rng.integers(1, length + 1):] = 0
                if way == 2:
                    row[:] &= rng.integers(0, 2, length)
                    row[rng.integers(0, length)] = 1
            made[given.name] = mask
        elif "float" in given.type:
            shape = [batch if axis == 0 else 400 + 80 * length if isinstance(size, str) else size
                     for axis, size in enumerate(given.shape)]  # fmt: skip
            made[given.name] = rng.standard_normal(shape).astype(np.float32)
        else:
            made[given.name] = rng.integers(3, 200, (batch, length))
    return made


def free_port(first):
    """Returns a free port of the 100 from `first` on, which belong to the caller."""
    import socket

    for port in range(first, first + 100):
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) != 0:
                return port
    raise OSError(f"no free port from {first} on")


class Server:
    """chairlift serve of one model."""

    def __init__(self, chairlift, path, first_port):
        self.folder = tempfile.TemporaryDirectory()
        version = pathlib.Path(self.folder.name) / "model" / "1"
        version.mkdir(parents=True)
        pair = path.parent / "encoder_model.onnx"
        (version / ("decoder_model.onnx" if pair.exists() else "model.onnx")).write_bytes(path.read_bytes())
        if pair.exists():
            (version / pair.name).write_bytes(pair.read_bytes())
            (version / "config.json").write_text((path.parent / "config.json").read_text())
        self.port = free_port(first_port)
        self.process = ending.start(
            [chairlift, "serve", "--model-repository", self.folder.name, "--http-port", str(self.port), "--metrics-port",
             str(free_port(self.port + 100)), "--no-timing", "--max-queue-wait", "60000"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v2/models/model/ready", timeout=5).close()
                return
            except OSError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.1)
        self.close()
        raise OSError("the server did not start")

    def close(self):
        self.process.terminate()
        self.process.wait()
        self.folder.cleanup()


def compare_answers(port, path):
    """The largest difference of 12 requests at once."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(5)
    requests = [feeds(session, int(rng.integers(1, 4)), int(rng.integers(1, 40)), rng) for _ in range(12)]
    wanted = [dict(zip([o.name for o in session.get_outputs()], session.run(None, request))) for request in requests]
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda request: run_http(port, "model", request, True), requests))
    return max(error(want, got(name)) for wants, got in zip(wanted, answers) for name, want in wants.items()
               if not np.isnan(want).any())  # fmt: skip


def compare_tokens(port, model):
    """Whether all of 6 prompts at once have the tokens of generate()."""
    import torch

    rng = np.random.default_rng(7)
    prompts = [rng.integers(3, 200, int(n)) for n in (1, 5, 9, 17, 26, 2)]
    model.generation_config.eos_token_id = None
    begin = 1 if model.config.is_encoder_decoder else None  # behind the token that an answer begins with
    wanted = [model.generate(torch.tensor(p)[None], attention_mask=torch.ones(1, len(p), dtype=torch.int64), do_sample=False,
                             max_new_tokens=TOKENS)[0, begin or len(p):].tolist() for p in prompts]  # fmt: skip
    requests = [{"input_ids": p[None], "max_tokens": np.array([TOKENS], np.int32), "ignore_eos": np.array([True])}
                for p in prompts]  # fmt: skip
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        got = list(pool.map(lambda r: run_http(port, "model", r, True)("output_ids")[0].tolist(), requests))
    return sum(a == b for a, b in zip(wanted, got)), len(prompts)


PAGE = """# Exported models

How models of the newest PyTorch and transformers are served. `make exporters` writes this page.

```bash
chairlift inspect model.onnx      # the same for a model of your own
```

Versions: {versions}.
Sizes are small and weights random. [exporting.md](../guides/exporting.md) says how to export.

* *served*: `continuous` (tokens of all requests share each step, with a cache), `packed` (tokens side by side, no
  padding), `batched` (requests of equal sizes), `one by one`.
* *answers*: twelve unequal requests at once. The number is the largest difference from ONNX Runtime, which answers each
  alone, as a share of the output's range.
* *tokens*: how many of six prompts at once got the tokens of transformers' `generate()`.
* *cache*: a decoder with its past as inputs. *positions*: with `position_ids` too. *plain*: without a cache.

{counts}.

| model | served | answers, or tokens | why not better |
|---|---|---|---|
{rows}
"""


def versions():
    """The versions of the packages that decide what is written."""
    import importlib.metadata

    names = ("torch", "transformers", "onnxscript", "onnxruntime")
    return ", ".join(f"{name} {importlib.metadata.version(name).split('+')[0]}" for name in names)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chairlift", default="build/release/bin/chairlift")
    parser.add_argument("--models", type=pathlib.Path, default=pathlib.Path("build/exporters"), help="where exports are kept")
    parser.add_argument("--only", default="", help="a part of the names")
    parser.add_argument("--port", type=int, default=27100, help="the first port to try")
    parser.add_argument("--kept", action="store_true", help="export nothing, and take what is there")
    parser.add_argument("--page", type=pathlib.Path, help="the page to write; all models must be tried")
    given = parser.parse_args()
    if given.page and given.only:
        parser.error("--page takes all models: leave --only out")
    given.models.mkdir(parents=True, exist_ok=True)
    counts, rows, wrong = {}, [], 0

    def say(*cells):
        rows.append(f"| {' | '.join(cells)} |")
        print(rows[-1], flush=True)

    print("| model | served | answers, or tokens | why not better |\n|---|---|---|---|")
    for name, export, maker in jobs(given.only):
        path = given.models / (name.replace(", ", "-").replace(" ", "-") + ".onnx")
        if name.startswith("encoder-decoder "):  # in a folder of its own, with its encoder
            path = given.models / path.stem / "decoder_model.onnx"
        if given.only not in name or (given.kept and not path.exists()):
            continue
        try:
            if not path.exists():
                path.parent.mkdir(exist_ok=True)
                export(path)
                if path.parent != given.models:
                    start = maker().config.decoder_start_token_id
                    (path.parent / "config.json").write_text(f'{{"decoder_start_token_id": {start}}}')
        except Exception as failed:  # noqa: BLE001: the exporter's own affair
            say(name, "not exported", "", str(failed).splitlines()[0].split(". ")[0][:120])
            continue
        said = subprocess.run([given.chairlift, "inspect", path], capture_output=True, text=True).stdout
        kind, why = kind_of(said)
        counts[kind] = counts.get(kind, 0) + 1
        server = None
        try:
            server = Server(given.chairlift, path, given.port)
            if kind == "continuous":
                right, count = compare_tokens(server.port, maker())
                result, wrong = f"{right} of {count}", wrong + (right != count)
            elif maker is None:
                largest = compare_answers(server.port, path)
                result, wrong = f"{largest:.0e}", wrong + (not largest <= TOLERANCE)
            else:
                result, wrong = "does not generate", wrong + 1
        except Exception as failed:  # noqa: BLE001: said, and counted
            result, wrong = f"FAILED: {failed}", wrong + 1
        finally:
            if server is not None:
                server.close()
        say(name, kind, result, why)
    said = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())) + f"; {wrong} wrong"
    print("\n" + said)
    if given.page:
        given.page.write_text(PAGE.format(versions=versions(), counts=said, rows="\n".join(rows)))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

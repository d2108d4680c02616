#!/usr/bin/env python3
"""Measures the cost of HTTP on a model that does nothing.

With one client it measures the latency above that of the in-process call. With 64 connections it measures requests a
second, beside nginx with a static reply of equal size. wrk loads both, in turns.
"""

import json
import pathlib
import re
import shutil
import statistics
import subprocess
import tempfile
import time

import numpy as np

import harness
from models import builder, recurrent

CONNECTIONS = 64
NGINX = """daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log; worker_processes {workers};
events {{ worker_connections 1024; }}
http {{
  access_log off; keepalive_requests 100000000; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{ listen 127.0.0.1:{port} reuseport; location / {{ default_type application/json; return 200 '{reply}'; }} }}
}}
"""


def requests_for(folder):
    """name → (wrk script, body of the reply)"""
    values = [round(0.5 + i, 1) for i in range(16)]
    body = {"inputs": [{"name": "x", "shape": [1, 16], "datatype": "FP32", "data": values}]}
    text = json.dumps(body)
    head = json.dumps({"inputs": [{"name": "x", "shape": [1, 16], "datatype": "FP32",
                                   "parameters": {"binary_data_size": 64}}],
                       "outputs": [{"name": "y", "parameters": {"binary_data": True}}]})
    raw = "".join(f"\\{b}" for b in np.array(values, np.float32).tobytes())
    (folder / "json.lua").write_text(f"wrk.method = 'POST'\nwrk.body = [[{text}]]\n")
    (folder / "binary.lua").write_text(
        f"wrk.method = 'POST'\nwrk.body = [[{head}]] .. '{raw}'\n"
        f"wrk.headers['Inference-Header-Content-Length'] = '{len(head)}'\n")
    return {"JSON": folder / "json.lua", "binary": folder / "binary.lua"}


def wrk(port, path, connections, seconds, script=None):
    """(requests a second, median latency in seconds)"""
    command = ["wrk", "-t", "1" if connections == 1 else "2", "-c", str(connections), "-d", f"{seconds}s", "--latency"]
    if script is not None:
        command += ["-s", str(script)]
    out = subprocess.run([*command, f"http://127.0.0.1:{port}{path}"], capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in out or "Socket errors" in out:
        raise SystemExit(f"not every request was answered:\n{out}")
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", out).group(1))
    number, unit = re.search(r"50%\s+([\d.]+)(us|ms|s)", out).groups()
    return rate, float(number) * {"us": 1e-6, "ms": 1e-3, "s": 1.0}[unit]


def reply_body(port, script_name, folder):
    body = re.search(r"\[\[(.*?)\]\]", (folder / script_name).read_text()).group(1)
    out = subprocess.run(["curl", "-sf", f"http://127.0.0.1:{port}/v2/models/identity/infer", "-d", body],
                         capture_output=True, check=True)
    return out.stdout.decode()


def main():
    args = harness.arguments("server", seconds=dict(type=int, default=3, help="length of one round"),
                             rounds=dict(type=int, default=5))
    subprocess.run([harness.ROOT / "tools" / "install_packages.sh", "nginx-light", "wrk"], check=True)
    harness.build_programs("chairlift", "model_worker")
    report = harness.Report("server", args.output, [2])
    processes = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        try:
            model = folder / "identity.onnx"
            builder.save(recurrent.identity(), model)
            np.save(folder / "x.npy", np.ones((1, 16), np.float32))
            worker = harness.Worker(model, 2, {"x": folder / "x.npy"})
            worker.run(2000)
            in_process = statistics.median(worker.run(5000))
            worker.close()

            ours = harness.free_port()
            processes.append(subprocess.Popen(
                [harness.BUILD / "bin" / "chairlift", "serve", model, "--http-port", str(ours), "--metrics-port", "-1",
                 "--log-level", "warning"]))
            harness.wait_until_ready(ours)
            scripts = requests_for(folder)
            theirs = harness.free_port()
            (folder / "nginx.conf").write_text(NGINX.format(
                folder=folder, port=theirs, workers=2, reply=reply_body(ours, "json.lua", folder)))
            nginx = shutil.which("nginx") or "/usr/sbin/nginx"
            processes.append(subprocess.Popen([nginx, "-p", folder, "-c", folder / "nginx.conf"]))
            harness.wait_for(theirs)

            path = "/v2/models/identity/infer"
            for name, script in scripts.items():
                single, many, ratios, nginx_single, nginx_many = [], [], [], [], []
                for r in range(args.rounds):
                    sides = [(ours, path, script, single, many), (theirs, "/", None, nginx_single, nginx_many)]
                    for port, where, how, latency, rate in sides if r % 2 == 0 else sides[::-1]:
                        latency.append(wrk(port, where, 1, args.seconds, how)[1])
                        rate.append(wrk(port, where, CONNECTIONS, args.seconds, how)[0])
                    ratios.append(many[-1] / nginx_many[-1])
                spread = 100 * (max(many) - min(many)) / statistics.median(many)
                report.add(f"{name}, {CONNECTIONS} connections", statistics.median(many), "req/s",
                           statistics.median(nginx_many), statistics.median(ratios), aim=0.4, spread_percent=spread)
                added = statistics.median(single) - in_process
                report.add(f"{name}, 1 client, HTTP added", added * 1e6, "µs", statistics.median(nginx_single) * 1e6,
                           statistics.median(nginx_single) / max(added, 1e-9), in_process_us=in_process * 1e6)
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(timeout=30)
    report.save()


if __name__ == "__main__":
    main()

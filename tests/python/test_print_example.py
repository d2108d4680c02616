"""`serve --print-example` prints requests that the server answers."""

import json
import os
import re
import subprocess
import sys
import urllib.request

from serving import PROGRAM


def test_functions_have_examples_and_rows_are_kept(tmp_path):
    (tmp_path / "plain.py").write_text("import numpy as np\ndef predict(x):\n    return np.tanh(x).reshape(len(x), -1)\n")
    (tmp_path / "shop.py").write_text("def predict(text: list[str]) -> list[str]:\n    return text\n")
    server = subprocess.Popen(
        [PROGRAM, "serve", tmp_path / "plain.py:predict", tmp_path / "shop.py:predict", "--print-example",
         "--http-port", "0", "--metrics-port", "-1", "--drain-seconds", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "CHAIRLIFT_PYTHON": sys.executable})
    try:
        commands = {}
        log = ""
        while len(commands) < 2:
            line = server.stdout.readline()
            assert line and not line.startswith("# "), log + line
            log += line
            if found := re.fullmatch(r"curl -s (\S+/v2/models/(\w+)/infer) -d '(.*)'\n", line):
                commands[found[2]] = (found[1], json.loads(found[3]))

        def ask(url, body):
            with urllib.request.urlopen(urllib.request.Request(f"http://{url}", json.dumps(body).encode()), timeout=60) as answer:
                return json.load(answer)

        assert ask(*commands["shop"])["outputs"][0]["data"] == ["a text"]
        url, body = commands["plain"]
        assert body["inputs"][0]["shape"] == [1, 2]
        assert ask(url, body)["outputs"][0]["shape"] == [1, 2]
        for rows in ([[0, 0]], [[0, 0], [0, 0]]):
            assert ask(url.replace("/infer", "/generate"), {"x": rows})["output"] == rows
    finally:
        server.terminate()
        server.wait(60)

"""`chairlift` as it is installed; inspect() and serve()."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import textwrap
import time
import urllib.error
import urllib.request

import numpy as np
import pytest

import chairlift
from chairlift import _program
from serving import ending


def ask(url, data):
    body = {"inputs": [{"name": "x", "shape": [len(data), len(data[0])], "datatype": "FP32", "data": data}]}
    with urllib.request.urlopen(url, json.dumps(body).encode(), timeout=30) as answer:
        return json.load(answer)["outputs"][0]["data"]


@pytest.fixture
def tripling(tmp_path):
    (tmp_path / "tripling.py").write_text("import numpy as np\ndef predict(x: np.ndarray) -> np.ndarray:\n    return 3 * x\n")
    return tmp_path / "tripling.py"


def test_the_command_line_is_installed(doubling_file):
    program = pathlib.Path(sys.executable).with_name("chairlift")
    command = [program] if program.exists() else [sys.executable, "-c", "from chairlift._program import main; main()"]
    said = subprocess.run([*command, "inspect", doubling_file], capture_output=True, text=True, timeout=60)
    assert said.returncode == 0 and "diagnosis:" in said.stdout, said.stderr
    assert subprocess.run([*command, "inspect"], capture_output=True, timeout=60).returncode == 2


def test_inspect_says_what_a_model_is(doubling_file, tripling):
    text = chairlift.inspect(doubling_file, passes=True, shape=["x=3x4"])
    assert "Add" in text and "x[3,4]" in text and "diagnosis:" in text
    assert "python: used" in chairlift.inspect(f"{tripling}:predict")
    with pytest.raises(chairlift.InvalidArgument, match="no flag --pases"):
        chairlift.inspect(doubling_file, pases=True)
    with pytest.raises(chairlift.Error, match="nothing.onnx"):
        chairlift.inspect("nothing.onnx")


def test_a_server_answers_until_its_block_ends(doubling_file, tripling):
    with chairlift.Server(doubling_file, f"{tripling}:predict", http_port=0, metrics_port=0) as server:
        assert server.url.endswith(f":{server.port}")
        assert ask(f"{server.url}/v2/models/doubling/infer", [[1, 2, 3, 4]]) == [2, 4, 6, 8]
        assert ask(f"{server.url}/v2/models/tripling/infer", [[1, 2]]) == [3, 6]
        with urllib.request.urlopen(server.metrics_url, timeout=30) as metrics:
            assert b"doubling" in metrics.read()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(server.url, timeout=5)
    server.close()  # again


def test_a_server_that_cannot_start_raises(tmp_path):
    with pytest.raises(chairlift.Error, match="status"):
        chairlift.Server(tmp_path / "nothing.onnx", http_port=0)
    with pytest.raises(chairlift.InvalidArgument):
        chairlift.Server(http_port=0)


SERVING = """
    import numpy as np
    import chairlift
    def predict(x: np.ndarray) -> np.ndarray:
        return x - 1
    if GUARD:
        chairlift.serve(predict, http_port=0, metrics_port=-1)
        print("served", flush=True)
    """


def test_a_function_is_served_until_ctrl_c(tmp_path):
    (tmp_path / "mine.py").write_text(textwrap.dedent(SERVING).replace("GUARD", "__name__ == '__main__'"))
    process = ending.start([sys.executable, tmp_path / "mine.py"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True)
    for line in process.stdout:  # of its log
        if address := re.search(r"model on (http://[0-9.:]+)", line):
            break
    assert ask(f"{address[1]}/v2/models/mine/infer", [[3, 4]]) == [2, 3]
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 0 and out.endswith("served\n")


def test_ctrl_c_ends_a_server_that_starts(tmp_path):
    (tmp_path / "mine.py").write_text(textwrap.dedent("""
        import time
        import numpy as np
        import chairlift
        def predict(x: np.ndarray) -> np.ndarray:
            return x
        if __name__ == "__main__":
            chairlift.serve(predict, http_port=0, metrics_port=-1)
            print("served", flush=True)
        else:
            print("starts", flush=True)
            time.sleep(60)
        """))
    process = ending.start([sys.executable, tmp_path / "mine.py"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True)
    assert any("starts" in line for line in process.stdout)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 0 and out.endswith("served\n")


def test_a_file_that_serves_itself_without_a_guard_is_refused(tmp_path):
    (tmp_path / "mine.py").write_text(textwrap.dedent(SERVING).replace("GUARD", "True"))
    done = subprocess.run([sys.executable, tmp_path / "mine.py"], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert 'if __name__ == "__main__"' in done.stderr


def test_a_server_ends_with_its_process(doubling_file):
    done = subprocess.run([sys.executable, "-c", textwrap.dedent("""
        import os, signal, sys
        import chairlift
        server = chairlift.Server(sys.argv[1], http_port=0, metrics_port=-1)
        print("server is", server._process.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        """), doubling_file], capture_output=True, text=True, timeout=60)
    pid = int(re.search(r"server is (\d+)", done.stdout)[1])
    until = time.monotonic() + 30
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < until:
        if pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            break  # no process reaps it
        time.sleep(0.01)
    else:
        assert not os.path.exists(f"/proc/{pid}")


def local():
    def inner(x):
        return x
    return inner


@pytest.mark.parametrize("model, says", [
    (local(), "made inside a function"), (lambda x: x, "has no name"), (eval("lambda: 0"), "of no file"),
])
def test_functions_that_no_worker_could_import(model, says):
    with pytest.raises(chairlift.InvalidArgument, match=says):
        _program.path_of(model)
    with pytest.raises(TypeError, match="not 3"):
        _program.path_of(3)


def test_a_function_is_loaded_as_it_is(tripling, monkeypatch):
    monkeypatch.syspath_prepend(tripling.parent)
    import tripling as module
    assert chairlift.load(module.predict)(np.ones((1, 2), np.float32)).tolist() == [[3, 3]]

"""A dozen requests at once to a slow model are all answered with the default settings."""

import concurrent.futures
import json
import urllib.request

from serving import Serving

SLOW = """
import time
def predict(x):
    time.sleep(0.1)
    return x
"""


def test_an_ordinary_burst_is_answered(tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    server = Serving()
    server.serve(f"{tmp_path}/slow.py:predict", "--set", "max_batch_size=1")
    try:
        def ask(i):
            request = urllib.request.Request(server.url + "/v2/models/slow/generate", json.dumps({"x": [i, 1]}).encode())
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["output"]

        ask(0)  # its cost is known now
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            assert list(pool.map(ask, range(12))) == [[i, 1] for i in range(12)]
    finally:
        server.close()

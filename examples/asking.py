"""Sends requests of the examples to a running server, with only the standard library."""

import json
import sys
import urllib.error
import urllib.request


def infer(url, model, body):
    """Sends an inference request to a model. Returns its outputs by name."""
    return {output["name"]: output["data"] for output in post(url, f"/v2/models/{model}/infer", body)["outputs"]}


def post(url, path, body):
    """Sends a request and returns the answer. If it fails, prints the reason in one line and exits with 1."""
    url = url if "://" in url else f"http://{url}"
    request = urllib.request.Request(f"{url.rstrip('/')}{path}", json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        why = f"{url} refused it: {_message(error)}"
    except (OSError, ValueError) as error:
        why = f"no server answers at {url} ({getattr(error, 'reason', error)}): start one with `make run`, or name it: --url http://localhost:PORT"
    sys.exit(why)


def _message(error):
    text = error.read().decode(errors="replace")
    try:
        return json.loads(text)["error"]
    except (ValueError, KeyError, TypeError):
        return text or str(error)

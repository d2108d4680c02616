"""The cases of Triton's own tests of its HTTP front end, rewritten: valid and invalid bodies of every form."""

import http.client
import json
import os
import unittest

import numpy as np

ADDRESS = os.environ["CHAIRLIFT_ADDRESS"]
PATH = "/v2/models/identity/infer"
ROW = np.arange(16, dtype=np.float32)


def post(body, headers=None, path=PATH):
    connection = http.client.HTTPConnection(ADDRESS, timeout=20)
    try:
        connection.request("POST", path, body=body, headers=headers or {},
                           encode_chunked="Transfer-Encoding" in (headers or {}))
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()


def described(**fields):
    return {"name": "x", "datatype": "FP32", "shape": [1, 16], "data": ROW.tolist(), **fields}


def ask(request):
    status, headers, body = post(json.dumps(request))
    return status, headers, body


class Bodies(unittest.TestCase):
    def check_raw(self, body, headers=None):
        raw = {"Inference-Header-Content-Length": "0", **(headers or {})}
        status, fields, answer = post(body, raw)
        self.assertEqual(status, 200, answer)
        head = int(fields["Inference-Header-Content-Length"])
        self.assertEqual(json.loads(answer[:head])["outputs"][0]["shape"], [1, 16])
        self.assertEqual(answer[head:], ROW.tobytes())

    def test_raw_binary(self):
        self.check_raw(ROW.tobytes())

    def test_raw_binary_in_many_chunks(self):
        data = ROW.tobytes()
        self.check_raw(iter([data[i:i + 1] for i in range(len(data))]),
                       {"Transfer-Encoding": "chunked"})

    def test_raw_binary_that_tells_no_shape(self):
        raw = {"Inference-Header-Content-Length": "0"}
        self.assertEqual(post(ROW.tobytes()[:-1], raw)[0], 400)
        status, _, body = post(ROW.tobytes(), raw, "/v2/models/minilm/infer")
        self.assertEqual(status, 400)
        self.assertIn("only input", json.loads(body)["error"])

    def test_outputs_are_json_unless_the_request_says_otherwise(self):
        def forms(request):
            status, headers, body = ask(request)
            self.assertEqual(status, 200, body)
            return "Inference-Header-Content-Length" in headers

        wanted = [{"name": "y"}]
        self.assertFalse(forms({"inputs": [described()]}))
        self.assertFalse(forms({"inputs": [described()], "outputs": wanted}))
        self.assertTrue(forms({"inputs": [described()], "parameters": {"binary_data_output": True}}))
        wanted[0]["parameters"] = {"binary_data": True}
        self.assertTrue(forms({"inputs": [described()], "outputs": wanted}))
        wanted[0]["parameters"] = {"binary_data": False}
        self.assertFalse(forms({"inputs": [described()], "outputs": wanted,
                                "parameters": {"binary_data_output": True}}))

    def test_bad_requests_are_refused_and_nothing_else_suffers(self):
        for fields in [{"data": ROW.tolist()[:-1]}, {"data": ROW.tolist() + [1, 2]},
                       {"shape": [2**4, 2**60 + 2]}, {"shape": [2**2, 2**60 + 2]},
                       {"shape": [1, -16]}, {"shape": [1, 2**70]}, {"datatype": "FP3"},
                       {"parameters": {"binary_data_size": 64}}]:
            status, _, body = ask({"inputs": [described(**fields)]})
            self.assertEqual(status, 400, fields)
            self.assertTrue(json.loads(body)["error"])
        self.assertEqual(post("{", path="/v2/models/nobody/infer")[0], 404)
        self.assertEqual(post(b"[" * 100000)[0], 400)
        self.assertEqual(ask({"inputs": [described()]})[0], 200)

    def test_paths_that_are_not_there(self):
        self.assertEqual(post("{}", path="/base_path" + PATH)[0], 404)
        self.assertEqual(post("{}", path="/v2/models/identity/versions/9/infer")[0], 404)

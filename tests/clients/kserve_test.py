"""KServe's Python client.

The package's __init__ imports its model server, which needs a hundred other packages. So the client is imported without
it.
"""

import importlib.util
import os
import sys
import types
import unittest

import numpy as np

package = types.ModuleType("kserve")
package.__path__ = list(importlib.util.find_spec("kserve").submodule_search_locations)
sys.modules["kserve"] = package
from kserve.inference_client import InferenceRESTClient, RESTConfig  # noqa: E402
from kserve.protocol.infer_type import InferInput, InferRequest, RequestedOutput  # noqa: E402

URL = "http://" + os.environ["CHAIRLIFT_ADDRESS"]
ROWS = np.arange(32, dtype=np.float32).reshape(2, 16)


class KServe(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.client = InferenceRESTClient(RESTConfig(protocol="v2", retries=0, timeout=20))

    async def asyncTearDown(self):
        await self.client.close()

    async def test_health(self):
        self.assertTrue(await self.client.is_server_live(URL))
        self.assertTrue(await self.client.is_server_ready(URL))
        self.assertTrue(await self.client.is_model_ready(URL, "identity"))
        self.assertFalse(await self.client.is_model_ready(URL, "nobody"))

    async def test_infer(self):
        for binary in [True, False]:
            sent = InferInput(name="x", shape=list(ROWS.shape), datatype="FP32")
            sent.set_data_from_numpy(ROWS, binary_data=binary)
            request = InferRequest(model_name="identity", infer_inputs=[sent], request_id="r7",
                                   request_outputs=[RequestedOutput("y")],
                                   parameters={"binary_data_output": binary})
            answer = await self.client.infer(URL, request, model_name="identity")
            self.assertEqual(answer.id, "r7")
            np.testing.assert_array_equal(answer.outputs[0].as_numpy(), ROWS)

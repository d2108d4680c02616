"""Triton's Python client over HTTP, blocking and asyncio."""

import json
import os
import unittest

import numpy as np
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from tritonclient.utils import InferenceServerException

ADDRESS = os.environ["CHAIRLIFT_ADDRESS"]
ROWS = np.arange(32, dtype=np.float32).reshape(2, 16)


def tensor(name, array, binary=True):
    types = {np.dtype(np.float32): "FP32", np.dtype(np.int64): "INT64"}
    described = triton.InferInput(name, list(array.shape), types[array.dtype])
    described.set_data_from_numpy(array, binary_data=binary)
    return described


class Blocking(unittest.TestCase):
    def setUp(self):
        self.client = triton.InferenceServerClient(ADDRESS, concurrency=4)
        self.addCleanup(self.client.close)

    def test_health_and_metadata(self):
        self.assertTrue(self.client.is_server_live())
        self.assertTrue(self.client.is_server_ready())
        self.assertTrue(self.client.is_model_ready("identity", "1"))
        self.assertFalse(self.client.is_model_ready("nobody"))
        self.assertEqual(self.client.get_server_metadata()["name"], "chairlift")

    def test_metadata_and_config_agree_on_the_batch(self):
        for model in ["identity", "lstm_classifier", "minilm", "silero_vad_16k"]:
            metadata = self.client.get_model_metadata(model)
            config = self.client.get_model_config(model)
            skipped = 1 if config["max_batch_size"] > 0 else 0
            for shown, set_up in [("inputs", "input"), ("outputs", "output")]:
                self.assertEqual([(t["name"], t["shape"][skipped:]) for t in metadata[shown]],
                                 [(t["name"], t["dims"]) for t in config[set_up]])

    def test_infer_with_every_mix_of_json_and_binary(self):
        for sent in [True, False]:
            for wanted in [True, False]:
                output = triton.InferRequestedOutput("y", binary_data=wanted)
                result = self.client.infer("identity", [tensor("x", ROWS, sent)], outputs=[output],
                                           request_id="r7")
                np.testing.assert_array_equal(result.as_numpy("y"), ROWS)
                self.assertEqual(result.get_response()["id"], "r7")
        result = self.client.infer("identity", [tensor("x", ROWS)])
        np.testing.assert_array_equal(result.as_numpy("y"), ROWS)

    def test_objects_are_reused_with_other_shapes(self):
        described = tensor("x", ROWS)
        for rows in [1, 3, 2]:
            data = np.full((rows, 16), rows, np.float32)
            described.set_shape(list(data.shape))
            described.set_data_from_numpy(data)
            result = self.client.infer("identity", [described])
            np.testing.assert_array_equal(result.as_numpy("y"), data)

    def test_many_at_once(self):
        waiting = [self.client.async_infer("identity", [tensor("x", ROWS + i)]) for i in range(32)]
        for i, request in enumerate(waiting):
            np.testing.assert_array_equal(request.get_result().as_numpy("y"), ROWS + i)

    def test_compressed_requests(self):
        for coding in ["gzip", "deflate"]:
            result = self.client.infer("identity", [tensor("x", ROWS)],
                                       request_compression_algorithm=coding,
                                       response_compression_algorithm=coding)
            np.testing.assert_array_equal(result.as_numpy("y"), ROWS)

    def test_a_sequence_keeps_its_state(self):
        rate = np.array(16000, np.int64)
        chunks = np.random.default_rng(5).standard_normal((4, 1, 512)).astype(np.float32) / 8
        state = np.zeros((2, 1, 128), np.float32)
        for i, chunk in enumerate(chunks):
            ours = self.client.infer("silero_vad_16k", [tensor("input", chunk), tensor("sr", rate)],
                                     sequence_id=11, sequence_start=i == 0, sequence_end=i == 3)
            alone = self.client.infer(
                "silero_vad_16k",
                [tensor("input", chunk), tensor("sr", rate), tensor("state", state)],
                outputs=[triton.InferRequestedOutput(name) for name in ["output", "stateN"]])
            state = alone.as_numpy("stateN")
            np.testing.assert_allclose(ours.as_numpy("output"), alone.as_numpy("output"), atol=1e-5)
        described = self.client.get_model_config("silero_vad_16k")["sequence_batching"]
        self.assertEqual([pair["input_name"] for pair in described["state"]], ["state"])

    def test_the_repository(self):
        index = {entry["name"]: entry for entry in self.client.get_model_repository_index()}
        self.assertEqual(index["identity"]["state"], "READY")
        self.client.unload_model("identity")
        self.assertFalse(self.client.is_model_ready("identity"))
        self.client.load_model("identity")
        self.assertTrue(self.client.is_model_ready("identity"))
        with self.assertRaises(InferenceServerException):
            self.client.load_model("nobody")

    def test_a_configuration_of_the_clients_own(self):
        config = {"max_batch_size": 4,
                  "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [4, 4], "reshape": {"shape": [16]}}],
                  "output": [{"name": "y", "data_type": "TYPE_FP32", "dims": [16]}]}
        self.client.load_model("identity", config=json.dumps(config))
        self.addCleanup(self.client.load_model, "identity")
        self.assertEqual(self.client.get_model_metadata("identity")["inputs"][0]["shape"], [-1, 4, 4])
        answer = self.client.infer("identity", [tensor("x", ROWS.reshape(2, 4, 4))])
        np.testing.assert_array_equal(answer.as_numpy("y"), ROWS)
        with self.assertRaisesRegex(InferenceServerException, "max_batch_size"):
            self.client.infer("identity", [tensor("x", np.ones((5, 4, 4), np.float32))])
        with self.assertRaisesRegex(InferenceServerException, "decoupled"):
            self.client.load_model("identity", config=json.dumps({"model_transaction_policy": {"decoupled": True}}))

    def test_classes(self):
        for binary in [True, False]:
            wanted = triton.InferRequestedOutput("y", binary_data=binary, class_count=2)
            classes = self.client.infer("identity", [tensor("x", ROWS)], outputs=[wanted]).as_numpy("y")
            texts = [[one.decode() if isinstance(one, bytes) else one for one in row] for row in classes]
            self.assertEqual(texts, [["15.000000:15", "14.000000:14"], ["31.000000:15", "30.000000:14"]])

    def test_extensions_that_are_not_there(self):
        self.assertEqual(self.client.get_system_shared_memory_status(), [])
        self.assertEqual(self.client.get_cuda_shared_memory_status(), [])
        self.client.unregister_system_shared_memory()
        self.client.unregister_cuda_shared_memory()
        with self.assertRaisesRegex(InferenceServerException, "not supported"):
            self.client.register_system_shared_memory("r", "/r", 64)
        self.assertEqual(self.client.get_trace_settings("identity")["trace_level"], ["OFF"])
        self.client.update_trace_settings(settings={})
        with self.assertRaisesRegex(InferenceServerException, "trace_rate"):
            self.client.update_trace_settings(settings={"trace_rate": "1"})
        self.assertTrue(self.client.get_log_settings()["log_error"])

    def test_errors_say_what_is_wrong(self):
        with self.assertRaisesRegex(InferenceServerException, "nobody"):
            self.client.infer("nobody", [tensor("x", ROWS)])
        with self.assertRaisesRegex(InferenceServerException, "'x'"):
            self.client.infer("identity", [tensor("x", ROWS[:, :5].copy())])
        with self.assertRaisesRegex(InferenceServerException, "'z'"):
            self.client.infer("identity", [tensor("z", ROWS)])
        self.assertTrue(self.client.is_server_live())


class Asyncio(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.client = triton_aio.InferenceServerClient(ADDRESS)

    async def asyncTearDown(self):
        await self.client.close()

    async def test_everything_that_answers(self):
        self.assertTrue(await self.client.is_server_live())
        self.assertTrue(await self.client.is_server_ready())
        self.assertTrue(await self.client.is_model_ready("identity"))
        self.assertEqual((await self.client.get_model_metadata("identity"))["name"], "identity")
        self.assertEqual((await self.client.get_model_config("identity"))["name"], "identity")
        await self.client.get_server_metadata()
        await self.client.get_model_repository_index()
        await self.client.get_inference_statistics()
        await self.client.get_trace_settings()
        await self.client.update_trace_settings()
        self.assertEqual(await self.client.get_system_shared_memory_status(), [])
        self.assertEqual(await self.client.get_cuda_shared_memory_status(), [])
        await self.client.unregister_system_shared_memory()
        await self.client.unregister_cuda_shared_memory()
        for register in [self.client.register_system_shared_memory("r", "/r", 64),
                         self.client.register_cuda_shared_memory("r", b"", 0, 64)]:
            with self.assertRaises(InferenceServerException):
                await register

    async def test_infer(self):
        for binary in [True, False]:
            output = triton_aio.InferRequestedOutput("y", binary_data=binary)
            result = await self.client.infer("identity", [tensor("x", ROWS, binary)],
                                             outputs=[output])
            np.testing.assert_array_equal(result.as_numpy("y"), ROWS)

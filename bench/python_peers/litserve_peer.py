"""litserve PORT: batches of up to 64, JSON (it does not accept raw bytes), with its zeromq and fast queue."""

import sys

import litserve
import numpy as np


class Identity(litserve.LitAPI):
    def setup(self, device):
        pass

    def decode_request(self, request):
        return np.array(request["x"], np.float32)

    def batch(self, inputs):
        return np.stack(inputs)

    def predict(self, x):
        return x

    def unbatch(self, output):
        return list(output)

    def encode_response(self, output):
        return {"y": output.tolist()}


if __name__ == "__main__":
    api = Identity(max_batch_size=64, batch_timeout=0.001)
    server = litserve.LitServer(api, accelerator="cpu", fast_queue=True)
    server.run(port=int(sys.argv[1]), num_api_servers=1, generate_client_file=False, log_level="error")

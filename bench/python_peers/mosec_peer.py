"""mosec: rows as raw bytes, which its documentation recommends for speed.

Batches of up to $BATCH wait at most one millisecond for more requests, the least that it accepts.
"""

import os

import numpy as np
from mosec import Server, Worker


class Identity(Worker):
    def deserialize(self, data):
        return np.frombuffer(data, np.float32)

    def serialize(self, data):
        return data.tobytes()

    def forward(self, data):
        return list(np.stack(data))


if __name__ == "__main__":
    server = Server()
    server.append_worker(Identity, num=1, max_batch_size=int(os.environ["BATCH"]), max_wait_time=1)
    server.run()

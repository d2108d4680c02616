"""pytriton_peer PORT: Triton's Python backend as nvidia-pytriton carries it, with its dynamic batcher; binary tensors."""

import sys

import numpy as np
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig


@batch
def predict(x):
    return [x]


if __name__ == "__main__":
    config = TritonConfig(http_port=int(sys.argv[1]), grpc_port=int(sys.argv[1]) + 1, metrics_port=int(sys.argv[1]) + 2)
    with Triton(config=config) as triton:
        triton.bind("identity", infer_func=predict, inputs=[Tensor(name="x", dtype=np.float32, shape=(64,))],
                    outputs=[Tensor(name="y", dtype=np.float32, shape=(64,))],
                    config=ModelConfig(max_batch_size=64, batcher=DynamicBatcher(max_queue_delay_microseconds=100)))
        triton.serve()

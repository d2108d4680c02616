"""bentoml serve bentoml_peer:Identity: adaptive batches of up to 64."""

import bentoml
import numpy as np


@bentoml.service(workers=1, logging={"access": {"enabled": False}}, metrics={"enabled": False},
                 traffic={"timeout": 60, "max_concurrency": 1024})
class Identity:
    @bentoml.api(batchable=True, batch_dim=0, max_batch_size=64, max_latency_ms=1000)
    def predict(self, x: np.ndarray) -> np.ndarray:
        return x

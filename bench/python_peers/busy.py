"""A function that computes for 5 ms per batch, whatever the number of rows."""

import time

import numpy as np


def predict(x: np.ndarray) -> np.ndarray:
    end = time.perf_counter() + 5e-3
    while time.perf_counter() < end:
        pass
    return x

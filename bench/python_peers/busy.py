"""Computes for 5 ms a batch, however many rows it has."""

import time

import numpy as np


def predict(x: np.ndarray) -> np.ndarray:
    end = time.perf_counter() + 5e-3
    while time.perf_counter() < end:
        pass
    return x

"""The function that Chairlift serves: returns each row unchanged."""

import numpy as np


def predict(x: np.ndarray) -> np.ndarray:
    return x

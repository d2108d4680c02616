"""What Chairlift serves: each row as it came."""

import numpy as np


def predict(x: np.ndarray) -> np.ndarray:
    return x

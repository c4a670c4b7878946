"""A custom aggregation rule: a mean in which no client is further from the median than half of the clients.

Run it with `fedrf run federation.aggregation=clipped_mean:clipped_mean method=fedavg`.
"""

import numpy as np


def clipped_mean(clients, weights):
    """Return the weighted mean of the clients' parameters, after moving distant clients towards the median."""
    stack = np.stack(clients)
    median = np.median(stack, axis=0)
    distances = np.array([np.linalg.norm(values - median) for values in stack])
    factors = np.minimum(1, np.median(distances) / np.maximum(distances, 1e-12))
    moved = median + factors.reshape(-1, *[1] * median.ndim) * (stack - median)
    return np.average(moved, axis=0, weights=weights).astype(np.float32)

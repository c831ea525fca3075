"""From a demand in fractions of replicas to whole ones, without dithering at a step.

Worked example, band 0.2, 4 replicas: a demand of 4.1 asks for 5 at once. 2.9 keeps 4, because 2.9 + 0.2 is still
above the step at 3; 2.8 gives 3. So a demand that trembles by less than the band changes nothing.
"""

from __future__ import annotations

from math import ceil, isnan

import numpy as np

from exporter.model import Floats
from scaler.jit import FLOATS, NUMBER, RESULT, kernel

# 0.1 + 0.2 requests per replica of 0.3 is 1.0000000000000002 replicas: dust above a step is not a replica.
_DUST = 1e-9


@kernel(RESULT(FLOATS, FLOATS, NUMBER))
def hysteresis(demand: Floats, current: Floats, band: float) -> Floats:
    """Whole replicas: up to ceil(demand) at once, down only as far as ceil(demand + band).

    demand:  replicas, any fraction; NaN gives NaN.
    current: the replicas now asked for; NaN gives ceil(demand).
    band:    replicas. With a band above 0 the answer is never 0 unless `current` is: zero is a verdict of idleness
             with proof, not the end of a rounding.
    """
    if len(demand) != len(current):
        raise ValueError("hysteresis: demand and current must have the same rows")
    replicas = np.full(len(demand), np.nan)
    for row in range(len(demand)):
        if isnan(demand[row]):
            continue
        up = float(ceil(demand[row] - _DUST))
        down = float(ceil(demand[row] + band - _DUST))
        replicas[row] = up if isnan(current[row]) else max(up, min(current[row], down))
    return replicas

"""An answer that is an error: its HTTP status, and words for whoever runs `kubectl describe hpa`. Pure.

Numbers as Kubernetes writes them: a decimal with at most three places, as a whole number of milli-units. Pure.

A HorizontalPodAutoscaler reads nothing finer than a thousandth, and Kubernetes rounds up what is finer; so does this.
What is no number has no quantity: whoever comes with one has to answer with an error.

Worked example: `quantity(3)` is "3", `quantity(2.5)` is "2500m", `quantity(0.0001)` is "1m".
"""

from __future__ import annotations

import math
from http import HTTPStatus


class ApiError(Exception):
    def __init__(self, code: HTTPStatus, words: str) -> None:
        super().__init__(words)
        self.code = code
        self.words = words


# A sum such as 0.1 + 0.2 lies 4e-17 above 0.3 and means 300m: what is below a billionth of a unit is the float's.
DUST = 1e-6


def quantity(value: float) -> str:
    """value: >= 0, in units. Raises ValueError for what is no such number."""
    if not math.isfinite(value) or value < 0.0:
        raise ValueError(f"quantity: must be a number >= 0, got {value}")
    milli = math.ceil(value * 1000.0 - DUST)
    return f"{milli}m" if milli % 1000 else str(milli // 1000)

"""An error response, and numbers as Kubernetes quantities. Pure.

A quantity has at most three decimal places: the HPA reads nothing finer, and Kubernetes rounds up what is finer.

Worked example: `quantity(3)` is "3", `quantity(2.5)` is "2500m", `quantity(0.0001)` is "1m".
"""

from __future__ import annotations

import math
from http import HTTPStatus

# A sum such as 0.1 + 0.2 is 4e-17 above 0.3 and means 300m: less than a billionth of a unit is rounding error.
DUST = 1e-6


class ApiError(Exception):
    """An error response: its HTTP status, and a message for a person who runs `kubectl describe hpa`."""

    def __init__(self, code: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def quantity(value: float) -> str:
    """value: >= 0, in units. Raises ValueError."""
    if not math.isfinite(value) or value < 0.0:
        raise ValueError(f"quantity: must be a number >= 0, got {value}")
    milli = math.ceil(value * 1000.0 - DUST)
    return f"{milli}m" if milli % 1000 else str(milli // 1000)

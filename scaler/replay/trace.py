"""A load: when requests arrive, and how many tokens each brings and takes.

It knows three columns and refuses to know where they come from (`loads` reads them).

Worked example: `Load("two", at=[0.0, 3.5], prompt=[100, 20], output=[7, 300])` is two requests in 3.5 s.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exporter.model import Floats

from .columns import Ints


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """at: shape (requests,), seconds from the load's beginning, ascending. prompt, output: tokens, same shape."""

    name: str
    at: Floats
    prompt: Ints
    output: Ints

    def __post_init__(self) -> None:
        if not len(self.at) == len(self.prompt) == len(self.output):
            raise ValueError(f"{self.name}: at, prompt and output must have the same length")
        if not len(self.at):
            raise ValueError(f"{self.name}: has no request")
        if not np.isfinite(self.at).all() or self.at[0] < 0.0 or (np.diff(self.at) < 0.0).any():
            raise ValueError(f"{self.name}: arrivals must be finite, ascending and not before second 0")

    @property
    def span_s(self) -> float:
        """Seconds until the last arrival."""
        return float(self.at[-1])

"""Measures how long engines in sleep mode take to wake. Pure.

The last wakes of each workload are kept, because the next one is like them: the weights are copied from the memory of
the host, and nothing is loaded. If Tidegate wakes an engine, the response of the engine ends the wake; else the first
metrics that show it awake do, so such a wake seems longer by up to a scrape interval.

Worked example: wakes of 0.3, 0.3 and 2.1 s have a median of 0.3 s. Before the first one `UNLEARNED_WAKE_S` counts.
"""

from __future__ import annotations

import numpy as np

from exporter.model import Floats
from scaler.columns import Array, Columns, Rows, copy_into

KEPT = 8
# vLLM's published wakes take 0.3 s for a small model and some seconds for a large one.
UNLEARNED_WAKE_S = 5.0
# A wake that takes longer has failed.
LONGEST_WAKE_S = 600.0


class WakeTimes:
    """The wakes of a fixed list of workloads. typical: the median of the last ones, seconds; NaN before the first."""

    def __init__(self, rows: int) -> None:
        self._last: Floats = np.full((rows, KEPT), np.nan)  # newest first
        self.typical: Floats = np.full(rows, np.nan)

    def learn(self, row: int, seconds: float) -> None:
        """Takes one wake; an impossible time is ignored."""
        if 0.0 <= seconds <= LONGEST_WAKE_S:
            self._last[row] = np.concatenate([[seconds], self._last[row, :-1]])
            self._measure(np.array([row]))

    def _measure(self, rows: Rows) -> None:
        measured = rows[~np.isnan(self._last[rows]).all(axis=1)]
        self.typical[rows] = np.nan
        if len(measured):
            self.typical[measured] = np.nanmedian(self._last[measured], axis=1)

    def columns(self) -> dict[str, Array]:
        """The state that a checkpoint keeps, one slot per workload."""
        return {"wakes.last": self._last}

    def take(self, columns: Columns, rows: Rows, source_rows: Rows) -> None:
        """Copies state from `columns[source_rows]` into `rows`, pairwise; a missing column changes nothing."""
        copy_into(self.columns(), columns, rows, source_rows)
        last = self._last[rows]
        self._last[rows] = np.where((last >= 0.0) & (last <= LONGEST_WAKE_S), last, np.nan)
        self._measure(rows)

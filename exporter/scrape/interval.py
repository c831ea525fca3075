"""Estimates the collect interval of a GPU exporter from how often its values change.

dcgm-exporter responds to every scrape at once, with values that DCGM collected up to one interval ago (30 s by default,
`--collect-interval`), and without timestamps. A scrape every 5 s reads each value six times. So a repeated value is no
new sample, and a value was measured between one interval before its receipt and its receipt.

One quantity per GPU is watched, the one that changes most: the energy counter, which rises with every collection, else
power, else activity. The energy counter is constant only if nothing is collected; a gauge may be constant because
nothing happens. So only the counter can show an interval longer than the usual one, or that collection has stopped: the
exporter responds, and its values are old.

Worked example: with a scrape every 5 s, energy changes at 100, 130, 160 and 190 s. The gaps are 30 s, each known to
5 s: the interval is at most 35 s, and what is received at 195 s was measured at 160 s or later.
"""

from __future__ import annotations

import numpy as np

from exporter.model import Floats, Gpu, Quantity, Samples, Subject

# The default of dcgm-exporter's --collect-interval, until there is an estimate.
USUAL_S = 30.0
# One odd gap (a restart, a lost scrape) must not decide: the median of so many.
GAPS = 8
ENOUGH = 3
# A counter that is constant for so many intervals is not collected.
STOPPED_AFTER = 3.0

_WATCHED = (Quantity.GPU_ENERGY, Quantity.GPU_POWER, Quantity.GPU_ENGINE_ACTIVE, Quantity.GPU_UTILIZATION)


class CollectInterval:
    """When the values of one target's GPUs changed. Time is that of the samples."""

    def __init__(self) -> None:
        self._subjects: tuple[Subject, ...] = ()
        self._quantity: Quantity | None = None
        self._updated_at = np.nan
        self._reset([])

    def _reset(self, rows: list[tuple[str, str | None]]) -> None:
        self._rows = rows
        self._last: Floats = np.full(len(rows), np.nan)
        self._changed_at: Floats = np.full(len(rows), np.nan)
        self._gaps: Floats = np.full((len(rows), GAPS), np.nan)
        self._turn = np.zeros(len(rows), dtype=np.int64)
        self._interval_s = np.nan

    def update(self, samples: Samples) -> None:
        """Adds one response. Another list of GPUs, or another quantity to watch, resets the estimate."""
        quantity = next((quantity for quantity in _WATCHED if quantity in samples.quantities), None)
        if quantity is None or not len(samples.at):
            return
        if samples.subjects is not self._subjects or quantity is not self._quantity:
            rows = [(subject.uuid, subject.instance) for subject in samples.subjects if isinstance(subject, Gpu)]
            self._subjects = samples.subjects
            if rows != self._rows or quantity is not self._quantity:
                self._quantity = quantity
                self._reset(rows)
        values, at = samples.column(quantity), float(samples.at.max())
        if len(values) != len(self._rows):  # queues beside GPUs: no GPU exporter
            return
        changed = (values != self._last) & ~np.isnan(values) & ~np.isnan(self._last)
        if changed.any():
            self._add_gaps(np.flatnonzero(changed), at)
        self._last = np.where(np.isnan(values), self._last, values)
        self._updated_at = at

    def _add_gaps(self, rows: np.ndarray[tuple[int], np.dtype[np.int64]], at: float) -> None:
        # A change happened at some time since the last response: each gap is known to that much.
        gaps = at - self._changed_at[rows] + (at - self._updated_at)
        self._gaps[rows, self._turn[rows] % GAPS] = gaps
        self._turn[rows] += ~np.isnan(gaps)
        self._changed_at[rows] = at
        # The median gap of each GPU that has changed often enough, and of these the median; the larger one of two.
        # (NaN sorts last. np.nanmedian takes a hundred times as long.)
        often = np.flatnonzero(self._turn >= ENOUGH)
        if len(often):
            middle = np.minimum(self._turn[often], GAPS) // 2
            gaps = np.sort(self._gaps[often], axis=1)[np.arange(len(often)), middle]
            self._interval_s = float(np.sort(gaps)[len(gaps) // 2])

    @property
    def interval_s(self) -> float:
        """Seconds by which a value may be older than its receipt."""
        if np.isnan(self._interval_s):
            return USUAL_S
        return self._interval_s if self._quantity is Quantity.GPU_ENERGY else min(self._interval_s, USUAL_S)

    def stopped_at(self, at: float) -> float | None:
        """POSIX seconds of the last change if collection has stopped, though the exporter responds; else None.

        Only the energy counter shows it: without it a constant value is that of an idle GPU.
        """
        if self._quantity is not Quantity.GPU_ENERGY or np.isnan(self._interval_s):
            return None
        last = float(np.nanmax(self._changed_at))
        return last if at - last > STOPPED_AFTER * self._interval_s else None

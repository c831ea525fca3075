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

from collections import deque
from math import isnan, nan

from exporter.model import Gpu, Quantity, Samples, Subject

# The default of dcgm-exporter's --collect-interval, until there is an estimate.
USUAL_S = 30.0
# One odd gap (a restart, a lost scrape) must not decide: the median of so many.
GAPS = 8
ENOUGH = 3
# A counter that is constant for so many intervals is not collected.
STOPPED_AFTER = 3.0

_WATCHED = (Quantity.GPU_ENERGY, Quantity.GPU_POWER, Quantity.GPU_ENGINE_ACTIVE, Quantity.GPU_UTILIZATION)


class _Changes:
    """When the value of one GPU changed. last: its last value. at: POSIX seconds of the last change.

    gaps: the last ones between two changes, in seconds. middle: their median, the larger one of two; NaN: too few.
    """

    __slots__ = ("at", "gaps", "last", "middle")

    def __init__(self) -> None:
        self.last = self.at = self.middle = nan
        self.gaps: deque[float] = deque(maxlen=GAPS)


class CollectInterval:
    """When the values of one target's GPUs changed. Time is that of the samples."""

    def __init__(self) -> None:
        self._subjects: tuple[Subject, ...] = ()
        self._quantity: Quantity | None = None
        self._updated_at = nan
        self._reset([])

    def _reset(self, rows: list[tuple[str, str | None]]) -> None:
        self._rows = rows
        self._changes = [_Changes() for _ in rows]
        self._last: list[float] = []  # of the last response
        self._interval_s = nan

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
        values, at = samples.column(quantity).tolist(), max(samples.at.tolist())
        if len(values) != len(self._rows):  # queues beside GPUs: no GPU exporter
            return
        if values != self._last:  # most responses repeat all values
            self._add_changes(values, at)
            self._last = values
        self._updated_at = at

    def _add_changes(self, values: list[float], at: float) -> None:
        """Notes the values that changed. For the few GPUs of a node, lists take a fifth of the time of arrays."""
        before, is_news = at - self._updated_at, False
        for value, gpu in zip(values, self._changes, strict=True):
            if isnan(value) or value == gpu.last:
                continue
            if not isnan(gpu.last):
                # A change happened at some time since the last response: each gap is known to that much.
                gap = at - gpu.at + before
                gpu.at, is_news = at, True
                if not isnan(gap):
                    gpu.gaps.append(gap)
                    if len(gpu.gaps) >= ENOUGH:
                        gpu.middle = sorted(gpu.gaps)[len(gpu.gaps) // 2]
            gpu.last = value
        # The median gap of each GPU that has changed often enough, and of these the median; the larger one of two.
        if is_news and (middles := sorted(gpu.middle for gpu in self._changes if not isnan(gpu.middle))):
            self._interval_s = middles[len(middles) // 2]

    @property
    def interval_s(self) -> float:
        """Seconds by which a value may be older than its receipt."""
        if isnan(self._interval_s):
            return USUAL_S
        return self._interval_s if self._quantity is Quantity.GPU_ENERGY else min(self._interval_s, USUAL_S)

    def stopped_at(self, at: float) -> float | None:
        """POSIX seconds of the last change if collection has stopped, though the exporter responds; else None.

        Only the energy counter shows it: without it a constant value is that of an idle GPU.
        """
        if self._quantity is not Quantity.GPU_ENERGY or isnan(self._interval_s):
            return None
        last = max(gpu.at for gpu in self._changes if not isnan(gpu.at))
        return last if at - last > STOPPED_AFTER * self._interval_s else None

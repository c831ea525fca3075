"""How often a page's numbers are made: learned from how often they change.

dcgm-exporter answers every scrape at once, with values that DCGM collected up to one interval ago (30 s by default,
`--collect-interval`); no timestamp says so. A scraper that asks every 5 s reads each value six times. So a repeat is
no new sample, and a value was measured somewhere between one interval before its receipt and its receipt.

What is watched is one number per GPU, the liveliest that the page has: the energy counter, which rises with every
collection, else power, else activity. A counter of joules stands still only when nobody collects; a gauge may stand
still because nothing happens. So only the counter can show an interval longer than the usual, or that a page has
stopped: it answers, and its numbers are old.

Worked example: asked every 5 s, energy changes at 100, 130, 160 and 190 s. The gaps are 30 s, each known to 5 s: the
interval is at most 35 s, and what is received at 195 s was measured at 160 s or later.
"""

from __future__ import annotations

import numpy as np

from exporter.model import Floats, Gpu, Quantity, Samples, Subject

# dcgm-exporter's --collect-interval where nobody changes it: believed until something else is learned.
USUAL_S = 30.0
# One odd gap (a restart, a lost scrape) must not decide: the middle of so many.
GAPS = 8
ENOUGH = 3
# A counter that has not moved for so many intervals is not being collected.
STOPPED_AFTER = 3.0

_LIVELY = (Quantity.GPU_ENERGY, Quantity.GPU_POWER, Quantity.GPU_ENGINE_ACTIVE, Quantity.GPU_UTILIZATION)


class Beats:
    """When the numbers of one page's GPUs changed. No clock: time is that of the samples."""

    def __init__(self) -> None:
        self._subjects: tuple[Subject, ...] = ()
        self._quantity: Quantity | None = None
        self._heard_at = np.nan
        self._forget([])

    def _forget(self, rows: list[tuple[str, str | None]]) -> None:
        self._rows = rows
        self._last: Floats = np.full(len(rows), np.nan)
        self._changed_at: Floats = np.full(len(rows), np.nan)
        self._gaps: Floats = np.full((len(rows), GAPS), np.nan)
        self._turn = np.zeros(len(rows), dtype=np.int64)
        self._learned = np.nan

    def update(self, samples: Samples) -> None:
        """Take in one page. Another list of GPUs, or another number to watch, begins anew."""
        quantity = next((quantity for quantity in _LIVELY if quantity in samples.quantities), None)
        if quantity is None or not len(samples.at):
            return
        if samples.subjects is not self._subjects or quantity is not self._quantity:
            rows = [(subject.uuid, subject.instance) for subject in samples.subjects if isinstance(subject, Gpu)]
            self._subjects = samples.subjects
            if rows != self._rows or quantity is not self._quantity:
                self._quantity = quantity
                self._forget(rows)
        values, at = samples.column(quantity), float(samples.at.max())
        if len(values) != len(self._rows):  # queues beside GPUs: no page of GPUs
            return
        beat = (values != self._last) & ~np.isnan(values) & ~np.isnan(self._last)
        if beat.any():
            self._learn(np.flatnonzero(beat), at)
        self._last = np.where(np.isnan(values), self._last, values)
        self._heard_at = at

    def _learn(self, rows: np.ndarray[tuple[int], np.dtype[np.int64]], at: float) -> None:
        # A change happened somewhere since the page before: each gap is known to that much.
        gaps = at - self._changed_at[rows] + (at - self._heard_at)
        self._gaps[rows, self._turn[rows] % GAPS] = gaps
        self._turn[rows] += ~np.isnan(gaps)
        self._changed_at[rows] = at
        # The middle gap of each GPU that has changed often enough, and of these the middle; the later one of two.
        # (NaN sorts last. np.nanmedian says the same in a hundred times the time.)
        often = np.flatnonzero(self._turn >= ENOUGH)
        if len(often):
            middle = np.minimum(self._turn[often], GAPS) // 2
            gaps = np.sort(self._gaps[often], axis=1)[np.arange(len(often)), middle]
            self._learned = float(np.sort(gaps)[len(gaps) // 2])

    @property
    def interval_s(self) -> float:
        """Seconds by which a value may be older than its receipt."""
        if np.isnan(self._learned):
            return USUAL_S
        return self._learned if self._quantity is Quantity.GPU_ENERGY else min(self._learned, USUAL_S)

    def stopped_at(self, at: float) -> float | None:
        """POSIX seconds of the last change on a page that has ceased to change, though it is still printed; else None.

        Only energy can tell: of a GPU without that counter a standing value is a quiet one.
        """
        if self._quantity is not Quantity.GPU_ENERGY or np.isnan(self._learned):
            return None
        last = float(np.nanmax(self._changed_at))
        return last if at - last > STOPPED_AFTER * self._learned else None

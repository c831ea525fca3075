"""Holds the sizing estimates and the SLO attainment of all workloads, and updates them with each sweep, and with them
the orders of queues that prices decide. Pure.

Worked example: `Sizes(specs, 15.0).signals(rows, totals, smoothed, now)` appends to the smoothed signals what the SLO
of each workload needs, in replicas. Where an engine exposes no counters of tokens, it is what the time of a request
needs, and NaN without that or without an SLO. The SLO is measured all the same, if there are histograms.
"""

from __future__ import annotations

import numpy as np

from exporter.model import Floats
from scaler.columns import Array, Columns, Mask, Rows, copy_into, named, zero_if_unknown
from scaler.policy import attainment, batch, capacity, service_time, sizing
from scaler.policy.attainment import Attained, Attainment, SloWindow
from scaler.policy.batch import BatchInputs, JobEstimate
from scaler.policy.capacity import WorkRate
from scaler.policy.columns import Signal, Specs
from scaler.policy.estimators.cold_start import ColdStarts
from scaler.policy.service_time import RequestTimes, TimeInputs
from scaler.policy.size_signals import SizeEstimates, SizeRules, add_sizes, find_timed
from scaler.policy.sizing import (
    Capacity,
    SizingInputs,
    SloColumns,
)
from scaler.signals.aggregate import Aggregate

from .variants import Variants


class Sizes:
    """specs: of all workloads; read anew at each update, since a reload replaces rows of it in place."""

    def __init__(self, specs: Specs, longest_s: float, variants: Variants) -> None:
        """longest_s: a reading is fresh for so many seconds."""
        self._specs, self._longest_s, self.variants = specs, longest_s, variants
        self.estimates = capacity.blank(len(specs.itl))
        self.attainment = attainment.blank(len(specs.itl))
        self.jobs = batch.blank(len(specs.itl))
        self.times = service_time.blank(len(specs.itl))
        self._rules, self._tables = SizeRules.of(specs), SizeEstimates(self.estimates, self.times, self.jobs)

    def columns(self) -> dict[str, Array]:
        """The state that a checkpoint keeps; live."""
        estimates = {"estimates": self.estimates, "jobs": self.jobs, "residence": self.times}
        return named("sizing", estimates) | named("attainment", self.attainment._asdict()) | self.variants.columns()

    def take(self, columns: Columns, rows: Rows, source_rows: Rows) -> None:
        """Copies state from `columns[source_rows]` into `rows`, pairwise."""
        copy_into(self.columns(), columns, rows, source_rows)
        self.estimates[rows] = capacity.made_sound(self.estimates[rows])
        self.variants.restore(self.estimates, self._specs.sizing_itl)
        self.jobs[rows] = batch.made_sound(self.jobs[rows])
        self.times[rows] = service_time.made_sound(self.times[rows])
        counts = self.attainment._asdict()
        unsound = rows[~attainment.made_sound({name: column[rows] for name, column in counts.items()})]
        for name, column in attainment.blank(len(unsound))._asdict().items():
            counts[name][unsound] = column

    def update(self, totals: Aggregate, complete: Mask, starts: ColdStarts, hour: Floats, now: float) -> Rows:
        """Takes the readings of all workloads. Returns those with another place in the order of their queue.

        starts: seconds; NaN: not measured. hour: the price of a replica; NaN unknown. now: POSIX seconds.
        """
        if not np.isnan(self._specs.start_within).all():
            self._update_queues(totals, complete, starts.p90, now)
        timed = self._timed(np.arange(len(self.estimates)), totals)
        if timed.any():
            self._update_times(timed, totals, complete, starts.p50, now)
        if not np.isnan(self._specs.itl).all():
            self._update_engines(timed, totals, complete, starts.p50, now)
        return self.variants.update(hour, self.estimates, self._specs.sizing_itl, now)

    def _update_queues(self, totals: Aggregate, complete: Mask, start_s: Floats, now: float) -> None:
        readings = totals.readings
        is_read = complete & ~(np.isnan(readings.waiting) & np.isnan(readings.held))
        inputs = BatchInputs(
            # Incomplete lengths are lower bounds: a fall of them may be no departure.
            waiting=np.where(is_read, zero_if_unknown(readings.waiting) + zero_if_unknown(readings.held), np.nan),
            running=readings.running,
            finished=totals.finished,
            ready=readings.ready,
            wanted=readings.wanted,
            pending=readings.pending,
            start=np.where(np.isnan(start_s), sizing.UNLEARNED_START_S, start_s),
        )
        batch.update(self.jobs, self._specs.start_within, inputs, now, self._longest_s)

    def _timed(self, rows: Rows, totals: Aggregate) -> Mask:
        """Which of these workloads the time of a request sizes now: their engines expose no counters of tokens."""
        return find_timed(self._rules, self._tables, rows, totals.uncounted, totals.readings.pods_fresh)

    def _update_times(self, timed: Mask, totals: Aggregate, complete: Mask, start_s: Floats, now: float) -> None:
        readings = totals.readings
        rates = np.where(complete[:, None], totals.rates[:, [WorkRate.ARRIVED, WorkRate.FINISHED]], np.nan)
        in_hand = totals.latest[:, Signal.WORK].copy()
        # Where no engine is, nothing is worked on: only what comes to the gateway arrives.
        empty = complete & (readings.pods_fresh == 0.0)
        rates[empty], in_hand[empty] = zero_if_unknown(rates[empty]), zero_if_unknown(in_hand[empty])
        inputs = TimeInputs(
            arrived=rates[:, 0],
            finished=rates[:, 1],
            in_hand=in_hand,
            waiting=zero_if_unknown(readings.waiting) + zero_if_unknown(readings.held),
            ready=readings.ready,
            ttft=self._specs.ttft,
            start=np.where(np.isnan(start_s), sizing.UNLEARNED_START_S, start_s),
        )
        service_time.update(self.times, self.estimates, timed, inputs, now, self._longest_s)

    def _update_engines(self, timed: Mask, totals: Aggregate, complete: Mask, start_s: Floats, now: float) -> None:
        readings = totals.readings
        rates = np.where(complete[:, None], totals.rates, np.nan)
        # Sums without the tokens of one engine are too small. The latencies of the others are measured all the same.
        rates[totals.uncounted > 0.0, : WorkRate.GAPS] = np.nan
        # Where no engine is, nothing is worked on: only what comes to the gateway arrives.
        empty = complete & (readings.pods_fresh == 0.0)
        rates[empty] = zero_if_unknown(rates[empty])
        served = attainment.update(self.attainment, rates, self._specs.itl, now, self._longest_s)
        inputs = SizingInputs(
            rates=rates,
            waiting=zero_if_unknown(readings.waiting) + zero_if_unknown(readings.held),
            running=readings.running,
            kv_used=totals.kv_cache,
            ready=readings.ready,
            start=np.where(np.isnan(start_s), sizing.UNLEARNED_START_S, start_s),
            misses=served.misses,
        )
        slos = SloColumns(self._specs.ttft, np.where(timed, np.nan, self._specs.sizing_itl))
        sizing.update(self.estimates, slos, inputs, now, self._longest_s)

    def attained(self, rows: Rows, window: SloWindow) -> Attained:
        """How many requests of these workloads met the SLO within a window, as of the last update."""
        return attainment.attained(Attainment(*(column[rows] for column in self.attainment)), window)

    def capacity(self, rows: Rows, now: float) -> Capacity:
        """What one replica of these workloads can do, and what widens their size. now: POSIX seconds."""
        return sizing.capacity(self.estimates[rows], self._specs.sizing_itl[rows], now)

    def request_times(self, rows: Rows, totals: Aggregate, now: float) -> RequestTimes:
        """How long requests of these workloads take; NaN for those that their tokens size. now: POSIX seconds."""
        timed = self._timed(rows, totals)
        if not timed.any():
            return RequestTimes(*np.full((len(RequestTimes._fields), len(rows)), np.nan))
        shown = service_time.request_times(self.times[rows], self.estimates[rows], now)
        return RequestTimes(*(np.where(timed, column, np.nan) for column in shown))

    def queue_rates(self, rows: Rows) -> tuple[Floats, Floats]:
        """Jobs per second that a busy replica of these workloads finishes, and that arrive; NaN unknown."""
        service = self.jobs[rows, JobEstimate.SERVICE]
        return service, np.where(np.isnan(service), np.nan, self.jobs[rows, JobEstimate.STREAM])

    def signals(self, rows: Rows, totals: Aggregate, smoothed: Floats, now: float) -> Floats:
        """The signals of these workloads, shape (rows, len(Signal)): the smoothed ones and what arriving work needs.

        smoothed: shape (rows, SMOOTHED). now: POSIX seconds. Writes the arriving work into `totals.latest`.
        """
        uncounted, pods_fresh = totals.uncounted, totals.readings.pods_fresh
        moment = (self._longest_s, now)
        return add_sizes(self._rules, self._tables, rows, uncounted, pods_fresh, smoothed, *moment, totals.latest)

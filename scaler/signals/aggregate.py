"""Adds up the fresh readings of each workload, with imputed pods and its part of a shared queue. Pure.

Worked example: 3 of the 4 pods that must answer have 30 requests in hand. `impute` makes the work of that workload 40.
Two members of weights 9 and 1 read the same gateway, with 40 requests held: HELD becomes 36 for the one and 4 for the
other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from exporter.model import Floats
from scaler.columns import Mask, Rows
from scaler.policy.columns import Readings, Signal
from scaler.policy.kernel import choose


class VisibleGpus(NamedTuple):
    """GPUs and MIG instances that are exclusively a workload's by fresh readings; every column has shape (rows,).

    shown:    how many. Of those:
    utilised: the ones that expose utilisation and no engine activity,
    silent:   the ones that expose neither, and
    lost:     the ones that expose neither since a fatal error.
    parts:    besides, its pods on shared GPUs that are measured by process.
    memory:   bytes held on them; NaN unknown.
    ceiling:  the maximum of their mean engine activity, 0..1; NaN if that is 1.
    """

    shown: Floats
    utilised: Floats
    silent: Floats
    lost: Floats
    parts: Floats
    memory: Floats
    ceiling: Floats


class HeldGpus(NamedTuple):
    """The GPUs of a workload's running pods in whole ones; every column has shape (rows,), NaN unknown.

    whole: how many. hour: the price of one for an hour. watts: the power of all.
    """

    whole: Floats
    hour: Floats
    watts: Floats


@dataclass(frozen=True, slots=True)
class Aggregate:
    """The fresh readings of some workloads, added up; every column has shape (rows,), NaN unknown.

    readings: those for the policy; its `signals` are unknown until they are smoothed.
    gpus_held: GPUs that its running pods request.
    gpus:     those among them that are exclusively its by fresh readings.
    in_pods:  requests waiting and running in the pods that must answer and do.
    latest:   shape (rows, len(Signal)): each signal as read now. Requests in hand, wherever they are; the mean KV-cache
              use of the pods; the mean engine activity of the GPUs that are exclusively its.
    rates:    shape (rows, len(sizing.WorkRate)): of the engines' counters, per second.
    uncounted: engines that expose no counters of tokens.
    finished: requests finished since the start of this process, corrected for restarts.
    sleeping: pods with an engine in sleep mode.
    open:     requests that gateways count as passed on, where that shows one in an engine that sleeps.
    leaving:  terminating replicas that still hold their GPUs.
    held:     `gpus_held` in whole ones, else those that are shown, with their price and power.
    """

    readings: Readings
    gpus_held: Floats
    gpus: VisibleGpus
    in_pods: Floats
    latest: Floats
    rates: Floats
    uncounted: Floats
    finished: Floats
    sleeping: Floats
    open: Floats
    leaving: Floats
    held: HeldGpus

    @property
    def gpus_each(self) -> Floats:
        """GPUs that a replica holds, ready or not, terminating or not; NaN unknown."""
        running = self.readings.existing - self.readings.pending + self.leaving
        return self.gpus_held / np.where(running > 0.0, running, np.nan)

    @property
    def whole_each(self) -> Floats:
        """The same in whole GPUs."""
        running = self.readings.existing - self.readings.pending + self.leaving
        return self.held.whole / np.where(running > 0.0, running, np.nan)

    @property
    def kv_cache(self) -> Floats:
        return self.latest[:, Signal.KV_CACHE]

    @property
    def gpu_engine(self) -> Floats:
        return self.latest[:, Signal.GPU_ENGINE]

    def withhold(self, rows: Mask) -> Aggregate:
        """The same, without readings of these workloads but for the times of their last activity."""
        if not rows.any():
            return self
        unknown = Readings.unknown(len(rows))._replace(
            active_at=self.readings.active_at, refused_at=self.readings.refused_at
        )
        readings = (
            np.where(rows[:, None] if column.ndim > 1 else rows, blank, column)
            for blank, column in zip(unknown, self.readings, strict=True)
        )
        latest, rates = (np.where(rows[:, None], np.nan, each) for each in (self.latest, self.rates))
        return replace(self, readings=Readings(*readings), latest=latest, rates=rates)

    def choose(self, rows: Rows) -> Aggregate:
        """The same for some of the workloads only."""
        return Aggregate(
            choose(rows, self.readings),
            self.gpus_held[rows],
            choose(rows, self.gpus),
            self.in_pods[rows],
            self.latest[rows],
            self.rates[rows],
            self.uncounted[rows],
            self.finished[rows],
            self.sleeping[rows],
            self.open[rows],
            self.leaving[rows],
            choose(rows, self.held),
        )

    def impute(self, rows: Mask) -> None:
        """Assumes, for these workloads, that pods which do not answer are like the others: 30 requests in 3 of 4 pods
        are 40 in all. Modifies `latest` and `rates` in place.
        """
        missing = self.readings.pods_listed[rows] / self.readings.pods_fresh[rows] - 1.0
        self.rates[rows] *= 1.0 + missing[:, None]
        self.latest[rows, Signal.WORK] += np.nan_to_num(self.in_pods[rows] * missing)

"""Sizes one workload by the time of its requests in plain Python: `scaler.policy.service_time` must equal it."""

from __future__ import annotations

from math import exp, isnan, log, sqrt

from scaler.policy.capacity import ARRIVAL_S, MEAN_OF, SMALLEST
from scaler.policy.service_time import (
    ADDED_DEVIATIONS,
    FEWEST_FULL,
    FEWEST_TIMED,
    FORGOTTEN_SLOPE_PER_S,
    FULL_STRETCH,
    HOUR_S,
    MINUTES_S,
    MOST_FULL,
    MOST_WAITING,
    OTHER_VARIANCE,
    PRIOR_DEVIATION,
    PRIOR_SLOPE,
    SAMPLE_S,
    STUCK_S,
    STUCK_TIMES,
    TTFT_S,
    UNMEASURED_STRETCH,
)
from scaler.policy.sizing import LEAST_WORK
from tests.scaler.policy.sizing.reference_sizing import Sizing, counted


class Sums:
    """Request-seconds in hand and requests, as they are and per replica, and seconds; older ones count less."""

    def __init__(self):
        self.in_hand = self.requests = self.in_hand_each = self.requests_each = self.seconds = 0.0

    def add(self, kept, in_hand, requests, ready, dt):
        self.in_hand = kept * self.in_hand + in_hand * dt
        self.requests = max(kept * self.requests + requests, 0.0)
        self.in_hand_each = kept * self.in_hand_each + in_hand / ready * dt
        self.requests_each = max(kept * self.requests_each + requests / ready, 0.0)
        self.seconds = kept * self.seconds + dt

    def shrink(self, times):
        for name, value in vars(self).items():
            setattr(self, name, times * value)

    @property
    def smallest(self):
        return min(vars(self).values())

    @property
    def time_s(self):
        return self.in_hand / self.requests

    @property
    def each(self):
        return self.in_hand_each / self.seconds

    @property
    def rate(self):
        return self.requests_each / self.seconds


class Timed(Sizing):
    """The estimates of one workload, by name."""

    def __init__(self, **constants):
        super().__init__(**constants)
        self.last, self.minutes, self.hour = Sums(), Sums(), Sums()
        self.information, self.products = 0.0, 0.0
        self.stuck = 0.0

    def update(self, arrived, finished, in_hand, waiting, ready, ttft, start, longest, now):
        if isnan(arrived + finished + in_hand):
            return
        dt, self.at = now - self.at, now
        if not dt > 0.0:
            return
        known_s, queue = min(dt, longest), counted(waiting)
        if ready > 0.0 and queue <= MOST_WAITING * ready:
            self.stuck = self.stuck + known_s if in_hand > 0.0 and not finished > 0.0 else 0.0
            hangs = self.stuck > (STUCK_TIMES * self.last.time_s if self.has_time else 0.0) + STUCK_S
            if not hangs and (self.last.seconds > 0.0 or finished > 0.0):
                self.learn(in_hand, 0.5 * (arrived + finished) * known_s, ready, known_s)
        if not self.has_time:
            return
        request_s = self.request_replica_s
        raw, requests = arrived * request_s, arrived * known_s
        residence = min(max(0.5 * self.last.time_s, ARRIVAL_S), self.constants.longest_residence_s)
        before = counted(self.work)
        work = before + (1.0 - exp(-dt / residence)) * (raw - before)
        self.work = work if work > LEAST_WORK else 0.0
        self.count_arrivals(requests, raw, dt)
        may_wait = TTFT_S if isnan(ttft) else ttft
        self.size_arrivals(
            requests,
            raw,
            request_s,
            queue * request_s,
            ARRIVAL_S,
            UNMEASURED_STRETCH,
            ready,
            may_wait,
            start,
            dt,
            known_s,
            now,
        )

    @property
    def has_time(self):
        return self.last.requests >= FEWEST_TIMED and self.last.in_hand > SMALLEST

    def learn(self, in_hand, requests, ready, dt):
        for sums, kept in ((self.last, 1.0), (self.minutes, exp(-dt / MINUTES_S)), (self.hour, exp(-dt / HOUR_S))):
            sums.add(kept, in_hand, requests, ready, dt)
        if self.last.requests > MEAN_OF:
            self.last.shrink(MEAN_OF / self.last.requests)
        self.information *= exp(-FORGOTTEN_SLOPE_PER_S * dt)
        self.products *= exp(-FORGOTTEN_SLOPE_PER_S * dt)
        if min(self.minutes.smallest, self.hour.smallest) <= SMALLEST:
            return
        longer = log(self.minutes.time_s) - log(self.hour.time_s)
        busier = log(self.minutes.rate) - log(self.hour.rate)
        regressor = sqrt(self.minutes.each * self.hour.each) * busier
        weight = min(dt / SAMPLE_S, 1.0) / (1.0 / self.minutes.requests + OTHER_VARIANCE)
        self.information += weight * regressor**2
        self.products += weight * regressor * longer

    @property
    def slope(self):
        prior = 1.0 / PRIOR_DEVIATION**2
        information = self.information + prior
        fitted = (self.products + prior * PRIOR_SLOPE) / information + ADDED_DEVIATIONS / sqrt(information)
        return min(max(fitted, (FULL_STRETCH - 1.0) / MOST_FULL), (FULL_STRETCH - 1.0) / FEWEST_FULL)

    @property
    def alone_s(self):
        return self.last.time_s / (1.0 + self.slope * self.last.each)

    @property
    def request_replica_s(self):
        """A full replica has `full` requests, each of which takes FULL_STRETCH times as long as one alone."""
        full = (FULL_STRETCH - 1.0) / self.slope
        return FULL_STRETCH * self.alone_s / full

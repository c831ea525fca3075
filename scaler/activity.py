"""When each workload last did something that its counters show. Pure.

A request may start and end between two scrapes: its counter has risen. A counter that falls began anew, and all that it
shows happened since; the first sight of one is a baseline. Requests that rise like a clock are probes' (see `probes`)
and are no activity; tokens always are, and so is a request that was turned away where nobody is there.

Worked example: a page says 100 finished requests, then 101: active at that scrape's time. It says 3: it was restarted,
and 3 more have finished. A load balancer's question every 10 s is activity for 5 minutes, and then no more.
"""

from __future__ import annotations

from math import isnan, nan

import numpy as np

from exporter.model import Floats, Quantity

from .board import Reason
from .policy import REASONS, Readings, Verdicts
from .probes import Probes
from .queue_pages import QueuePage
from .slots import ACTIVITY, Mask, Rows
from .state import Array, copy_into, named

TOKENS = frozenset({Quantity.TOKENS_PROMPT, Quantity.TOKENS_GENERATED})
BY_REQUESTS = [REASONS.index(reason) for reason in (Reason.QUEUED, Reason.SERVING, Reason.CAPPED)]
# What is counted for people, in this order: requests once, where they are finished, and not again at a gateway.
COUNTED = (Quantity.REQUESTS_FINISHED, Quantity.TOKENS_PROMPT, Quantity.TOKENS_GENERATED)
IN_HAND = (Quantity.REQUESTS_WAITING, Quantity.REQUESTS_RUNNING, Quantity.REQUESTS_HELD)


class Activity:
    """Of a fixed list of workloads: each array has a slot for each of them, POSIX seconds, NaN never.

    active_at:  when a counter of requests or tokens last rose.
    refused_at: when a request was last turned away at a page that can wake.
    finished:   requests finished since this process began to look, corrected for restarts; NaN none seen yet.
    counted:    shape (rows, len(COUNTED)), what was counted since `take_counted`; NaN where no page has said.
    """

    def __init__(self, probe_periods: Floats, slots: int) -> None:
        """probe_periods: seconds, 0 is: every request counts. slots: how many sources there is room for."""
        rows = len(probe_periods)
        self.active_at, self.refused_at, self.finished = (np.full(rows, nan) for _ in range(3))
        self.counted = np.full((rows, len(COUNTED)), nan)
        self.probes = Probes(probe_periods, slots)

    def adopt(self, other: Activity, rows: Rows, others: Rows) -> None:
        """Take over what another has seen: own `rows` from its slots `others`, and the sources as they are."""
        copy_into(self.columns(), other.columns(), rows, others)
        self.counted[rows] = other.counted[others]
        self.probes.adopt(other.probes, rows, others)

    def columns(self) -> dict[str, Array]:
        """What survives a restart, as `scaler.state` wants it; live."""
        counted = {"finished": self.finished, "active_at": self.active_at, "refused_at": self.refused_at}
        return {**named("intake", counted), **self.probes.columns()}

    def make_sound(self, rows: Rows, now: float) -> None:
        """Reset what cannot have been counted. now: POSIX seconds, or infinity."""
        finished = self.finished[rows]
        self.finished[rows] = np.where((finished >= 0.0) & (finished <= 2.0**53), finished, nan)
        self.probes.make_sound(rows, now)

    def answered(
        self, rows: Rows, seen: Readings, *, was_active: Mask, verdicts: Verdicts, now: float, slack_s: float
    ) -> None:
        """What was decided of these workloads: who is woken right after was put to sleep wrongly. See `Probes`."""
        there = (seen.wanted > 0.0) | (seen.ready > 0.0) | (seen.pods_fresh > 0.0)
        woken = ~was_active & verdicts.active & np.isin(verdicts.reason, BY_REQUESTS)
        self.probes.answered(rows, ~verdicts.active, there, woken, now, slack_s)

    def take_counted(self) -> Floats:
        """What was counted since this was asked last, shape (rows, len(COUNTED)); NaN where no page has said."""
        counted, self.counted = self.counted, np.full_like(self.counted, nan)
        return counted

    def land(self, row: int, slot: int, counters: Floats, page: QueuePage, at: float, *, counts: bool) -> None:
        """Take in one page. counters: of its slot, shape (len(ACTIVITY),); they are brought up to date.

        counts: what it has finished, no other page has.
        """
        rises = {quantity: _rise(counters, place, page) for place, quantity in enumerate(ACTIVITY)}
        tokens = any(rises[quantity] > 0.0 for quantity in TOKENS)
        if tokens:
            self.probes.worked(row, at)
        elif any(page.said.get(quantity, nan) > 0.0 for quantity in IN_HAND):
            self.probes.in_hand(row, slot, at, on_replica=not page.waker)
        finished, failed = rises[Quantity.REQUESTS_FINISHED], rises[Quantity.REQUESTS_FAILED]
        requests = (0.0 if isnan(finished) else finished) + (0.0 if isnan(failed) else failed)
        somebody = self.probes.count(row, slot, requests, at)
        if somebody or tokens:
            self.active_at[row] = at
        # Where every request is counted as it arrives, a prober's are among them.
        turned_away = somebody and finished > 0.0 if page.arrivals else failed > 0.0
        if page.waker and turned_away:
            self.active_at[row] = self.refused_at[row] = at
        if counts and not isnan(finished):
            before = self.finished[row]
            self.finished[row] = finished + (0.0 if isnan(before) else before)
        if counts:
            for place, quantity in enumerate(COUNTED):
                rise = rises[quantity]
                if not isnan(rise):
                    before = self.counted[row, place]
                    self.counted[row, place] = rise + (0.0 if isnan(before) else before)


def _rise(counters: Floats, place: int, page: QueuePage) -> float:
    """How much a counter has risen; NaN where the page does not say it."""
    before, after = float(counters[place]), page.said.get(ACTIVITY[place], nan)
    if isnan(after):
        return nan
    counters[place] = after
    return 0.0 if isnan(before) else after - before if after >= before else after

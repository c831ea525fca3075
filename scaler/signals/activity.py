"""When each workload last did something that its counters show. Pure.

A request may start and end between two scrapes: its counter has risen. A counter that falls began anew, and all that it
shows happened since; the first sight of one is a baseline. Requests that rise like a clock are probes' (see `probes`)
and are no activity; tokens always are, and so is a request that was turned away where nobody is there.

Worked example: a page says 100 finished requests, then 101: active at that scrape's time. It says 3: it was restarted,
and 3 more have finished. A load balancer's question every 10 s is activity for 5 minutes, and then no more.

Probers by their regularity: which counters of requests rise like clocks, where no path tells. Pure.

A prober asks every so many seconds, for ever; so its counter stays beside a straight line. Sampled at times t, the
count of one clock is a whole number N with N <= line(t) < N + 1: there is a line of which all samples keep within a
band one request high. Of two clocks the band is two high, of three three, whatever their periods. So a stream is taken
for probes while the samples around its last rises fit a band of 1 or 2 (after 30 rises) or 3 (after 45: within 1.5 of
the line), at a mean distance of at most the workload's `probe_period`.

Who comes by chance leaves the band: the count of a Poisson stream strays like a random walk, by the root of 30, 5.5
requests. Of 45,000 such windows (mean distances 5, 10 and 60 s, scraped every 5 s) none fitted a band of 2 over 30
rises (7 fitted 2.5, 73 fitted 3), and none fitted 3 over 45. A stream is asked again at each rise: of 600 streams of
400 requests none was ever taken for probes. One that is, once in a great while, leaves the band a few rises later.

A steady client looks the same, and must not be put to sleep for being steady. So: tokens, a request in flight or a busy
GPU anywhere on the workload's pages is work, and the 30 rises begin anew after it; a rise that does not fit is a
request, at once; and what wakes a workload within two periods after it fell asleep may have been the regular stream
itself: then it was a client, and the workload's regular requests count again.

That verdict is a guess from one request, so it ends. It holds for an hour after the first such wake-up and four times
as long after each further one, at most seven days; a sleep that lasts longer than two periods takes one step back.
After 1 + 4 + 16 + 64 h a steady client is put to sleep once in seven days. Nothing is
concluded from a wake-up beside which tokens or a busy GPU were seen: the stream makes neither. Nor, once until a sleep
lasts, if the request was worked on by a replica, or came at another time than the clock's next ones. Once, because a
client whose clock stops while its request hangs comes at another time as well.

Worked example: a load balancer asks every 10 s and nothing else happens. For 5 minutes each question is activity like
any other; then it is known, and the keep-warm time runs. Somebody's request comes between: two rises where one was due,
so it is activity, at that scrape; the next probe is none. One request each 7 minutes is further apart than
`probe_period` and always counts.
"""

from __future__ import annotations

from math import ceil, inf, isnan, nan
from typing import NamedTuple

import numpy as np

from exporter.model import Floats, Quantity
from scaler.columns import Array, Mask, Rows, copy_into, named
from scaler.model import Reason
from scaler.policy.columns import REASONS, Readings, Verdicts
from scaler.policy.overrides import written

from .queues import QueuePage
from .slots import ACTIVITY

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
        """What survives a restart, as `scaler.columns` wants it; live."""
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
        if np.isnan(self.probes.period[rows]).all() and np.isnan(self.probes.asleep_at[rows]).all():
            return
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


RISES = 30  # before a stream of one or two clocks is known, and …
MANY_RISES = 45  # … of three
KEPT = 48  # rises that are kept: the band is asked of these, so nobody has to be as regular as quartz for days
CLOCKS = 3
SLACK = 0.1  # of a request: clocks and scrapes tremble by some tens of milliseconds
SHORTEST_S = 1.0  # kubelet's shortest period. Who asks more often is working.
FIRST_DISTRUST_S, LONGEST_DISTRUST_S = 3600.0, 7 * 86400.0
DISTRUST_GROWTH = 4.0
MOST_WRONG_SLEEPS = 5  # 1, 4, 16, 64 and 256 h: the last is cut to seven days, and more would change nothing
SLOPES = 65  # tried at once, twice: the second time to 1/64 of the distance of the first


class ProbeSchedule(NamedTuple):
    """When a clock's requests come: the last one after `after` and by `by`, then one each `period_s`. POSIX seconds.

    period_s: 0 where there are several clocks: then any time fits.
    """

    after: float
    by: float
    period_s: float

    def has(self, after: float, by: float) -> bool:
        """Whether one of the next requests can have come after `after` and by `by`."""
        if not self.period_s > 0.0 or isnan(after) or isnan(self.after):
            return True
        play = SLACK * self.period_s
        coming = max(1, ceil((after - self.by - play) / self.period_s))
        return self.after + coming * self.period_s - play <= by


class ObservedRequest(NamedTuple):
    """A request that came after `after` and by `by`, POSIX seconds. on_replica: a replica worked on it."""

    after: float = nan
    by: float = -inf
    on_replica: bool = False


def distrust_s(wrong_sleeps: float) -> float:
    """How long regular requests count after so many wrong sleeps, at least 1, in seconds."""
    return float(min(LONGEST_DISTRUST_S, FIRST_DISTRUST_S * DISTRUST_GROWTH ** (wrong_sleeps - 1.0)))


class Probes:
    """What is known of the regularity of each slot's requests, and which workloads are not to be judged by it."""

    def __init__(self, periods: Floats, slots: int) -> None:
        """periods: `probe_period` of each workload in seconds, 0 is: never. slots: how many there are."""
        rows = len(periods)
        self._periods = periods
        self._rises = np.full((slots, KEPT, 3), np.nan)  # last sample before it, first with it, the count then
        self._kept = np.zeros(slots, dtype=np.int64)
        self._clocks = np.zeros(slots, dtype=np.int64)  # 0: not known to be probes
        self._heard_at = np.full(slots, np.nan)
        self._real_at = np.full(rows, np.nan)  # POSIX seconds when tokens, requests in flight or a GPU were seen
        self.period = np.full(rows, np.nan)  # seconds, of the slowest stream that is now taken for probes
        self.asleep_at = np.full(rows, np.nan)  # POSIX seconds since when nothing of it is there
        self.count_until = np.full(rows, np.nan)  # POSIX seconds: so long its regular requests count
        self.wrong_sleeps = np.zeros(rows)  # that it was put to sleep for being steady, less the right ones since
        self.excused = np.zeros(rows, dtype=np.bool_)  # a request at another time has woken it soon, once
        self._schedules: dict[int, dict[int, ProbeSchedule]] = {}  # by row and slot, of the streams taken for probes
        self._asked: dict[int, ObservedRequest] = {}  # by row: the last request that came while it was asleep

    def replan(self, rows: Rows, periods: Floats) -> None:
        """Replaces the `probe_period` of `rows`. periods: shape (rows,), seconds."""
        self._periods[rows] = periods

    def columns(self) -> dict[str, Array]:
        """What survives a restart, as `scaler.columns` wants it; live. Which streams are regular is seen anew."""
        learned = {
            "count_until": self.count_until,
            "wrong_sleeps": self.wrong_sleeps,
            "excused": self.excused,
            "period": self.period,
            "asleep_at": self.asleep_at,
        }
        return named("probes", learned)

    def make_sound(self, rows: Rows, now: float) -> None:
        """Mend what this version cannot have learned, of `rows` that were copied in. now: POSIX seconds, or infinity.

        A verdict ends no later than one of now would; one that is over, or of a workload without `probe_period`, goes.
        """
        sleeps = np.nan_to_num(self.wrong_sleeps[rows], nan=0.0, posinf=0.0, neginf=0.0)
        self.wrong_sleeps[rows] = np.clip(np.floor(sleeps), 0.0, MOST_WRONG_SLEEPS)
        latest = np.array([now + distrust_s(max(1.0, sleeps)) for sleeps in self.wrong_sleeps[rows]])
        until, judged = self.count_until[rows], self._periods[rows] > 0.0
        holds = judged & np.isfinite(until) & ((until > now) | np.isinf(now))
        self.count_until[rows] = np.where(holds, np.minimum(until, latest), np.nan)
        period = self.period[rows]
        possible = judged & (period >= SHORTEST_S) & (period <= CLOCKS * self._periods[rows])
        self.period[rows] = np.where(possible, period, np.nan)
        self.asleep_at[rows] = np.where(
            np.isfinite(self.asleep_at[rows]), np.minimum(self.asleep_at[rows], now), np.nan
        )

    def adopt(self, other: Probes, rows: Rows, others: Rows) -> None:
        """Take over another's slots, because the same targets go on being asked: own `rows` from its `others`."""
        self._rises, self._kept, self._clocks = other._rises, other._kept, other._clocks
        self._heard_at = other._heard_at
        self._real_at[rows] = other._real_at[others]
        same = list(zip(rows.tolist(), others.tolist(), strict=True))
        self._schedules = {mine: other._schedules[theirs] for mine, theirs in same if theirs in other._schedules}
        self._asked = {mine: other._asked[theirs] for mine, theirs in same if theirs in other._asked}

    def grow(self, slots: int) -> None:
        more = slots - len(self._kept)
        self._rises = np.concatenate([self._rises, np.full((more, KEPT, 3), np.nan)])
        self._kept = np.concatenate([self._kept, np.zeros(more, dtype=np.int64)])
        self._clocks = np.concatenate([self._clocks, np.zeros(more, dtype=np.int64)])
        self._heard_at = np.concatenate([self._heard_at, np.full(more, np.nan)])

    def clear(self, slot: int) -> None:
        self._kept[slot] = self._clocks[slot] = 0
        self._heard_at[slot] = np.nan

    def worked(self, row: int, at: float) -> None:
        """Tokens or a busy GPU: a stream of probes makes neither."""
        self._real_at[row] = at
        self.period[row] = np.nan

    def in_hand(self, row: int, slot: int, at: float, *, on_replica: bool) -> None:
        """A page shows a request in hand. While a workload is asleep, it may be the stream's, which gets no answer.

        on_replica: it is an engine's page, and not one that would show the request at zero replicas too.
        """
        if isnan(self.asleep_at[row]):
            self.worked(row, at)
        else:
            self._real_at[row] = at
            self._asked[row] = ObservedRequest(float(self._heard_at[slot]), at, on_replica)

    def count(self, row: int, slot: int, rise: float, at: float) -> bool:
        """A page came in, and its counters of requests rose by so many (0: they did not). Is that activity?"""
        before, self._heard_at[slot] = self._heard_at[slot], at
        if not rise > 0.0:
            return False
        if not self._periods[row] > 0.0 or at < self.count_until[row]:
            return True
        if self._kept[slot] and self._rises[slot, 0, 1] <= self._real_at[row]:
            self._restart(slot)
        self._append(slot, before, at, rise)
        is_activity = self._is_activity(row, slot, rise)
        if not isnan(self.asleep_at[row]):
            if not is_activity:
                self._asked[row] = ObservedRequest()  # the stream's own, wherever else it is in hand
            elif self._asked.get(row, ObservedRequest()).by < at:
                self._asked[row] = ObservedRequest(float(before), at)
        return is_activity

    def answered(self, rows: Rows, asleep: Mask, there: Mask, wanted: Mask, now: float, slack_s: float) -> None:
        """What became of these workloads; every argument has shape (len(rows),).

        asleep: they are to be at zero. there: some replica still is. wanted: they were woken this moment by requests.
        slack_s: what a request may take to be seen, beside two periods.
        """
        known = ~np.isnan(self.period[rows])
        falling = asleep & known & (there | np.isnan(self.asleep_at[rows]))
        self.asleep_at[rows[falling]] = now
        ended = ~asleep & ~np.isnan(self.asleep_at[rows])
        soon = now - self.asleep_at[rows] <= 2.0 * self.period[rows] + slack_s
        for row in rows[ended & soon & wanted].tolist():
            if self._came_off_schedule(row) and not self.excused[row]:
                self.excused[row] = True
            else:
                self._distrust(row, now)
        lasted = rows[ended & ~soon & known]
        self.wrong_sleeps[lasted] = np.maximum(0.0, self.wrong_sleeps[lasted] - 1.0)
        self.excused[lasted] = False
        self.asleep_at[rows[~asleep]] = np.nan

    def _distrust(self, row: int, now: float) -> None:
        self.wrong_sleeps[row] = min(MOST_WRONG_SLEEPS, self.wrong_sleeps[row] + 1.0)
        self.count_until[row] = now + distrust_s(self.wrong_sleeps[row])
        self._real_at[row], self.period[row] = now, np.nan
        self._schedules.pop(row, None)

    def _came_off_schedule(self, row: int) -> bool:
        """Whether the request that woke it is known to be none of the streams that were taken for probes."""
        asked = self._asked.get(row, ObservedRequest())
        asleep_at = self.asleep_at[row]
        # A stream that has ended before, as that of a pod long gone, asks no more.
        current = [
            schedule
            for schedule in self._schedules.get(row, {}).values()
            if schedule.by >= asleep_at - 3.0 * max(schedule.period_s, SHORTEST_S) or not schedule.period_s > 0.0
        ]
        fits = not current or any(schedule.has(asked.after, asked.by) for schedule in current)
        return bool(asked.by >= asleep_at) and (asked.on_replica or not fits)

    def verdicts(self, rows: Rows, now: float) -> tuple[Floats, Floats]:
        """What holds at `now` of these workloads, each of shape (len(rows),): the period in seconds of regular requests
        that are taken for probes, and until when they count instead, POSIX seconds; NaN where neither is so.
        """
        until = self.count_until[rows]
        return self.period[rows], np.where(until > now, until, np.nan)

    def notes(self, row: int, now: float) -> tuple[str, ...]:
        """What a person would ask next of this workload."""
        if now < self.count_until[row]:
            until = written(float(self.count_until[row]))
            why = "taken for probes, they woke it right after it fell asleep; then they are looked at anew"
            return (f"its regular requests count until {until}: {why}",)
        if np.isnan(self.period[row]):
            return ()
        every = f"one each {self.period[row]:.0f} s at the rarest"
        return (f"requests as regular as a clock, {every}, are taken for probes and keep nothing awake",)

    def _append(self, slot: int, before: float, at: float, rise: float) -> None:
        kept = self._kept[slot]
        total = self._rises[slot, kept - 1, 2] if kept else 0.0
        if kept == KEPT:
            self._rises[slot, :-1] = self._rises[slot, 1:]
            kept -= 1
        self._rises[slot, kept] = before, at, total + rise
        self._kept[slot] = kept + 1

    def _restart(self, slot: int) -> None:
        self._kept[slot] = self._clocks[slot] = 0

    def _is_activity(self, row: int, slot: int, rise: float) -> bool:
        kept = int(self._kept[slot])
        if kept < RISES:
            return True
        rises = self._rises[slot, :kept]
        span, requests = rises[-1, 1] - rises[0, 1], rises[-1, 2] - rises[0, 2]
        period = span / requests
        if not SHORTEST_S <= period <= self._periods[row]:
            self._clocks[slot] = 0
            return True
        clocks = int(self._clocks[slot])
        if clocks == 0:
            most = CLOCKS if kept >= MANY_RISES else CLOCKS - 1
            clocks = max(1, int(np.ceil(band(rises) - SLACK)))
            if clocks > most:
                return True
            self._clocks[slot] = clocks
        elif band(rises) > clocks + SLACK:
            # Of what rose, some was due. Without the rest the clocks go on; if they do not, they were none.
            for extra in range(1, int(rise) + 1):
                rises[-1, 2] -= 1.0
                if band(rises) <= clocks + SLACK or extra == rise:
                    break
            if band(rises) > clocks + SLACK:
                self._restart(slot)
            elif extra == rise:
                self._kept[slot] -= 1  # none of it was a probe
            return True
        schedule = ProbeSchedule(float(rises[-1, 0]), float(rises[-1, 1]), float(period) if clocks == 1 else 0.0)
        self._schedules.setdefault(row, {})[slot] = schedule
        slowest = clocks * period
        self.period[row] = slowest if np.isnan(self.period[row]) else max(self.period[row], slowest)
        return False


def band(rises: Floats) -> float:
    """Height of the lowest band around a straight line that holds all samples, in requests.

    rises: shape (rises, 3): the last sample before each (POSIX seconds), the first with it, and the count then. Before
    the first, nothing is known. It is an upper bound, by about a hundredth: slopes are tried, not solved for.
    """
    # A sample before a rise has the count of the rise before; of the first one that is not kept.
    times = np.concatenate([rises[:, 1], rises[1:, 0]]) - rises[0, 1]
    counts = np.concatenate([rises[:, 2], rises[:-1, 2]])
    known = ~np.isnan(times)
    times, counts = times[known], counts[known]
    mean = (rises[-1, 2] - rises[0, 2]) / (rises[-1, 1] - rises[0, 1])
    low, high, best = 0.8 * mean, 1.2 * mean, np.inf
    for _ in range(2):
        slopes = np.linspace(low, high, SLOPES)
        away = counts - slopes[:, None] * times
        heights = away.max(axis=1) - away.min(axis=1)
        place = int(heights.argmin())
        best = min(best, float(heights[place]))
        step = slopes[1] - slopes[0]
        low, high = slopes[place] - step, slopes[place] + step
    return best

"""Chooses how long an idle workload is kept warm, and when it is started in advance, from its rests. Pure.

While too little is known the rule is that of ski rental (`break_even`), which never costs more than twice as much as a
decision that knows the length of the rest. An estimated schedule is only tried on credit. A workload begins with the
worth of `CREDIT` starts; a rest that cost less than under the rule adds the difference, one that cost more takes it
away; and each rest adds `DRIP` of its cost under the rule, so that a workload without credit may try again. A schedule
is only chosen if the worst that it can do to the next rest is within the credit (`worst_regret`), so the credit never
falls below zero. Therefore, whatever the rests are, over any number of them:

    cost <= (1 + DRIP) * cost under the rule + CREDIT starts <= 2.2 * clairvoyant cost + 3 starts

and, because no more than `MOST_CREDIT` starts are ever saved up, the same holds from any moment on with 10 for 3. The
price of waiting may differ from pause to pause: each counts at its own, and the starts at the first one. The second
step holds if the bounds `lowest` and `highest` leave the rule's window as it is. Until a start has been measured
nothing can be compared, and the configured constant holds.

For each keep-warm time at the edge of a bucket the expected cost over the histogram is computed twice: with and without
a start in advance. That start is placed as in the hybrid histogram policy of "Serverless in the Wild" (M. Shahrad et
al., USENIX ATC 2020, section 4): ready before the 5th percentile of the rests, given up after the 99th (or the 90th or
75th: one rest in ten may be a night). Two things differ. The percentiles are those of the rests that outlast the
keep-warm time, because by then the shorter ones are ruled out: a workload with a thousand pauses of seconds a day and
one of an hour each hour is predictable, once a pause is longer than seconds. And where the paper requires a coefficient
of variation, here the price decides: a wide histogram's window costs more than it saves. Its third branch, for rests
beyond the range of the histogram, is left out: the range is two half-lives, so of such rests never two count. Their
workload stays young, and the rule holds.

Costs are in the money of the prices; arrays may have any shapes that fit together.

Worked example: a start takes 75 s, a second of the replica's GPUs costs 1, a second of waiting 12. A start then costs
75 * (1 + 12) = 975, as much as 975 s of keeping warm: the break-even. A rest of an hour, slept through from second 300
on, costs 300 + 975 = 1275; kept warm to its end 3600; with its length known beforehand 975. After ten rests of 51
minutes, each with 975 s of GPU time for nothing, the workload sleeps at once, and is started three minutes before the
51 are over.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from exporter.model import Floats
from scaler.columns import Array, Columns, Mask, Rows, copy_into
from scaler.jit import FLOATS, NUMBER, in_place_kernel

from .histograms import HALF_LIFE_S, LONGEST_S, decayed_time, middles
from .idle_time import Gaps, IdleEnds

CREDIT, MOST_CREDIT, DRIP = 3.0, 10.0, 0.1
# A choice takes about 0.3 ms. If the prices of ten thousand workloads change, the choices are spread over ticks.
CHOICES = 64
DAY_S = 86400.0
# The highest plausible account, GPU-seconds or money: 30,000 GPUs for a thousand years.
MOST_ACCOUNT = 1e15

# The columns of an account: GPU time and money, as it was and as it would have been with the constant.
_ACCOUNT = 4
HEAD, TAILS = 0.05, (0.99, 0.9, 0.75)
# Shahrad et al. begin 10 % early and end 10 % late, over buckets of a minute. Ours are rounded outwards to buckets of
# 5 %; half a minute more is for the scrapes, which see both ends of a rest late.
MARGIN_S = 30.0
# With fewer rests (decayed) that were long enough to matter, no choice is made. Of ten, six or more come from the
# shortest quarter of the distribution, and so mislead, with a chance of 2 % (binomial).
YOUNG = 10.0
# … and so many must have outlasted the keep-warm time before their return is predicted: of five, the smallest and the
# largest enclose the next with probability 4/6.
FEWEST = 5.0
# A start may fail, and its GPU may be taken: no price covers that. So no GPU is given up for a sleep that is shorter
# than so many times the start that ends it.
SLEEP_TO_START = 10.0


class KeepWarmRules(NamedTuple):
    """The configuration, shape (rows,). Times in seconds.

    learns:   the keep-warm time is estimated, and the workload may sleep; for the others `constant` holds.
    constant: the keep-warm time that is not estimated, or not yet.
    lowest, highest: bounds of an estimated one.
    """

    learns: Mask
    constant: Floats
    lowest: Floats
    highest: Floats


class Saving(NamedTuple):
    """Per day, compared with the configured constant; negative is a loss, NaN not known yet, by column."""

    gpu_seconds: Floats  # of one replica, whatever GPUs it has
    money: Floats


class Stakes(NamedTuple):
    """The cost of a rest.

    start, lead: seconds a start takes: the mean, and to be safe (p90); NaN unknown.
    idle:        money per second that one replica is up, with all its GPUs.
    waiting:     money per second of a start that requests wait for: one client, or with an SLO those of `error_budget`.
    """

    start: Floats
    lead: Floats
    idle: Floats
    waiting: Floats


class IdlePlan(NamedTuple):
    """The schedule of a rest, in seconds since it began: up until `keep_warm`, then asleep; started at `prewarm_from`
    and kept up until `prewarm_until`, then asleep again. NaN in the latter two: no start in advance.
    """

    keep_warm: Floats
    prewarm_from: Floats
    prewarm_until: Floats


_SERIES = types.Array(types.float64, 1, "C")
_MASK = types.Array(types.bool_, 1, "A", readonly=True)


@in_place_kernel(types.int64(types.bool_[::1], _MASK, *4 * (FLOATS,), *4 * (FLOATS,)))
def _find_due(
    due: Mask,
    learns: Mask,
    last_start: Floats,
    last_lead: Floats,
    last_idle: Floats,
    last_waiting: Floats,
    start: Floats,
    lead: Floats,
    idle: Floats,
    waiting: Floats,
) -> int:
    """Marks the workloads of which the stakes have changed, and none of which they are not known. Returns the number.

    last_...: the stakes that the schedule was chosen with; NaN, which is unequal to all, before the first.
    """
    count = 0
    for i in range(due.shape[0]):
        measured = np.isfinite(start[i] + lead[i] + idle[i] + waiting[i]) and idle[i] > 0.0 and start[i] > 0.0
        changed = last_start[i] != start[i] or last_lead[i] != lead[i]
        changed = changed or last_idle[i] != idle[i] or last_waiting[i] != waiting[i]
        due[i] = (due[i] or changed) and learns[i] and measured
        count += due[i]
    return count


@in_place_kernel(types.void(*5 * (FLOATS,), _MASK, NUMBER, types.bool_[::1], _SERIES))
def _at(
    keep_warm: Floats,
    prewarm_from: Floats,
    prewarm_until: Floats,
    lowest: Floats,
    idle_since: Floats,
    sleeps: Mask,
    now: float,
    expected: Mask,
    window: Floats,
) -> None:
    """After a start in advance without a request a workload sleeps at once, not after the keep-warm time."""
    for i in range(expected.shape[0]):
        rested = now - idle_since[i]
        expected[i] = sleeps[i] and rested >= prewarm_from[i] and rested < prewarm_until[i]
        window[i] = lowest[i] if rested >= prewarm_until[i] else keep_warm[i]


class KeepWarm:
    """The schedules of a fixed list of workloads, with the account and the credit of each.

    schedule: that of the present rest; without estimates the constant, and no start in advance.
    """

    def __init__(self, rules: KeepWarmRules, *, half_life: float = HALF_LIFE_S) -> None:
        rows = len(rules.constant)
        self._rules, self._half_life = rules, half_life
        self.schedule = IdlePlan(rules.constant.copy(), np.full(rows, np.nan), np.full(rows, np.nan))
        self._stakes = Stakes(*(np.full(rows, np.nan) for _ in Stakes._fields))  # that the schedule was chosen with
        self._credit: Floats = np.full(rows, np.nan)  # money
        self._account: Floats = np.zeros((rows, _ACCOUNT))  # decayed, as of `at`
        self._opened: Floats = np.full(rows, np.nan)
        self._at: Floats = np.full(rows, np.nan)
        self._due: Mask = np.zeros(rows, dtype=np.bool_)  # waits for its choice
        self._turn = 0  # the row to begin with, so that the first ones do not always come first

    def learn(self, ended: IdleEnds, gaps: Gaps, stakes: Stakes, now: float) -> None:
        """Settles the cost of rests that ended, and chooses the next schedules.

        stakes: of all workloads, shape (rows,). If they have changed, a schedule is chosen anew, rest or no rest. At
        most CHOICES are made, in turn; the other workloads keep their schedule until one of the next calls.
        """
        rules = self._rules
        if len(ended.rows):  # not so in most calls
            self._settle(ended, now)
            # A rest that was shorter than any keep-warm time costs the same under every schedule.
            self._due[ended.rows[ended.lengths >= rules.lowest[ended.rows]]] = True
        if _find_due(self._due, rules.learns, *self._stakes, *stakes):
            rows = np.flatnonzero(self._due)
            rows = np.roll(rows, -np.searchsorted(rows, self._turn))[:CHOICES]
            self._due[rows], self._turn = False, int(rows[-1]) + 1
            self._choose(rows, gaps, Stakes(*(column[rows] for column in stakes)), now)

    def _choose(self, rows: Rows, gaps: Gaps, stakes: Stakes, now: float) -> None:
        one = start_cost(stakes)
        credit = self._credit[rows]
        self._credit[rows] = np.minimum(np.where(np.isnan(credit), CREDIT * one, credit), MOST_CREDIT * one)
        histograms = gaps.histograms
        chosen = choose(
            histograms.shares(rows),
            histograms.weight(now, rows),
            histograms.edges,
            stakes,
            self._rules.lowest[rows],
            self._rules.highest[rows],
            self._credit[rows],
        )
        for column, new in zip((*self.schedule, *self._stakes), (*chosen, *stakes), strict=True):
            column[rows] = new

    def _settle(self, ended: IdleEnds, now: float) -> None:
        measured = np.isfinite(self._stakes.start[ended.rows])
        rows, rests = ended.rows[measured], ended.lengths[measured]
        if not len(rows):
            return
        stakes = Stakes(*(column[rows] for column in self._stakes))
        schedule = IdlePlan(*(column[rows] for column in self.schedule))
        constant = kept_warm(self._rules.constant[rows])
        rule = kept_warm(break_even_within(stakes, self._rules.lowest[rows], self._rules.highest[rows]))
        paid, by_rule = cost(rests, schedule, stakes), cost(rests, rule, stakes)
        self._credit[rows] += (1.0 + DRIP) * by_rule - paid
        entry = (
            up_seconds(rests, schedule, stakes),
            up_seconds(rests, constant, stakes),
            paid,
            cost(rests, constant, stakes),
        )
        self._account[rows] *= self._faded(rows, now)[:, None]
        self._account[rows] += np.stack(entry, axis=1)
        self._at[rows] = now
        # The rest is part of the time of the account.
        self._opened[rows] = np.fmin(self._opened[rows], now - rests)

    def _faded(self, rows: Rows, now: float) -> Floats:
        return np.nan_to_num(2.0 ** -((now - self._at[rows]) / self._half_life))

    def at(self, idle_since: Floats, sleeps: Mask, now: float) -> tuple[Mask, Floats]:
        """Which workloads rest and are expected back, so that they must be up, and the seconds idle before zero.

        idle_since: POSIX seconds; NaN while there is demand. sleeps: which may go to zero. Both of shape (rows,).
        """
        expected, window = np.empty(len(idle_since), dtype=np.bool_), np.empty(len(idle_since))
        _at(*self.schedule, self._rules.lowest, idle_since, sleeps, now, expected, window)
        return expected, window

    def saving(self, rows: Rows, now: float) -> Saving:
        """The measured savings of these workloads. Rests in the last half-life count most."""
        fills = decayed_time(now - self._opened[rows], self._half_life)
        per_day = self._account[rows] * (self._faded(rows, now) / fills * DAY_S)[:, None]
        return Saving(per_day[:, 1] - per_day[:, 0], per_day[:, 3] - per_day[:, 2])

    def columns(self) -> dict[str, Array]:
        """The state that a checkpoint keeps, one slot per workload."""
        parts = {
            "credit": self._credit,
            "account": self._account,
            "opened_at": self._opened,
            "at": self._at,
            # Seconds since a rest began, not POSIX seconds, which a name that ends in `until` has (scaler.columns).
            **{f"{name}_s": column for name, column in self.schedule._asdict().items()},
            **self._stakes._asdict(),
        }
        return {f"keepwarm.{name}": column for name, column in parts.items()}

    def take(self, columns: Columns, rows: Rows, source_rows: Rows) -> None:
        """Copies state from `columns[source_rows]` into `rows`, pairwise, of workloads with estimates."""
        rows, source_rows = rows[self._rules.learns[rows]], source_rows[self._rules.learns[rows]]
        copy_into(self.columns(), columns, rows, source_rows)
        self._make_sound(rows)
        # The bounds may have been others when it was chosen: rule and credit hold from the next rest on.
        lowest, highest = self._rules.lowest[rows], self._rules.highest[rows]
        measured = np.isfinite(self._stakes.start[rows] + self.schedule.keep_warm[rows])
        kept = self.schedule.keep_warm
        kept[rows] = np.where(measured, np.clip(kept[rows], lowest, highest), self._rules.constant[rows])

    def _make_sound(self, rows: Rows) -> None:
        """Resets impossible values: a credit is never below 0, and an account has no unknown part."""
        self._credit[rows] = np.where(self._credit[rows] >= 0.0, self._credit[rows], np.nan)
        account = self._account[rows]
        wrong = ~((account >= 0.0) & (account <= MOST_ACCOUNT)).all(axis=1) | ~(self._opened[rows] < self._at[rows])
        self._account[rows[wrong]] = 0.0
        self._at[rows[wrong]] = self._opened[rows[wrong]] = np.nan
        stakes = np.stack([column[rows] for column in self._stakes])
        unusable = rows[~((stakes >= 0.0) & (stakes <= MOST_ACCOUNT)).all(axis=0)]
        for column in self._stakes:
            column[unusable] = np.nan  # as before the first start: chosen anew
        begins, ends = self.schedule.prewarm_from[rows], self.schedule.prewarm_until[rows]
        never = rows[~((begins >= 0.0) & (begins <= ends) & (ends <= LONGEST_S))]
        self.schedule.prewarm_from[never] = self.schedule.prewarm_until[never] = np.nan


def break_even_within(stakes: Stakes, lowest: Floats, highest: Floats) -> Floats:
    """The keep-warm time of ski rental, within bounds."""
    return np.clip(break_even(stakes), lowest, highest)


def choose(
    shares: Floats, weight: Floats, edges: Floats, stakes: Stakes, lowest: Floats, highest: Floats, budget: Floats
) -> IdlePlan:
    """The schedule of the least expected cost, per row.

    shares:  shape (rows, buckets), the part of the rests in each bucket. weight: the number of rests.
    edges:   where buckets begin, seconds, shape (buckets,).
    lowest, highest: seconds, bounds of the keep-warm time, and `highest` of a window kept up in advance.
    budget:  money that the next rest may at most cost more than under the ski-rental rule (`worst_regret`).
    If too little is known it is that rule.
    """
    rows = len(shares)
    rule = break_even_within(stakes, lowest, highest)
    wide = Stakes(*(column[:, None] for column in stakes))
    # The shortest, every edge within the bounds, and the rule's own window last.
    between = edges[(edges > lowest.min()) & (edges < highest.max())]
    inside = np.clip(between[None, :], lowest[:, None], highest[:, None])
    windows = np.concatenate([lowest[:, None], inside, rule[:, None]], axis=1)
    running = _Running(np.nan_to_num(shares), edges)

    plain, below = running.cost_of_sleeping(windows, wide)
    options = [
        kept_warm(windows),
        *(_in_advance(running, windows, below, tail, weight, wide, highest) for tail in TAILS),
    ]
    costs = [plain, *(plain - running.saved_by(option, wide) for option in options[1:])]
    for option, expected in zip(options, costs, strict=True):
        affordable = worst_regret(option, rule[:, None], wide) <= budget[:, None]
        expected[~affordable | np.isnan(expected)] = np.inf
    every, by_rule = np.concatenate(costs, axis=1), plain[:, -1]
    young = weight * (1.0 - running.below(lowest[:, None])[:, 0]) < YOUNG

    # A tie is no reason to leave the rule.
    best = np.where(young | ~(every.min(axis=1) < by_rule), windows.shape[1] - 1, every.argmin(axis=1))
    return IdlePlan(*(np.concatenate(parts, axis=1)[np.arange(rows), best] for parts in zip(*options, strict=True)))


def _in_advance(
    running: _Running, windows: Floats, below: Floats, tail: float, weight: Floats, stakes: Stakes, highest: Floats
) -> IdlePlan:
    """The start in advance for each keep-warm time; NaN without one."""
    outlast = 1.0 - below
    ready = running.bucket_begin(below + HEAD * outlast) - MARGIN_S
    until = running.bucket_end(below + tail * outlast) + MARGIN_S
    begin = ready - stakes.lead
    sound = (begin - windows >= SLEEP_TO_START * stakes.lead) & (until - begin <= highest[:, None])
    sound &= outlast * weight[:, None] >= FEWEST
    return IdlePlan(windows, np.where(sound, begin, np.nan), np.where(sound, until, np.nan))


class _Running:
    """The running sums of histograms: how many rests are below a time, and how long those are together.

    None of a bucket is below a time inside it. A rest counts with the middle of its bucket, one of the open last bucket
    with its beginning.
    """

    def __init__(self, shares: Floats, edges: Floats) -> None:
        nothing = np.zeros((len(shares), 1))
        self._edges = edges
        self._mass = np.concatenate([nothing, shares.cumsum(axis=1)], axis=1)
        self._time = np.concatenate([nothing, (shares * middles(edges)).cumsum(axis=1)], axis=1)

    def _bucket(self, times: Floats) -> Rows:
        return np.maximum(np.searchsorted(self._edges, np.nan_to_num(times), side="right") - 1, 0)

    def below(self, times: Floats) -> Floats:
        """The part of the rests that ends before such times, shape (rows, times)."""
        return np.take_along_axis(self._mass, self._bucket(times), axis=1)

    def _time_below(self, times: Floats) -> Floats:
        return np.take_along_axis(self._time, self._bucket(times), axis=1)

    def bucket_begin(self, parts: Floats) -> Floats:
        """The beginning of the bucket in which this part of the rests is reached."""
        return self._edges[self._reached(parts)]

    def bucket_end(self, parts: Floats) -> Floats:
        return self._edges[np.minimum(self._reached(parts) + 1, len(self._edges) - 1)]

    def _reached(self, parts: Floats) -> Rows:
        # One search in all rows at once: each row's sums, from 0 to 1, are lifted above those of the row before.
        lift = 2.0 * np.arange(len(parts))[:, None]
        running = (self._mass[:, 1:] + lift).ravel()
        found = np.searchsorted(running, (parts - 1e-9 + lift).ravel()).reshape(parts.shape)
        width = self._mass.shape[1] - 1
        found -= width * np.arange(len(parts))[:, None]
        return np.asarray(np.clip(found, 0, width - 1), dtype=np.int64)

    def cost_of_sleeping(self, windows: Floats, stakes: Stakes) -> tuple[Floats, Floats]:
        """Expected cost of a rest that is kept warm for such times and then slept through, and the part below them."""
        below = self.below(windows)
        warm = self._time_below(windows) + windows * (1.0 - below)
        return warm * stakes.idle + (1.0 - below) * start_cost(stakes), below

    def saved_by(self, advance: IdlePlan, stakes: Stakes) -> Floats:
        """The expected saving of a start in advance; NaN without one."""
        begin, until = advance.prewarm_from, advance.prewarm_until
        ready = begin + stakes.start
        p_begin, p_ready, p_until = self.below(begin), self.below(ready), self.below(until)
        t_begin, t_ready, t_until = self._time_below(begin), self._time_below(ready), self._time_below(until)
        still_starting, in_time, missed = p_ready - p_begin, p_until - p_ready, 1.0 - p_until
        waited = still_starting * ready - (t_ready - t_begin)
        not_waited = (still_starting + in_time) * stakes.start - waited
        kept_up = t_until - t_ready - in_time * ready
        kept_up = kept_up + missed * (until - ready + stakes.start)
        return np.where(np.isnan(begin), np.nan, not_waited * stakes.waiting - kept_up * stakes.idle)


def kept_warm(seconds: Floats) -> IdlePlan:
    """A schedule without a start in advance."""
    nothing = np.full(np.shape(seconds), np.nan)
    return IdlePlan(np.asarray(seconds, dtype=np.float64), nothing, nothing)


def start_cost(stakes: Stakes) -> Floats:
    """The cost of one start that a request waits for: its GPU time and the wait."""
    return stakes.start * (stakes.idle + stakes.waiting)


def break_even(stakes: Stakes) -> Floats:
    """Seconds after which keeping warm has cost as much as a start: the keep-warm time of ski rental.

    It never costs more than twice as much as a decision that knows the length of the rest: a shorter rest costs both
    the same, and for a longer one both halves of the sum are the cost of a start (A. Karlin et al., "Competitive snoopy
    caching", Algorithmica 1988: no rule without a past does better).
    """
    return start_cost(stakes) / stakes.idle


def clairvoyant(rests: Floats, stakes: Stakes) -> Floats:
    """The cost of a rest with its length known when it begins: kept warm, or asleep at once."""
    return np.minimum(rests * stakes.idle, start_cost(stakes))


def up_seconds(rests: Floats, schedule: IdlePlan, stakes: Stakes) -> Floats:
    """Seconds that a replica is up in a rest, with its starts, the last of which ends the rest."""
    ready = schedule.prewarm_from + stakes.start
    slept = rests > schedule.keep_warm
    plain = np.minimum(rests, schedule.keep_warm) + np.where(slept, stakes.start, 0.0)
    met = rests >= schedule.prewarm_from  # not so where it is NaN
    in_advance = np.maximum(np.minimum(rests, schedule.prewarm_until) - ready, 0.0)
    # Given up before the rest ended: that start was for nothing, and there is one more.
    again = np.where(rests >= schedule.prewarm_until, stakes.start, 0.0)
    return plain + np.where(met & slept, in_advance + again, 0.0)


def waited_seconds(rests: Floats, schedule: IdlePlan, stakes: Stakes) -> Floats:
    """Seconds that the request which ends a rest waits for a start."""
    ready = schedule.prewarm_from + stakes.start
    met = (rests >= schedule.prewarm_from) & (rests < schedule.prewarm_until)
    left = np.where(met, np.maximum(ready - rests, 0.0), stakes.start)
    return np.where(rests > schedule.keep_warm, left, 0.0)


def cost(rests: Floats, schedule: IdlePlan, stakes: Stakes) -> Floats:
    """The cost of rests of such lengths (seconds) under a schedule."""
    return up_seconds(rests, schedule, stakes) * stakes.idle + waited_seconds(rests, schedule, stakes) * stakes.waiting


def worst_regret(schedule: IdlePlan, window: Floats, stakes: Stakes) -> Floats:
    """The most that a rest can cost more under `schedule` than if it were kept warm for `window` seconds.

    Kept warm for less: the cost of a start, if the rest ends just after it. For longer: the seconds beyond. A start in
    advance: all of it, if the rest does not end in it.
    """
    beyond = (schedule.keep_warm - window) * stakes.idle
    plain = np.where(schedule.keep_warm < window, start_cost(stakes), np.maximum(beyond, 0.0))
    advance = (schedule.prewarm_until - schedule.prewarm_from) * stakes.idle
    return plain + np.where(np.isnan(advance), 0.0, advance)

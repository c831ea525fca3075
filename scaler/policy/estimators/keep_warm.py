"""How long an idle workload is kept warm, and when it is started in advance: what its own rests say, under a guarantee.

It knows each workload's schedule, the account of what that has cost so far, and the credit it may risk. It refuses to
know how rests are seen and who carries the schedule out.

While too little is known the rule is that of ski rental (`stakes.break_even`), which never costs more than twice what
he pays who knows the rest's length beforehand. What was learned is only tried on credit. A workload begins with the
worth of `CREDIT` starts; a rest that cost less than under the rule adds the difference, one that cost more takes it
away; and each rest adds `DRIP` of what it costs under the rule, so that who has lost his credit may try again. A
schedule is only chosen if the worst that it can do to the next rest is within the credit (`stakes.worst_regret`), so
the credit never falls below zero. Therefore, whatever the rests are, over any number of them:

    cost <= (1 + DRIP) * cost under the rule + CREDIT starts <= 2.2 * clairvoyant cost + 3 starts

and, because no more than `MOST_CREDIT` starts are ever saved up, the same holds from any moment on with 10 for 3. The
second step holds where the bounds `lowest` and `highest` leave the rule's window as it is.

Until a start has been measured nothing can be weighed, and the constant of the configuration holds.

Worked example: a start takes 75 s and waiting costs 12 times a GPU: the window is 75 * 13 = 975 s. After ten rests of
51 minutes, each of which cost 975 s of GPU time for nothing, it sleeps at once, and is started three minutes before the
51 are over.

From the rests that were seen to the schedule that would have cost least, within a bound on what it may risk.

Of each length of keeping warm that falls between two buckets the expected cost over the histogram is reckoned twice:
with and without a start in advance of the return. That start is placed as in the hybrid histogram policy of "Serverless
in the Wild" (M. Shahrad et al., USENIX ATC 2020, section 4): ready before the 5th percentile of the rests, given up
after the 99th (or the 90th or 75th: one rest in ten may be a night). Two things differ. The percentiles are those of
the rests that outlast the keep-warm time, because by then the shorter ones are ruled out: a workload with a thousand
pauses of seconds a day and one of an hour each hour is predictable, once a pause is longer than seconds. And where the
paper asks for a coefficient of variation before it trusts the histogram, here the price decides: a wide histogram's
window costs more than it saves.

Its third branch, for workloads most of whose rests are beyond the histogram's range, is left out: the range is two
weeks, which is two half-lives, so of such rests never two are remembered. Their workload stays young, and is ruled as
such.

Worked example: 20 rests of 20 s and 10 of 51 min; a start takes 75 s, waiting costs 12 times a GPU. To keep warm past
20 s buys nothing for 50 min, so it sleeps after the least time allowed, starts again after 47 min and is given up after
54: 7 min of a GPU instead of 75 s of somebody's life at 12 times the price.

What a rest costs: GPU time while it is kept warm, and a start and somebody who waits for it if it was not.

It knows the arithmetic of one rest under one schedule, and the two rules that need no past. It refuses to know how long
rests are. Everything is by column, of any shape that fits together; costs are in the money of the prices.

Worked example: a start takes 75 s, a second of the replica's GPUs costs 1, a second of somebody waiting 12. A start
then costs 75 * (1 + 12) = 975, which is what 975 s of keeping warm cost: the break-even. Slept through from second 300
on, a rest of an hour costs 300 + 975 = 1275; kept warm to its end 3600; knowing it beforehand 975.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from exporter.model import Floats
from scaler.columns import Array, Columns, Mask, Rows, copy_into

from .idle_time import HALF_LIFE_S, LONGEST_S, Gaps, IdleEnds

CREDIT, MOST_CREDIT, DRIP = 3.0, 10.0, 0.1
# A choice takes about 0.3 ms. Ten thousand workloads whose prices change are not all chosen for in one tick.
CHOICES = 64
DAY_S = 86400.0
# Of an account, GPU-seconds or money: 30,000 GPUs for a thousand years.
MOST_ACCOUNT = 1e15

# What an account has: GPU time and money, as it was and as it would have been with the constant.
_ACCOUNT = 4


class KeepWarmRules(NamedTuple):
    """What the configuration says, shape (rows,). Times in seconds.

    learns:   the window is to be learned, and it may sleep; of the others `constant` is all there is.
    constant: the window where it is not learned, or not yet.
    lowest, highest: bounds of a learned one.
    """

    learns: Mask
    constant: Floats
    lowest: Floats
    highest: Floats


class Saving(NamedTuple):
    """Per day against the constant of the configuration; negative is a loss, NaN not known yet, by column."""

    gpu_seconds: Floats  # of one replica, whatever GPUs it has
    money: Floats


class KeepWarm:
    """schedule: what holds now; of who does not learn it is the constant, and no start in advance."""

    def __init__(self, rules: KeepWarmRules, *, half_life: float = HALF_LIFE_S) -> None:
        rows = len(rules.constant)
        self._rules, self._half_life = rules, half_life
        self.schedule = IdlePlan(rules.constant.copy(), np.full(rows, np.nan), np.full(rows, np.nan))
        self._stakes = Stakes(*(np.full(rows, np.nan) for _ in Stakes._fields))  # those of the schedule
        self._credit: Floats = np.full(rows, np.nan)  # money
        self._account: Floats = np.zeros((rows, _ACCOUNT))  # decayed, as of `at`
        self._opened: Floats = np.full(rows, np.nan)
        self._at: Floats = np.full(rows, np.nan)
        self._due: Mask = np.zeros(rows, dtype=np.bool_)  # waits for its choice
        self._turn = 0  # from here on, so that the first do not always come first

    def learn(self, ended: IdleEnds, gaps: Gaps, stakes: Stakes, now: float) -> None:
        """Rests have ended: what they cost under the schedule is settled, and the next schedule is chosen.

        stakes: of all workloads, shape (rows,). For whom they have changed is chosen anew, rest or no rest. At most
        CHOICES are made, in turn; who is left over keeps the schedule until one of the next calls.
        """
        rules = self._rules
        measured = rules.learns & np.isfinite(stakes.start + stakes.lead + stakes.idle + stakes.waiting)
        measured &= (stakes.idle > 0.0) & (stakes.start > 0.0)
        self._settle(ended, now)
        self._due |= np.logical_or.reduce(
            [old != new for old, new in zip(self._stakes, stakes, strict=True)]  # NaN is unequal to all: the first time
        )
        # A rest that was shorter than any window costs the same whatever is chosen.
        self._due[ended.rows[ended.lengths >= rules.lowest[ended.rows]]] = True
        self._due &= measured
        rows = np.flatnonzero(self._due)
        rows = np.roll(rows, -np.searchsorted(rows, self._turn))[:CHOICES]
        if len(rows):
            self._due[rows], self._turn = False, int(rows[-1]) + 1
            self._choose(rows, gaps, Stakes(*(column[rows] for column in stakes)), now)

    def _choose(self, rows: Rows, gaps: Gaps, stakes: Stakes, now: float) -> None:
        one = start_cost(stakes)
        credit = self._credit[rows]
        self._credit[rows] = np.minimum(np.where(np.isnan(credit), CREDIT * one, credit), MOST_CREDIT * one)
        seen = gaps.histograms
        chosen = choose(
            seen.shares(rows),
            seen.weight(now, rows),
            seen.edges,
            stakes,
            self._rules.lowest[rows],
            self._rules.highest[rows],
            self._credit[rows],
        )
        for mine, new in zip((*self.schedule, *self._stakes), (*chosen, *stakes), strict=True):
            mine[rows] = new

    def _settle(self, ended: IdleEnds, now: float) -> None:
        known = np.isfinite(self._stakes.start[ended.rows])
        rows, rests = ended.rows[known], ended.lengths[known]
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
        # The rest itself is part of the time that the account speaks of.
        self._opened[rows] = np.fmin(self._opened[rows], now - rests)

    def _faded(self, rows: Rows, now: float) -> Floats:
        return np.nan_to_num(2.0 ** -((now - self._at[rows]) / self._half_life))

    def window(self, idle_since: Floats, now: float) -> Floats:
        """Seconds idle before zero, shape (rows,). idle_since: POSIX seconds since when nobody asks; NaN: one does.

        A start in advance that nobody came for is over when it is: it is idle from when it was ready, and is not kept
        warm for the whole time again.
        """
        given_up = now - idle_since >= self.schedule.prewarm_until
        return np.where(given_up, self._rules.lowest, self.schedule.keep_warm)

    def expects(self, idle_since: Floats, now: float) -> Mask:
        """Whose return is due: it is to be up, though nothing asks for it. idle_since: as for `window`."""
        rested = now - idle_since
        return np.asarray((rested >= self.schedule.prewarm_from) & (rested < self.schedule.prewarm_until))

    def saving(self, now: float) -> Saving:
        """Of all workloads: what has been saved in truth, not what was hoped for: each rest was reckoned with what was
        known before it.

        Rests in the last half-life count most. The sum of something that comes at a steady rate and fades with that
        half-life is rate * half_life / ln 2 * (1 - 2**(-time / half_life)) after such a time.
        """
        fills = self._half_life / np.log(2.0) * (1.0 - 2.0 ** -((now - self._opened) / self._half_life))
        per_day = self._account * (self._faded(np.arange(len(self._at)), now) / fills * DAY_S)[:, None]
        return Saving(per_day[:, 1] - per_day[:, 0], per_day[:, 3] - per_day[:, 2])

    def columns(self) -> dict[str, Array]:
        """What must survive, one slot per workload."""
        parts = {
            "credit": self._credit,
            "account": self._account,
            "opened_at": self._opened,
            "at": self._at,
            # Seconds since a rest began, and no moments: `until` at a name's end would say so (scaler.columns).
            **{f"{name}_s": column for name, column in self.schedule._asdict().items()},
            **self._stakes._asdict(),
        }
        return {f"keepwarm.{name}": column for name, column in parts.items()}

    def take(self, columns: Columns, rows: Rows, others: Rows) -> None:
        """Own `rows` from the slots `others` of somebody's columns; who does not learn takes no schedule."""
        rows, others = rows[self._rules.learns[rows]], others[self._rules.learns[rows]]
        copy_into(self.columns(), columns, rows, others)
        self._make_sound(rows)
        # Under other bounds than these it was chosen: the rule and the credit say what is right from the next rest on.
        lowest, highest = self._rules.lowest[rows], self._rules.highest[rows]
        measured = np.isfinite(self._stakes.start[rows] + self.schedule.keep_warm[rows])
        kept = self.schedule.keep_warm
        kept[rows] = np.where(measured, np.clip(kept[rows], lowest, highest), self._rules.constant[rows])

    def _make_sound(self, rows: Rows) -> None:
        """Reset what cannot have been learned: a credit is never below 0, and an account has no unknown part."""
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


HEAD, TAILS = 0.05, (0.99, 0.9, 0.75)
# Shahrad et al. begin 10 % early and end 10 % late, over buckets of a minute. Ours are rounded outwards to buckets of
# 5 %; half a minute more is for the scrapes, which see both ends of a rest late.
MARGIN_S = 30.0
# Below so many rests (decayed) that were long enough to matter, no choice is made. Of ten, six or more come from the
# shortest quarter of what there is with a chance of 2 % (binomial), and so mislead.
YOUNG = 10.0
# … and so many must have outlasted the keep-warm time before their return is predicted: of five, the smallest and the
# largest enclose the next with probability 4/6.
FEWEST = 5.0
# A start may fail, and its GPU may be gone to somebody else: no price says how dear that is, so no GPU is given up for
# a sleep that is not worth it, so many times as long as the start that ends it.
SLEEP_TO_START = 10.0


def break_even_within(stakes: Stakes, lowest: Floats, highest: Floats) -> Floats:
    """The ski-rental window, within bounds."""
    return np.clip(break_even(stakes), lowest, highest)


def choose(
    shares: Floats, weight: Floats, edges: Floats, stakes: Stakes, lowest: Floats, highest: Floats, budget: Floats
) -> IdlePlan:
    """The schedule of the least expected cost, per row.

    shares:  shape (rows, buckets), what part of the rests each bucket holds. weight: how many rests there are.
    edges:   where buckets begin, seconds, shape (buckets,).
    lowest, highest: seconds, bounds of the keep-warm time, and `highest` of a window kept up in advance.
    budget:  money that the next rest may at most cost more than under the ski-rental rule: `worst_regret` stays within.
    Where too little is known it is that rule.
    """
    rows = len(shares)
    rule = break_even_within(stakes, lowest, highest)
    wide = Stakes(*(column[:, None] for column in stakes))
    # The shortest, every edge within the bounds, and the rule's own window last.
    between = edges[(edges > lowest.min()) & (edges < highest.max())]
    inside = np.clip(between[None, :], lowest[:, None], highest[:, None])
    windows = np.concatenate([lowest[:, None], inside, rule[:, None]], axis=1)
    seen = _Running(np.nan_to_num(shares), edges)

    plain, below = seen.cost_of_sleeping(windows, wide)
    options = [kept_warm(windows), *(_in_advance(seen, windows, below, tail, weight, wide, highest) for tail in TAILS)]
    costs = [plain, *(plain - seen.saved_by(option, wide) for option in options[1:])]
    for option, expected in zip(options, costs, strict=True):
        affordable = worst_regret(option, rule[:, None], wide) <= budget[:, None]
        expected[~affordable | np.isnan(expected)] = np.inf
    every, by_rule = np.concatenate(costs, axis=1), plain[:, -1]
    young = weight * (1.0 - seen.below(lowest[:, None])[:, 0]) < YOUNG

    # A tie is no reason to leave the rule.
    best = np.where(young | ~(every.min(axis=1) < by_rule), windows.shape[1] - 1, every.argmin(axis=1))
    return IdlePlan(*(np.concatenate(parts, axis=1)[np.arange(rows), best] for parts in zip(*options, strict=True)))


def _in_advance(
    seen: _Running, windows: Floats, below: Floats, tail: float, weight: Floats, stakes: Stakes, highest: Floats
) -> IdlePlan:
    """The start in advance that goes with each keep-warm time; NaN where none does."""
    outlast = 1.0 - below
    ready = seen.bucket_begin(below + HEAD * outlast) - MARGIN_S
    until = seen.bucket_end(below + tail * outlast) + MARGIN_S
    begin = ready - stakes.lead
    sound = (begin - windows >= SLEEP_TO_START * stakes.lead) & (until - begin <= highest[:, None])
    sound &= outlast * weight[:, None] >= FEWEST
    return IdlePlan(windows, np.where(sound, begin, np.nan), np.where(sound, until, np.nan))


class _Running:
    """Histograms' running sums: how many rests are below a time, and how long those are together.

    A time inside a bucket has none of that bucket below it; a rest counts as long as the middle of its bucket, those of
    the open last one as long as its beginning.
    """

    def __init__(self, shares: Floats, edges: Floats) -> None:
        middles = np.append((edges[:-1] + edges[1:]) / 2.0, edges[-1])
        nothing = np.zeros((len(shares), 1))
        self._edges = edges
        self._mass = np.concatenate([nothing, shares.cumsum(axis=1)], axis=1)
        self._time = np.concatenate([nothing, (shares * middles).cumsum(axis=1)], axis=1)

    def _place(self, times: Floats) -> Rows:
        return np.maximum(np.searchsorted(self._edges, np.nan_to_num(times), side="right") - 1, 0)

    def below(self, times: Floats) -> Floats:
        """Which part of the rests ends before such times, shape (rows, times)."""
        return np.take_along_axis(self._mass, self._place(times), axis=1)

    def _time_below(self, times: Floats) -> Floats:
        return np.take_along_axis(self._time, self._place(times), axis=1)

    def bucket_begin(self, parts: Floats) -> Floats:
        """Where the bucket begins in which so great a part of the rests is reached."""
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
        """Expected cost of a rest that is kept warm for such times and then slept through; and the part below them."""
        below = self.below(windows)
        warm = self._time_below(windows) + windows * (1.0 - below)
        return warm * stakes.idle + (1.0 - below) * start_cost(stakes), below

    def saved_by(self, advance: IdlePlan, stakes: Stakes) -> Floats:
        """What a start in advance is expected to save of that; NaN where there is none."""
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


class Stakes(NamedTuple):
    """start, lead: seconds a start takes: as a rule (p50), and to be on the safe side (p90); NaN unknown.
    idle:        money per second that one replica is up, with all its GPUs.
    waiting:     money per second that a request waits for a start.
    """

    start: Floats
    lead: Floats
    idle: Floats
    waiting: Floats


class IdlePlan(NamedTuple):
    """What is done in a rest, in seconds since it began: up until `keep_warm`, then asleep; started at `prewarm_from`
    and kept up until `prewarm_until`, then asleep again. NaN in the latter two: it is not started in advance.
    """

    keep_warm: Floats
    prewarm_from: Floats
    prewarm_until: Floats


def kept_warm(seconds: Floats) -> IdlePlan:
    """Up for so long, and nothing else."""
    nothing = np.full(np.shape(seconds), np.nan)
    return IdlePlan(np.asarray(seconds, dtype=np.float64), nothing, nothing)


def start_cost(stakes: Stakes) -> Floats:
    """Of one start that somebody waits for: its GPU time and the wait."""
    return stakes.start * (stakes.idle + stakes.waiting)


def break_even(stakes: Stakes) -> Floats:
    """Seconds after which keeping warm has cost as much as a start: the ski-rental rule's window.

    Who keeps warm for just so long never pays more than twice what it would have cost knowing the rest's length
    beforehand: a shorter rest costs both the same, and of a longer one both halves of the sum are what a start costs
    (A. Karlin et al., "Competitive snoopy caching", Algorithmica 1988: no rule without a past does better).
    """
    return start_cost(stakes) / stakes.idle


def clairvoyant(rests: Floats, stakes: Stakes) -> Floats:
    """What a rest costs him who knows its length when it begins, and keeps warm or sleeps at once."""
    return np.minimum(rests * stakes.idle, start_cost(stakes))


def up_seconds(rests: Floats, schedule: IdlePlan, stakes: Stakes) -> Floats:
    """For how long a replica is up in a rest, its starts included, the last of which ends the rest."""
    ready = schedule.prewarm_from + stakes.start
    slept = rests > schedule.keep_warm
    plain = np.minimum(rests, schedule.keep_warm) + np.where(slept, stakes.start, 0.0)
    met = rests >= schedule.prewarm_from  # not so where it is NaN
    in_advance = np.maximum(np.minimum(rests, schedule.prewarm_until) - ready, 0.0)
    # Given up before the rest ended: that start was for nothing, and there is one more.
    again = np.where(rests >= schedule.prewarm_until, stakes.start, 0.0)
    return plain + np.where(met & slept, in_advance + again, 0.0)


def waited_seconds(rests: Floats, schedule: IdlePlan, stakes: Stakes) -> Floats:
    """For how long the request that ends a rest waits for a start."""
    ready = schedule.prewarm_from + stakes.start
    met = (rests >= schedule.prewarm_from) & (rests < schedule.prewarm_until)
    left = np.where(met, np.maximum(ready - rests, 0.0), stakes.start)
    return np.where(rests > schedule.keep_warm, left, 0.0)


def cost(rests: Floats, schedule: IdlePlan, stakes: Stakes) -> Floats:
    """What rests of such lengths (seconds) cost under a schedule."""
    return up_seconds(rests, schedule, stakes) * stakes.idle + waited_seconds(rests, schedule, stakes) * stakes.waiting


def worst_regret(schedule: IdlePlan, window: Floats, stakes: Stakes) -> Floats:
    """By how much a rest can at most cost more under `schedule` than if it were just kept warm for `window` seconds.

    Shorter than the window: it may end a moment after it was put to sleep, and a start is paid for nothing. Longer: the
    seconds beyond. A start in advance: all of it, if the rest does not end in it.
    """
    beyond = (schedule.keep_warm - window) * stakes.idle
    plain = np.where(schedule.keep_warm < window, start_cost(stakes), np.maximum(beyond, 0.0))
    advance = (schedule.prewarm_until - schedule.prewarm_from) * stakes.idle
    return plain + np.where(np.isnan(advance), 0.0, advance)

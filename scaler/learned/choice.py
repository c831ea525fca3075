"""From the rests that were seen to the schedule that would have cost least, within a bound on what it may risk.

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
"""

from __future__ import annotations

import numpy as np

from exporter.model import Floats

from ..slots import Rows
from .stakes import Schedule, Stakes, break_even, kept_warm, start_cost, worst_regret

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
) -> Schedule:
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
    return Schedule(*(np.concatenate(parts, axis=1)[np.arange(rows), best] for parts in zip(*options, strict=True)))


def _in_advance(
    seen: _Running, windows: Floats, below: Floats, tail: float, weight: Floats, stakes: Stakes, highest: Floats
) -> Schedule:
    """The start in advance that goes with each keep-warm time; NaN where none does."""
    outlast = 1.0 - below
    ready = seen.bucket_begin(below + HEAD * outlast) - MARGIN_S
    until = seen.bucket_end(below + tail * outlast) + MARGIN_S
    begin = ready - stakes.lead
    sound = (begin - windows >= SLEEP_TO_START * stakes.lead) & (until - begin <= highest[:, None])
    sound &= outlast * weight[:, None] >= FEWEST
    return Schedule(windows, np.where(sound, begin, np.nan), np.where(sound, until, np.nan))


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

    def saved_by(self, advance: Schedule, stakes: Stakes) -> Floats:
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

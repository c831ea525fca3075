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
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from exporter.model import Floats

from ..slots import Mask, Rows
from ..state import Array, Columns, copy_into
from . import stakes as reckon
from .choice import break_even_within, choose
from .gaps import HALF_LIFE_S, LONGEST_S, Ended, Gaps
from .stakes import Schedule, Stakes

CREDIT, MOST_CREDIT, DRIP = 3.0, 10.0, 0.1
# A choice takes about 0.3 ms. Ten thousand workloads whose prices change are not all chosen for in one tick.
CHOICES = 64
DAY_S = 86400.0
# Of an account, GPU-seconds or money: 30,000 GPUs for a thousand years.
MOST_ACCOUNT = 1e15

# What an account has: GPU time and money, as it was and as it would have been with the constant.
_ACCOUNT = 4


class Rules(NamedTuple):
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

    def __init__(self, rules: Rules, *, half_life: float = HALF_LIFE_S) -> None:
        rows = len(rules.constant)
        self._rules, self._half_life = rules, half_life
        self.schedule = Schedule(rules.constant.copy(), np.full(rows, np.nan), np.full(rows, np.nan))
        self._stakes = Stakes(*(np.full(rows, np.nan) for _ in Stakes._fields))  # those of the schedule
        self._credit: Floats = np.full(rows, np.nan)  # money
        self._account: Floats = np.zeros((rows, _ACCOUNT))  # decayed, as of `at`
        self._opened: Floats = np.full(rows, np.nan)
        self._at: Floats = np.full(rows, np.nan)
        self._due: Mask = np.zeros(rows, dtype=np.bool_)  # waits for its choice
        self._turn = 0  # from here on, so that the first do not always come first

    def learn(self, ended: Ended, gaps: Gaps, stakes: Stakes, now: float) -> None:
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
        one = reckon.start_cost(stakes)
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

    def _settle(self, ended: Ended, now: float) -> None:
        known = np.isfinite(self._stakes.start[ended.rows])
        rows, rests = ended.rows[known], ended.lengths[known]
        if not len(rows):
            return
        stakes = Stakes(*(column[rows] for column in self._stakes))
        schedule = Schedule(*(column[rows] for column in self.schedule))
        constant = reckon.kept_warm(self._rules.constant[rows])
        rule = reckon.kept_warm(break_even_within(stakes, self._rules.lowest[rows], self._rules.highest[rows]))
        paid, by_rule = reckon.cost(rests, schedule, stakes), reckon.cost(rests, rule, stakes)
        self._credit[rows] += (1.0 + DRIP) * by_rule - paid
        entry = (
            reckon.up_seconds(rests, schedule, stakes),
            reckon.up_seconds(rests, constant, stakes),
            paid,
            reckon.cost(rests, constant, stakes),
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
            # Seconds since a rest began, and no moments: `until` at a name's end would say so (scaler.state).
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

"""The books: seconds and GPU-seconds of each workload by state, and what an observed one would have had. Pure.

What is seen at a sweep stands until the next one. An account refuses to guess: a time in which nobody looked (a sweep
that is late by more than `gap_s`, a restart) is entered as `unknown`, with the GPUs that were last seen, and of more
than 30 days only 30: what is longer is a clock that was set forward. A clock that was set back is no time at all.

Each counter is kept twice. `kept` survives reloads and restarts, and a follower takes over the leader's: it is what
people are told. `shown` is what this process has entered while it led: it is what Prometheus is told, which takes a
counter that begins anew for what it is, and one that falls by a little for a leap of all that it had counted.

Worked example: two replicas of 8 GPUs each, one at work and one still loading, looked at for 10 s: 80 GPU-seconds
`serving` and 80 `loading`, and 10 seconds of the state `serving`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from exporter.model import Floats

from ..slots import Mask, Rows
from ..state import Array, Columns, copy_into, named
from .states import STATES, UNKNOWN, Codes

NOT_YET = -1
# Two replicas that count the same workload since the same moment have it a little apart, because their clocks are.
SAME_SINCE_S = 60.0
# A clock that says 1970 until NTP is heard would enter half a century, for good.
LONGEST_GAP_S = 30 * 86400.0
# Of any counter here: GPU-seconds of 30,000 GPUs in a thousand years, and a trillion tokens a second for an hour.
MOST_SUM = 1e15


class Moment(NamedTuple):
    """What is seen at a sweep, a slot per workload.

    state:  its code; NOT_YET before the first sweep.
    gpus:   shape (rows, len(STATES)); NaN where it is not known how many there are.
    each:   GPUs of one replica; NaN unknown.
    queued: requests that wait, in engines and at a gateway; NaN unknown.
    would:  replicas that Tidegate answers; NaN unknown.
    apart:  those of an observed workload, less what the cluster was told to run; NaN unknown, or not observed.
    up:     1 is: some replica is to run, 0 is none; NaN unknown.
    counts: the cluster has ever said how many are to run.
    """

    state: Codes
    gpus: Floats
    each: Floats
    queued: Floats
    would: Floats
    apart: Floats
    up: Floats
    counts: Mask

    @classmethod
    def blank(cls, rows: int) -> Moment:
        each, queued, would, apart, up = np.full((5, rows), np.nan)
        unseen, unknown = np.full(rows, NOT_YET, dtype=np.int64), np.full((rows, len(STATES)), np.nan)
        return cls(unseen, unknown, each, queued, would, apart, up, counts=np.zeros(rows, dtype=np.bool_))


class Sums(NamedTuple):
    """Counters, a slot per workload; they never fall. NaN is: it was never known, which is not 0.

    gpu_seconds, state_seconds: shape (rows, len(STATES)).
    wakes, sleeps: how often the cluster was told to run some replica after none, and none after some.
    requests, prompt, generated: finished requests and tokens that engines have counted.
    shadow:  seconds in which it was observed and both numbers were known. In those:
    saved, added: GPU-seconds that Tidegate would have held less, or more.
    queued:  request-seconds waited while Tidegate would have had more replicas.
    more, fewer: seconds in which it would have had more, or fewer.
    """

    gpu_seconds: Floats
    state_seconds: Floats
    wakes: Floats
    sleeps: Floats
    requests: Floats
    prompt: Floats
    generated: Floats
    shadow: Floats
    saved: Floats
    added: Floats
    queued: Floats
    more: Floats
    fewer: Floats

    @classmethod
    def blank(cls, rows: int) -> Sums:
        states = (rows, len(STATES))
        wakes, sleeps, shadow, more, fewer = np.zeros((5, rows))
        requests, prompt, generated, saved, added, queued = np.full((6, rows), np.nan)
        return cls(
            gpu_seconds=np.full(states, np.nan),
            state_seconds=np.zeros(states),
            wakes=wakes,
            sleeps=sleeps,
            requests=requests,
            prompt=prompt,
            generated=generated,
            shadow=shadow,
            saved=saved,
            added=added,
            queued=queued,
            more=more,
            fewer=fewer,
        )


class Books:
    """Of a fixed list of workloads. since: POSIX seconds when each began to be counted; NaN not yet."""

    def __init__(self, rows: int, gap_s: float) -> None:
        """gap_s: what is seen stands for so long; seconds after that nobody has looked."""
        self.since, self._swept_at = np.full((2, rows), np.nan)
        self.now = Moment.blank(rows)
        self.kept, self.shown = Sums.blank(rows), Sums.blank(rows)
        self._gap_s = gap_s

    def enter(self, moment: Moment, counted: Floats, now: float, *, leads: bool) -> None:
        """Enter the time since the last sweep, and remember what is seen at this one, `now` in POSIX seconds.

        counted: shape (rows, 3): requests, prompt tokens and generated tokens since the last sweep; NaN is not said.
        leads:   others are told what is entered now. Of several replicas of Tidegate one does, or sums would be double.
        """
        rise = self._risen(moment, counted, now)
        for sums in (self.kept, self.shown) if leads else (self.kept,):
            for total, more in zip(sums, rise, strict=True):
                np.add(np.where(np.isnan(total), 0.0, total), more, out=total, where=~np.isnan(more))
        self.since[:] = np.where(np.isnan(self.since), now, self.since)
        self._swept_at[:] = now
        self.now = moment

    def _risen(self, moment: Moment, counted: Floats, now: float) -> Sums:
        """What is to be added to each counter; NaN is: nothing is known of it."""
        before = self.now
        took = np.clip(np.nan_to_num(now - self._swept_at), 0.0, LONGEST_GAP_S)
        looked = took <= self._gap_s
        code = np.where(looked & (before.state != NOT_YET), before.state, UNKNOWN)
        seconds = np.zeros(before.gpus.shape)
        seconds[np.arange(len(code)), code] = took
        blind = np.zeros(before.gpus.shape)
        blind[:, UNKNOWN] = before.gpus.sum(axis=1)
        held = np.where(looked[:, None], before.gpus, np.where(np.isnan(before.gpus), np.nan, blind))
        compared = np.where(looked, before.apart, np.nan)
        apart, each = compared * took, before.each
        return Sums(
            gpu_seconds=held * took[:, None],
            state_seconds=seconds,
            wakes=((before.up == 0.0) & (moment.up == 1.0)).astype(float),
            sleeps=((before.up == 1.0) & (moment.up == 0.0)).astype(float),
            requests=counted[:, 0],
            prompt=counted[:, 1],
            generated=counted[:, 2],
            shadow=np.where(np.isnan(compared), 0.0, took),
            saved=np.maximum(-apart, 0.0) * each,
            added=np.maximum(apart, 0.0) * each,
            queued=np.where(compared > 0.0, before.queued, compared * 0.0) * took,
            more=np.where(compared > 0.0, took, 0.0),
            fewer=np.where(compared < 0.0, took, 0.0),
        )

    def columns(self) -> dict[str, Array]:
        """What survives, as `scaler.state` wants it; live."""
        return {**named("accounts", self._here()), **named("accounts.kept", self.kept._asdict())}

    def _here(self) -> dict[str, Array]:
        """The last sweep. `swept_at` and `since` are times, by their last words."""
        return {"since": self.since, "swept_at": self._swept_at, **self.now._asdict()}

    def take(self, columns: Columns, rows: Rows, others: Rows) -> None:
        """Go on in own `rows` from the slots `others` of somebody's books, where those are the longer ones.

        Of two that begin at the same time the own stay: nothing that was told may fall.
        """
        theirs = columns.get("accounts.since")
        if theirs is None or theirs.shape[1:] or theirs.dtype.kind != "f":
            return
        longer = np.isnan(self.since[rows]) | (theirs[others] < self.since[rows] - SAME_SINCE_S)
        longer &= ~np.isnan(theirs[others])
        copy_into(self.columns(), columns, rows[longer], others[longer])
        _make_sound(self.now, self.kept, rows[longer])

    def go_on(self, other: Books, rows: Rows, others: Rows) -> None:
        """Besides what was taken, in one process: what Prometheus is told goes on."""
        for mine, theirs in zip(self.shown, other.shown, strict=True):
            mine[rows] = theirs[others]


def _make_sound(moment: Moment, kept: Sums, rows: Rows) -> None:
    """A state that only the next version knows is unknown to this one; a number that cannot have been entered is none.

    All are counts or sums of what is not negative, but `apart`, which is a difference of two.
    """
    known = (moment.state[rows] >= NOT_YET) & (moment.state[rows] < len(STATES))
    moment.state[rows] = np.where(known, moment.state[rows], UNKNOWN)
    for columns, blanks in ((moment, Moment.blank(len(rows))), (kept, Sums.blank(len(rows)))):
        for (name, column), blank in zip(columns._asdict().items(), blanks, strict=True):
            if column.dtype.kind == "f":
                least = -MOST_SUM if name == "apart" else 0.0
                column[rows] = np.where((column[rows] >= least) & (column[rows] <= MOST_SUM), column[rows], blank)

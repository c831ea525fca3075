"""Accounts seconds and GPU-seconds of each workload by use, and what an observed one would have had. Pure, on columns.

What a sweep reads holds until the next one. A time without sweeps (one that is late by more than `gap_s`, a restart) is
entered as `unknown` with the last known GPUs; of more than 30 days only 30, because a longer time is a clock that was
set forward. A clock that was set back is no time at all.

Each counter is kept twice. `kept` survives reloads and restarts, and a follower takes the leader's: people read it.
`shown` is what this process has entered while it led: Prometheus reads it, and takes a counter that falls by a little
for a restart from 0.

    serving    ready, and the workload has work: requests in hand, a counter that has just risen, busy GPUs
    idle_warm  ready, and known to have no work; and engines in sleep mode
    loading    on a node and not ready yet
    pending    wanted, and no node has begun to run them
    asleep     not there: what would be held if it were awake
    unknown    ready, and it is unknown whether they have work; or the number of replicas is unknown

GPUs are whole ones: a MIG slice is its sevenths, a replica of a shared GPU its part. `FleetGpus` has those of all
nodes: what no workload holds of them is unallocated. So the held states of all workloads and `unallocated` add up to
the GPU-seconds of the nodes.

A price is that of the moment: a later one changes no cost before it. GPU-seconds without a price are counted apart.
GPUs of engines in sleep mode are held, and cost the part of their price that `sleep_mode.gpu_share` says: the memory
that they keep. Others may use the rest, whose cost is unallocated.

The cluster counts replicas and targets show work, so a workload may have several uses at once. Work is not divided
among ready replicas: eight of them with one request between them all serve. A replica that terminates counts with the
ready ones as long as it holds its GPUs.

Worked example: 4 replicas are wanted, 3 run, 2 are ready, 24 GPUs are held and 5 requests wait: 16 GPUs serve, 8 load,
and 8 more are pending. After 10 s that is 160 GPU-seconds `serving`, 80 `loading`, and 10 seconds of the state
`serving`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from math import isnan, nan, prod
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from exporter.model import Floats, GpuPart
from scaler.columns import Array, Columns, Mask, Rows, copy_into, fitting, named, zero_if_unknown
from scaler.policy.prices import ReplicaCost

from .account_periods import AccountPeriods, NodeMonths

if TYPE_CHECKING:  # importing it compiles kernels, and the daemon listens first
    from scaler.signals.aggregate import Aggregate

NOT_YET = -1
HOUR_S, DAY_S = 3600.0, 86400.0
# Two replicas that count the same workload since the same moment have it a little apart, because their clocks are.
SAME_SINCE_S = 60.0
# A clock at 1970 before its first NTP update would enter half a century, for good.
LONGEST_GAP_S = 30 * 86400.0
# Of any counter here: GPU-seconds of 30,000 GPUs in a thousand years, and a trillion tokens a second for an hour.
MOST_SUM = 1e15
# Of a day: its number, its seconds with a gap of 30 days, its GPUs.
MOST_DAY = 1e7


class AccountedSweep(NamedTuple):
    """The inputs of a sweep, one slot per workload.

    state:  its code; NOT_YET before the first sweep.
    gpus:   shape (rows, len(STATES)); NaN unknown.
    each:   GPUs of one replica; NaN unknown.
    queued: requests that wait, in engines and at a gateway; NaN unknown.
    would:  replicas that Tidegate answers; NaN unknown.
    apart:  those of an observed workload, less spec.replicas; NaN unknown, or not observed.
    wanted: replicas that are to run: spec.replicas, or the decision where the cluster never counts; NaN unknown.
    rising: the last change of `wanted`: 1 up, 0 down; NaN: none yet.
    hour:   the price of one of its GPUs for an hour; NaN unknown.
    watts:  the power of its GPUs; NaN unknown.
    most:   replicas that it may have.
    counts: the cluster has ever counted its replicas.
    spared: of the GPUs that are `idle_warm`, as many as cost nothing because engines sleep; NaN unknown.
    """

    state: Codes
    gpus: Floats
    each: Floats
    queued: Floats
    would: Floats
    apart: Floats
    wanted: Floats
    rising: Floats
    hour: Floats
    watts: Floats
    most: Floats
    counts: Mask
    spared: Floats

    @classmethod
    def blank(cls, rows: int) -> AccountedSweep:
        each, queued, would, apart, wanted, rising, hour, watts, most, spared = np.full((10, rows), np.nan)
        unseen, unknown = np.full(rows, NOT_YET, dtype=np.int64), np.full((rows, len(STATES)), np.nan)
        counts = np.zeros(rows, dtype=np.bool_)
        return cls(unseen, unknown, each, queued, would, apart, wanted, rising, hour, watts, most, counts, spared)


_BY_STATE = frozenset({"gpu_seconds", "state_seconds", "cost"})
_FROM_ZERO = frozenset({"state_seconds", "wakes", "sleeps", "reversals", "shadow", "more", "fewer"})


class LedgerSums(NamedTuple):
    """Counters, a slot per workload; they never fall. NaN: never known, which is not 0.

    gpu_seconds, state_seconds, cost: shape (rows, len(STATES)).
    priced, powered: GPU-seconds held while their price, or power, was known.
    joules:   energy in the latter.
    held_apart, at_maximum, at_peak: GPU-seconds of the same time: held, and what always on would have held, with the
               maximum of replicas and with the most GPUs of that day (UTC) until then.
    cost_apart, cost_at_maximum, cost_at_peak: their cost, while there was a price.
    wakes, sleeps: scale-ups from zero and scale-downs to zero, by spec.replicas.
    reversals: rises after a fall, and falls after a rise. To 8 in any number of steps and back to 1 is one.
    requests, prompt, generated: finished requests and tokens that engines have counted.
    shadow:  seconds in which it was observed and both numbers were known. In those:
    saved, added: GPU-seconds that Tidegate would have held less, or more.
    queued:  request-seconds waited while Tidegate would have had more replicas.
    more, fewer: seconds in which it would have had more, or fewer.
    """

    gpu_seconds: Floats
    state_seconds: Floats
    cost: Floats
    priced: Floats
    powered: Floats
    joules: Floats
    held_apart: Floats
    at_maximum: Floats
    at_peak: Floats
    cost_apart: Floats
    cost_at_maximum: Floats
    cost_at_peak: Floats
    wakes: Floats
    sleeps: Floats
    reversals: Floats
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
    def blank(cls, rows: int) -> LedgerSums:
        """Sums of nothing."""
        return cls.with_buffer(rows)[0]

    @classmethod
    def with_buffer(cls, rows: int) -> tuple[LedgerSums, Floats]:
        """Sums of nothing, and the array of shape (numbers,) whose parts they are: all can be added to at once."""
        shapes = [(rows, len(STATES)) if name in _BY_STATE else (rows,) for name in cls._fields]
        ends = np.cumsum([prod(shape) for shape in shapes])
        buffer = np.empty(ends[-1])
        parts = [part.reshape(shape) for part, shape in zip(np.split(buffer, ends[:-1]), shapes, strict=True)]
        for name, part in zip(cls._fields, parts, strict=True):
            part[...] = 0.0 if name in _FROM_ZERO else np.nan
        return cls(*parts), buffer


class DayPeak(NamedTuple):
    """The present day (UTC) of each workload; every column has shape (rows,).

    day:  since 1970; NaN not yet. gpus: the most held in it. seconds: of it in which the GPUs were known.
    """

    day: Floats
    gpus: Floats
    seconds: Floats

    def after(self, held: Floats, took: Floats, now: float) -> tuple[DayPeak, Floats]:
        """The day after `took` seconds with `held` GPUs that end at `now`, and by how much its peak times its seconds
        have risen. An interval over midnight belongs to the day in which it ends.
        """
        day = np.full(len(held), np.floor(now / DAY_S))
        same = self.day == day
        gpus, seconds = np.where(same, self.gpus, 0.0), np.where(same, self.seconds, 0.0)
        measured = ~np.isnan(held)
        peak = np.where(measured, np.fmax(gpus, held), gpus)
        longer = seconds + np.where(measured, took, 0.0)
        return DayPeak(day, peak, longer), np.where(measured, peak * longer - gpus * seconds, np.nan)


class FleetGpus(NamedTuple):
    """The GPUs of all nodes: whole ones, and what they cost per hour; NaN unknown."""

    gpus: float
    hour: float

    @classmethod
    def of(cls, gpus: Sequence[GpuPart] | None, price: Callable[[str | None], float]) -> FleetGpus:
        """gpus: of all nodes; None: unknown. price: of a GPU by its model."""
        if gpus is None:
            return cls(nan, nan)
        return cls(sum(part.whole for part in gpus), sum(part.whole * price(part.model) for part in gpus))


class FleetSums(NamedTuple):
    """Counters of all nodes since POSIX seconds `since`, NaN not yet: GPU-seconds and cost, and the part of both that
    no workload held.
    """

    since: float = nan
    gpu_seconds: float = nan
    unallocated: float = nan
    cost: float = nan
    unallocated_cost: float = nan

    def plus(self, rise: FleetSums, since: float) -> FleetSums:
        def added(before: float, more: float) -> float:
            return before if isnan(more) else more + (0.0 if isnan(before) else before)

        sums = (added(before, more) for before, more in zip(self[1:], rise[1:], strict=True))
        return FleetSums(since if isnan(self.since) else self.since, *sums)


def replica_cost(totals: Aggregate, hour: Floats, last: AccountedSweep) -> ReplicaCost:
    """What one replica of each workload holds and costs.

    hour: the price of one of its GPUs for an hour; NaN unknown. last: of GPUs that are not shown any more, their number
    and price hold on.
    """
    each = np.where(np.isnan(totals.whole_each), last.each, totals.whole_each)
    price = np.where(np.isnan(hour), last.hour, hour)
    return ReplicaCost(totals.gpus_each, np.where(each > 0.0, each, 1.0) * price)


class Ledger:
    """Accounts a fixed list of workloads. since: POSIX seconds when each began to be counted; NaN not yet.

    fleet_kept, fleet_shown: the sums of all nodes, as `kept` and `shown`.
    """

    def __init__(self, rows: int, gap_s: float) -> None:
        """gap_s: a sweep holds for so long; later seconds are unknown."""
        self.since, self._swept_at = np.full((2, rows), np.nan)
        self.now = AccountedSweep.blank(rows)
        self.kept, self._kept_buffer = LedgerSums.with_buffer(rows)
        self.shown, self._shown_buffer = LedgerSums.with_buffer(rows)
        self.fleet, self.fleet_kept, self.fleet_shown = FleetGpus(nan, nan), FleetSums(), FleetSums()
        self._day = DayPeak(*np.full((3, rows), np.nan))
        self._fleet_at, self._gap_s = nan, gap_s
        self.periods, self.node_months = AccountPeriods(rows, len(STATES), HELD), NodeMonths()

    def enter_fleet(self, fleet: FleetGpus, now: float, *, leads: bool) -> None:
        """Enters the time of all nodes since the last call. Called before `enter` of the same moment."""
        if isnan(fleet.gpus) and isnan(self.fleet.gpus):
            return
        took = min(max(now - self._fleet_at, 0.0), LONGEST_GAP_S) if not isnan(self._fleet_at) else 0.0
        held = zero_if_unknown(self.now.gpus[:, HELD]).sum(axis=1)
        priced = held > 0.0
        paid = held - zero_if_unknown(self.now.spared)
        costs = float((paid[priced] * self.now.hour[priced]).sum())
        free = max(self.fleet.gpus - float(held.sum()), 0.0) if not isnan(self.fleet.gpus) else nan
        free_hour = max(self.fleet.hour - costs, 0.0) if not isnan(self.fleet.hour - costs) else nan
        rise = FleetSums(
            nan,
            self.fleet.gpus * took,
            free * took,
            self.fleet.hour * took / HOUR_S,
            free_hour * took / HOUR_S,
        )
        self.fleet_kept = self.fleet_kept.plus(rise, now)
        self.node_months.enter(self.fleet_kept[1:], rise[1:], now - took, now)
        if leads:
            self.fleet_shown = self.fleet_shown.plus(rise, now)
        self.fleet, self._fleet_at = fleet, now

    def enter(self, moment: AccountedSweep, counted: Floats, now: float, *, leads: bool) -> None:
        """Enter the time since the last sweep, and remember what is seen at this one, `now` in POSIX seconds.

        counted: shape (rows, 3): requests, prompt tokens and generated tokens since the last sweep; NaN is not said.
        leads:   this replica publishes its ledger; one of several does, or sums would be double.
        """
        risen = self._risen(moment, counted, now)
        rise = np.concatenate([column.ravel() for column in risen])
        measured = ~np.isnan(rise)
        for sums in (self._kept_buffer, self._shown_buffer) if leads else (self._kept_buffer,):
            np.add(zero_if_unknown(sums), rise, out=sums, where=measured)
        self.periods.enter(risen, self.kept, np.maximum(self._swept_at, now - LONGEST_GAP_S), now)
        self.since[:] = np.where(np.isnan(self.since), now, self.since)
        self._swept_at[:] = now
        self.now = moment

    def _risen(self, moment: AccountedSweep, counted: Floats, now: float) -> LedgerSums:
        """Increments of each counter; NaN: unknown."""
        before = self.now
        took = np.clip(zero_if_unknown(now - self._swept_at), 0.0, LONGEST_GAP_S)
        looked = took <= self._gap_s
        code = np.where(looked & (before.state != NOT_YET), before.state, UNKNOWN)
        seconds = np.zeros(before.gpus.shape)
        seconds[np.arange(len(code)), code] = took
        held = before.gpus
        if not looked.all():
            blind = np.zeros(before.gpus.shape)
            blind[:, UNKNOWN] = before.gpus[:, HELD].sum(axis=1)
            held = np.where(looked[:, None], before.gpus, np.where(np.isnan(before.gpus), np.nan, blind))
        compared = np.where(looked, before.apart, np.nan)
        apart, each = compared * took, before.each
        gpus, hour = held[:, HELD].sum(axis=1), before.hour / HOUR_S
        spared = np.where(looked, zero_if_unknown(before.spared), 0.0)
        paid = held.copy()
        paid[:, IDLE_WARM] -= spared
        watts = np.where(looked, before.watts, np.nan)
        self._day, at_peak = self._day.after(np.where(took > 0.0, gpus, np.nan), took, now)
        at_maximum = np.maximum(before.most * each, gpus) * took
        unknown = np.isnan(at_maximum) | np.isnan(at_peak)
        held_apart, at_maximum, at_peak = (
            np.where(unknown, np.nan, column) for column in (gpus * took, at_maximum, at_peak)
        )
        return LedgerSums(
            gpu_seconds=held * took[:, None],
            state_seconds=seconds,
            cost=paid * took[:, None] * hour[:, None],
            priced=np.where(np.isnan(hour), np.nan, gpus * took),
            powered=np.where(np.isnan(watts), np.nan, gpus * took),
            joules=watts * took,
            held_apart=held_apart,
            at_maximum=at_maximum,
            at_peak=at_peak,
            cost_apart=(held_apart - spared * took) * hour,
            cost_at_maximum=at_maximum * hour,
            cost_at_peak=at_peak * hour,
            wakes=((before.wanted == 0.0) & (moment.wanted > 0.0)).astype(float),
            sleeps=((before.wanted > 0.0) & (moment.wanted == 0.0)).astype(float),
            reversals=(np.abs(moment.rising - before.rising) == 1.0).astype(float),
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
        """The columns that a checkpoint keeps; live arrays, but for those of the nodes: a state has a slot per workload
        alone, so each has the sums of all nodes.
        """
        fleet = (*self.fleet_kept[1:], *self.fleet)
        return {
            **named("accounts", self._here()),
            **named("accounts.kept", self.kept._asdict()),
            **named("accounts.day", self._day._asdict()),
            **named("accounts", self.periods.columns()),
            "accounts.fleet": np.tile(np.array(fleet), (len(self.since), 1)),
            "accounts.fleet_since": np.full(len(self.since), self.fleet_kept.since),
            "accounts.fleet_at": np.full(len(self.since), self._fleet_at),
            "accounts.node_months": np.tile(self.node_months.packed(), (len(self.since), 1)),
        }

    def _here(self) -> dict[str, Array]:
        """The last sweep. `swept_at` and `since` are times, by their last words."""
        return {"since": self.since, "swept_at": self._swept_at, **self.now._asdict()}

    def take(self, columns: Columns, rows: Rows, source_rows: Rows) -> None:
        """Copies the accounts `source_rows` of other columns into `rows`, if those began earlier.

        If both began at the same time, the own accounts stay: a published counter never falls.
        """
        theirs = columns.get("accounts.since")
        if theirs is None or theirs.shape[1:] or theirs.dtype.kind != "f":
            return
        longer = np.isnan(self.since[rows]) | (theirs[source_rows] < self.since[rows] - SAME_SINCE_S)
        longer &= ~np.isnan(theirs[source_rows])
        if not longer.any():
            return
        copy_into(self.columns(), columns, rows[longer], source_rows[longer])
        _make_sound(self.now, self.kept, rows[longer])
        self.periods.take(columns, rows[longer], source_rows[longer], self.kept)
        day = np.stack([column[rows[longer]] for column in self._day])
        sound = ((day >= 0.0) & (day <= MOST_DAY)).all(axis=0)
        for column, restored in zip(self._day, day, strict=True):
            column[rows[longer]] = np.where(sound, restored, np.nan)
        self._take_fleet(columns, source_rows[longer])

    def _take_fleet(self, columns: Columns, source_rows: Rows) -> None:
        """Takes the sums of all nodes if they began earlier. A column of another shape is another version's."""
        like = {name: column for name, column in self.columns().items() if name.startswith("accounts.fleet")}
        fits = {name: fitting(columns, name, column) for name, column in like.items()}
        found = {name: column[source_rows] for name, column in fits.items() if column is not None}
        if not len(source_rows) or len(found) < len(like):
            return
        *sums, gpus, hour = found["accounts.fleet"][0].tolist()
        since, at = (float(found[f"accounts.fleet_{name}"][0]) for name in ("since", "at"))
        sound = all(isnan(value) or 0.0 <= value <= MOST_SUM for value in (*sums, gpus, hour))
        if sound and (isnan(self.fleet_kept.since) or since < self.fleet_kept.since - SAME_SINCE_S):
            self.fleet_kept, self.fleet, self._fleet_at = FleetSums(since, *sums), FleetGpus(gpus, hour), at
            months = fitting(columns, "accounts.node_months", self.columns()["accounts.node_months"])
            self.node_months.unpack(np.empty(0) if months is None else months[source_rows[0]], sums)

    def go_on(self, other: Ledger, rows: Rows, source_rows: Rows) -> None:
        """Takes the counters of Prometheus too, within one process."""
        for mine, theirs in zip(self.shown, other.shown, strict=True):
            mine[rows] = theirs[source_rows]
        self.fleet, self._fleet_at, self.fleet_shown = other.fleet, other._fleet_at, other.fleet_shown


def _make_sound(moment: AccountedSweep, kept: LedgerSums, rows: Rows) -> None:
    """A state that only the next version knows is unknown to this one; a number that cannot have been entered is none.

    All are counts or sums of what is not negative, but `apart`, which is a difference of two.
    """
    valid = (moment.state[rows] >= NOT_YET) & (moment.state[rows] < len(STATES))
    moment.state[rows] = np.where(valid, moment.state[rows], UNKNOWN)
    for columns, blanks in ((moment, AccountedSweep.blank(len(rows))), (kept, LedgerSums.blank(len(rows)))):
        for (name, column), blank in zip(columns._asdict().items(), blanks, strict=True):
            if column.dtype.kind == "f":
                least = -MOST_SUM if name == "apart" else 0.0
                column[rows] = np.where((column[rows] >= least) & (column[rows] <= MOST_SUM), column[rows], blank)


class SweepAnswers(NamedTuple):
    """replicas: as decided; NaN unknown. observed: not served to controllers. hour: the price of one of its GPUs for an
    hour; NaN unknown. asleep: the part of it that a replica costs in sleep mode; NaN: it has none.
    """

    replicas: Floats
    observed: Mask
    hour: Floats
    asleep: Floats


def look(
    totals: Aggregate, conditions: Circumstances, answers: SweepAnswers, before: AccountedSweep, now: float
) -> AccountedSweep:
    """Returns what this sweep reads. before: the last one. now: POSIX seconds."""
    readings = totals.readings
    does = doing(totals, conditions, now)
    replicas_by_use = replicas(totals, conditions, does)
    state = states(replicas_by_use, totals, conditions, does)
    each, hour = (
        np.where(np.isnan(column), last, column)
        for column, last in ((totals.whole_each, before.each), (answers.hour, before.hour))
    )
    held = gpus(replicas_by_use, state, totals, each, before.gpus[:, HELD].sum(axis=1))
    sleeping = np.minimum(zero_if_unknown(totals.sleeping) * each, held[:, IDLE_WARM])
    queued = np.where(
        np.isnan(readings.waiting) & np.isnan(readings.held),
        np.nan,
        zero_if_unknown(readings.waiting) + zero_if_unknown(readings.held),
    )
    wanted = _wanted(readings.wanted, answers, before)
    changed = np.abs(wanted - before.wanted) > 0.0
    return AccountedSweep(
        state=state,
        gpus=held,
        each=each,
        queued=queued,
        would=answers.replicas.copy(),
        apart=np.where(answers.observed, answers.replicas - readings.wanted, np.nan),
        wanted=wanted,
        rising=np.where(changed, wanted > before.wanted, before.rising),
        hour=hour,
        watts=totals.held.watts,
        most=conditions.maximum.copy(),
        counts=before.counts | ~np.isnan(readings.wanted),
        spared=sleeping * np.where(np.isnan(answers.asleep), 0.0, 1.0 - answers.asleep),
    )


def _wanted(spec_replicas: Floats, answers: SweepAnswers, before: AccountedSweep) -> Floats:
    """Replicas that are to run: by the cluster, or by the decision where it never counts. If unknown, the last ones."""
    answered = np.where(before.counts | answers.observed, np.nan, answers.replicas)
    wanted = np.where(np.isnan(spec_replicas), answered, spec_replicas)
    return np.where(np.isnan(wanted), before.wanted, wanted)


Codes: TypeAlias = NDArray[np.int64]


class GpuUse(StrEnum):
    SERVING = "serving"
    IDLE_WARM = "idle_warm"
    LOADING = "loading"
    PENDING = "pending"
    ASLEEP = "asleep"
    UNKNOWN = "unknown"


STATES = tuple(GpuUse)
SERVING, IDLE_WARM, LOADING, PENDING, ASLEEP, UNKNOWN = range(len(STATES))
# States that hold a GPU: pending replicas do not yet, asleep ones no longer.
HELD = [SERVING, IDLE_WARM, LOADING, UNKNOWN]
# Of several at once the first that is there is the workload's own: serving before anything, and what is not known
# before what is.
_FIRST = (SERVING, UNKNOWN, IDLE_WARM, LOADING, PENDING, ASLEEP)


class Circumstances(NamedTuple):
    """Conditions of each workload beside its targets; every column has shape (rows,).

    whole:   all of its demand is known.
    zero:    Tidegate publishes zero to controllers.
    minimum, maximum: replicas while awake.
    gpu_quiet: engine activity (ratio) at or below which a GPU counts as quiet.
    rise_s:  seconds for which a counter that has risen shows work: a page is read so often.
    """

    whole: Mask
    zero: Mask
    minimum: Floats
    maximum: Floats
    gpu_quiet: Floats
    rise_s: float


def doing(totals: Aggregate, conditions: Circumstances, now: float) -> Codes:
    """The activity of the ready replicas: SERVING, IDLE_WARM or UNKNOWN. now: POSIX seconds."""
    readings = totals.readings
    busy = zero_if_unknown(readings.waiting) + zero_if_unknown(readings.running) + zero_if_unknown(readings.held) > 0.0
    # What rose between two pages was done in the time between them, which is as long as the one that follows.
    busy |= now - readings.active_at < conditions.rise_s
    # A model that is being loaded works on its GPUs: that says nothing of the replicas beside it.
    busy |= (readings.busiest_gpu > conditions.gpu_quiet) & ~(readings.ready < readings.wanted)
    idle = conditions.whole & ~readings.gpus_stale & ~readings.gpus_blind & ~readings.unproven
    return np.where(busy, SERVING, np.where(idle, IDLE_WARM, UNKNOWN))


def replicas(totals: Aggregate, conditions: Circumstances, does: Codes) -> Floats:
    """Replicas in each state, shape (rows, len(STATES)); NaN if they are not counted. does: see `doing`."""
    readings, count = totals.readings, len(does)
    # Who says what is wanted and ready, and not what is there, means that the rest of it is on its way.
    existing = np.where(np.isnan(readings.existing), np.fmax(readings.wanted, readings.ready), readings.existing)
    pending = zero_if_unknown(readings.pending)
    running = np.maximum(existing - pending, 0.0)
    ready = np.minimum(zero_if_unknown(readings.ready), running)
    leaving = zero_if_unknown(totals.leaving)
    # Where there is work, engines in sleep mode are taken out of the ready ones before: see `totals.sleepers_aside`.
    sleeping = np.where(does == SERVING, np.minimum(zero_if_unknown(totals.sleeping), running - ready), 0.0)
    out = np.zeros((count, len(STATES)))
    out[np.arange(count), does] = ready + leaving
    out[:, IDLE_WARM] += sleeping
    out[:, LOADING] = running - ready - sleeping
    out[:, PENDING] = pending + np.maximum(readings.wanted - existing, 0.0)
    nothing = ~(out.sum(axis=1) > 0.0)
    out[nothing, ASLEEP] = np.maximum(conditions.minimum[nothing], 1.0)
    out[np.isnan(readings.wanted)] = np.nan
    return out


def states(replicas_by_use: Floats, totals: Aggregate, conditions: Circumstances, does: Codes) -> Codes:
    """The state of each workload. there: see `replicas`."""
    order = np.array(_FIRST)
    counted: Codes = order[np.argmax(replicas_by_use[:, order] > 0.0, axis=1)]
    # Without replica counts a workload with a response or a listed pod has replicas; one at zero without both has none.
    readings = totals.readings
    shown = (readings.ready > 0.0) | (readings.pods_fresh > 0.0) | (readings.pods_listed > 0.0)
    gone = conditions.zero & ~shown
    loads = conditions.whole & (readings.pods_listed == 0.0)
    published = np.where(gone, ASLEEP, np.where(loads, LOADING, UNKNOWN))
    uncounted = np.where((does == SERVING) | (shown & (does == IDLE_WARM)), does, published)
    return np.where(np.isnan(readings.wanted), uncounted, counted)


def gpus(replicas_by_use: Floats, state: Codes, totals: Aggregate, each: Floats, last: Floats) -> Floats:
    """GPUs in each state, shape (rows, len(STATES)); NaN where it was never known how many there are.

    there, state: see `replicas` and `states`. each: of a replica. last: held in whatever state when it was last known.
    """
    out: Floats = replicas_by_use * each[:, None]
    # With no count, what a page shows as its own does what the workload does; what is not seen any more is unknown.
    uncounted = np.isnan(replicas_by_use).any(axis=1)
    held = totals.held.whole
    rows = np.flatnonzero(uncounted & ~np.isnan(np.where(np.isnan(held), last, held)))
    out[rows] = 0.0
    blind = np.isnan(held[rows])
    out[rows, np.where(blind, UNKNOWN, state[rows])] = np.where(blind, last[rows], held[rows])
    return out

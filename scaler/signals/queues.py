"""Pages of queues: what an engine's or a gateway's page says of one workload, as the columns of a slot. Pure.

A page may speak of several queues, of which a workload may have chosen one; a gateway may repeat what the engines say.
What of a page would still move at zero replicas, its kind says (`Kind.at_zero`), and whether this page really has it is
looked at here: that is what can wake a sleeper.

An incomplete quantity (see `exporter.catalog.completeness`) is the lower bound of what is known of it: it counts as
demand and proves nothing.

Worked example: EPP's page with two requests in its own queue, in front of pods that are asked themselves: HELD is 2,
WAITING and RUNNING are unknown (they are the pods' own over again), and it can wake by its queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum, IntFlag
from math import isnan, nan
from typing import NamedTuple

import numpy as np

from exporter.catalog import KINDS
from exporter.model import Floats, Gap, Quantity, Role, Samples
from scaler.columns import Rows

from .slots import ACTIVITY, Column

# Counts that are sums over the queues of a page.
QUEUE_COLUMNS = (
    (Column.WAITING, Quantity.REQUESTS_WAITING),
    (Column.RUNNING, Quantity.REQUESTS_RUNNING),
    (Column.HELD, Quantity.REQUESTS_HELD),
    (Column.READY, Quantity.REPLICAS_READY),
)


_NOTHING_READ = np.full(len(Column), nan)
_REPEATED = frozenset({Quantity.REQUESTS_WAITING, Quantity.REQUESTS_RUNNING})
IN_HAND = _REPEATED | {Quantity.REQUESTS_HELD}


class Waker(IntEnum):
    """What of a page shows a request that comes while no replica is there."""

    NOTHING = 0
    REFUSALS = 1  # only a counter: that one was turned away, or that one came
    QUEUE = 2  # the request itself, which waits


class Incomplete(IntFlag):
    """Which quantities of a response are lower bounds."""

    NOTHING = 0
    IN_HAND = 1  # requests waiting, running or held
    COUNTERS = 2  # the counters whose rise is activity
    KV_CACHE = 4


_GROUPS = {
    **dict.fromkeys(IN_HAND, Incomplete.IN_HAND),
    **dict.fromkeys(ACTIVITY, Incomplete.COUNTERS),
    Quantity.KV_CACHE_USED: Incomplete.KV_CACHE,
}


class QueuePage(NamedTuple):
    """values: shape (len(Column),), NaN where the page does not say. said: its sums, counters too, NaN where one is not
    known. at: POSIX seconds of its oldest part. arrivals: where REFUSALS wake, which counter rises with a request that
    finds no replica: that of finished requests (all are counted as they arrive), else that of failed ones. gaps: the
    incomplete series of the quantities that count here.
    """

    values: Floats
    said: Mapping[Quantity, float]
    at: float
    waker: Waker
    arrivals: bool = False
    incomplete: Incomplete = Incomplete.NOTHING
    gaps: tuple[Gap, ...] = ()

    @property
    def counters(self) -> Floats:
        """Those whose rise is activity, in the order of ACTIVITY; NaN where it does not say."""
        return np.array([self.said.get(quantity, nan) for quantity in ACTIVITY])


def read(samples: Samples, role: Role, queue: str | None, at: float, *, pods: bool) -> QueuePage:
    """queue: the one that counts; None is all. pods: the engines are asked themselves. at: receipt, POSIX seconds."""
    chosen = _chosen(samples, queue)
    gaps = _gaps(samples, chosen) if samples.gaps else ()
    said = _sums(samples, chosen, gaps)
    values = _NOTHING_READ.copy()
    for column, quantity in QUEUE_COLUMNS:
        values[column] = said.get(quantity, nan)
    values[Column.KV_CACHE] = _mean(_known(samples, chosen, Quantity.KV_CACHE_USED))
    values[Column.SLEEPING] = _any_zero(_known(samples, chosen, Quantity.ENGINE_AWAKE))
    measured = min(samples.at[chosen].tolist(), default=at)
    if role is not Role.GATEWAY:
        return QueuePage(values, said, min(measured, at), Waker.NOTHING, False, incomplete(gaps), gaps)
    kind = KINDS[samples.kind]
    waker = _waker(kind.at_zero, values, said, repeats=kind.repeats_engines)
    if pods and kind.repeats_engines:
        if kind.at_zero == "in_flight":
            values[Column.IN_FLIGHT] = np.nansum([values[Column.WAITING], values[Column.RUNNING]])
        else:
            gaps = tuple(gap for gap in gaps if gap.quantity not in _REPEATED)
        values[[Column.WAITING, Column.RUNNING]] = nan
    counted = kind.at_zero == "counted"
    return QueuePage(values, said, min(measured, at), waker, counted, incomplete(gaps), gaps)


def incomplete(gaps: Iterable[Gap]) -> Incomplete:
    """Which groups of quantities these gaps make lower bounds."""
    found = Incomplete.NOTHING
    for gap in gaps:
        found |= _GROUPS.get(gap.quantity, Incomplete.NOTHING)
    return found


def has_served(samples: Samples) -> bool:
    """Has an engine's page counted a token that was made, or a request that was finished?"""
    counted = (samples.column(quantity) for quantity in (Quantity.TOKENS_GENERATED, Quantity.REQUESTS_FINISHED))
    return any(bool((column > 0.0).any()) for column in counted)


def _waker(at_zero: str, values: Floats, said: Mapping[Quantity, float], *, repeats: bool) -> Waker:
    in_hand = not isnan(values[Column.WAITING]) or not isnan(values[Column.RUNNING])
    if at_zero == "in_flight":
        queue = in_hand or not isnan(values[Column.HELD])
    else:
        # What it repeats of its engines is gone with them; what it holds itself, or has to itself, is not.
        queue = at_zero == "queue" and (not isnan(values[Column.HELD]) or (in_hand and not repeats))
    if queue:
        return Waker.QUEUE
    counter = Quantity.REQUESTS_FINISHED if at_zero == "counted" else Quantity.REQUESTS_FAILED
    refuses = at_zero != "nothing" and not isnan(said.get(counter, nan))
    return Waker.REFUSALS if refuses else Waker.NOTHING


def _chosen(samples: Samples, queue: str | None) -> Rows:
    """Rows of the queues that count for a workload."""
    rows = [
        index
        for index, subject in enumerate(samples.subjects)
        if (name := getattr(subject, "name", None)) is not None and (queue is None or name == queue)
    ]
    return np.array(rows, dtype=np.int64)


def _gaps(samples: Samples, rows: Rows) -> tuple[Gap, ...]:
    chosen = set(rows.tolist())
    return tuple(gap for gap in samples.gaps if gap.row in chosen)


def _sums(samples: Samples, rows: Rows, gaps: Sequence[Gap]) -> dict[Quantity, float]:
    """Sums over queues. One that does not say makes its sum NaN: unknown is never zero.

    Requests in hand of which a part is incomplete are what is known of them. An incomplete counter stays NaN, since a
    smaller sum looks like a restart.
    """
    if not len(rows):
        return {}
    # A queue that is missing as a whole adds to those quantities alone that it had.
    missing = {gap.row for gap in gaps if np.isnan(samples.values[gap.row]).all()}
    there = [row for row in rows.tolist() if row not in missing]
    sums: list[float]
    if len(there) == 1:
        sums = samples.values[there[0]].tolist()
    else:
        sums = samples.values[there].sum(axis=0).tolist() if there else [nan] * len(samples.quantities)
    said = dict(zip(samples.quantities, sums, strict=True))
    for quantity in {gap.quantity for gap in gaps} & said.keys():
        said[quantity] = nan
    for quantity in {gap.quantity for gap in gaps} & IN_HAND & said.keys():
        known = [
            *samples.column(quantity)[rows],
            *{gap.row: gap.at_least for gap in gaps if gap.quantity is quantity}.values(),
        ]
        said[quantity] = float(np.nansum(known)) if not np.isnan(known).all() else nan
    return said


def _known(samples: Samples, rows: Rows, quantity: Quantity) -> list[float]:
    """The known values of these rows."""
    if quantity not in samples.quantities:
        return []
    return [value for value in samples.column(quantity)[rows].tolist() if not isnan(value)]


def _any_zero(values: Sequence[float]) -> float:
    """1 if a value is 0, 0 if none is, NaN if there is none."""
    return float(0.0 in values) if values else nan


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else nan

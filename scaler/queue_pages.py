"""Pages of queues: what an engine's or a gateway's page says of one workload, as the columns of a slot. Pure.

A page may speak of several queues, of which a workload may have chosen one; a gateway may repeat what the engines say.
What of a page would still move at zero replicas, its kind says (`Kind.at_zero`), and whether this page really has it is
looked at here: that is what can wake a sleeper.

Worked example: EPP's page with two requests in its own queue, in front of pods that are asked themselves: HELD is 2,
WAITING and RUNNING are unknown (they are the pods' own over again), and it can wake by its queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from math import isnan, nan
from typing import NamedTuple

import numpy as np

from exporter.catalog import KINDS
from exporter.model import Floats, Quantity, Role, Samples

from .slots import ACTIVITY, Column, Rows

# Counts that are sums over the queues of a page.
QUEUE_COLUMNS = (
    (Column.WAITING, Quantity.REQUESTS_WAITING),
    (Column.RUNNING, Quantity.REQUESTS_RUNNING),
    (Column.HELD, Quantity.REQUESTS_HELD),
    (Column.READY, Quantity.REPLICAS_READY),
)


class Waker(IntEnum):
    """What of a page shows a request that comes while no replica is there."""

    NOTHING = 0
    REFUSALS = 1  # only a counter: that one was turned away, or that one came
    QUEUE = 2  # the request itself, which waits


class QueuePage(NamedTuple):
    """values: shape (len(Column),), NaN where the page does not say. said: its sums, counters too, NaN where one is not
    known. at: POSIX seconds of its oldest part. arrivals: where REFUSALS wake, which counter rises with a request that
    finds no replica: that of finished requests (all are counted as they arrive), else that of failed ones.
    """

    values: Floats
    said: Mapping[Quantity, float]
    at: float
    waker: Waker
    arrivals: bool = False

    @property
    def counters(self) -> Floats:
        """Those whose rise is activity, in the order of ACTIVITY; NaN where it does not say."""
        return np.array([self.said.get(quantity, nan) for quantity in ACTIVITY])


def read(samples: Samples, role: Role, queue: str | None, at: float, *, pods: bool) -> QueuePage:
    """queue: the one that counts; None is all. pods: the engines are asked themselves. at: receipt, POSIX seconds."""
    chosen = _chosen(samples, queue)
    said = _sums(samples, chosen)
    values = np.full(len(Column), nan)
    for column, quantity in QUEUE_COLUMNS:
        values[column] = said.get(quantity, nan)
    values[Column.KV_CACHE] = _mean(samples.column(Quantity.KV_CACHE_USED)[chosen])
    values[Column.SLEEPING] = _any_zero(samples.column(Quantity.ENGINE_AWAKE)[chosen])
    measured = float(samples.at[chosen].min()) if len(chosen) else at
    if role is not Role.GATEWAY:
        return QueuePage(values, said, min(measured, at), Waker.NOTHING)
    kind = KINDS[samples.kind]
    waker = _waker(kind.at_zero, values, said, repeats=kind.repeats_engines)
    if pods and kind.repeats_engines:
        if kind.at_zero == "in_flight":
            values[Column.IN_FLIGHT] = np.nansum([values[Column.WAITING], values[Column.RUNNING]])
        values[[Column.WAITING, Column.RUNNING]] = nan
    return QueuePage(values, said, min(measured, at), waker, kind.at_zero == "counted")


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


def _sums(samples: Samples, rows: Rows) -> dict[Quantity, float]:
    """Sums over queues. One that does not say makes its sum NaN: unknown is never zero."""
    if not len(rows):
        return {}
    sums: list[float] = samples.values[rows].sum(axis=0).tolist()
    return dict(zip(samples.quantities, sums, strict=True))


def _any_zero(values: Floats) -> float:
    """1 if a value is 0, 0 if none is, NaN if none is known."""
    said = values[~np.isnan(values)]
    return float((said == 0.0).any()) if len(said) else nan


def _mean(values: Floats) -> float:
    said = values[~np.isnan(values)]
    return float(said.mean()) if len(said) else nan

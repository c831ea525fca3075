"""Measures how long a replica's start takes, from pods: created, scheduled, ready, first token. Pure.

A start has these phases, of which the sum is kept:

    unscheduled  no node has capacity, or a queue holds it. A stock-out, or a node on its way: it is a fact about the
                 cluster and not about the workload, so it is not part of the sum.
    scheduling   created until scheduled, less that. Only of a pod that was observed before it had a node: otherwise it
                 is not known, and without a stock-out it is a fraction of a second.
    loading      until ready: the image, the weights, the engine's warm-up.
    first_token  until the first token or finished request after that; only if a request waited when it became ready,
                 else it would be the time until the next request.
    whole        the sum of the last three, as far as they are known: how long a request waits.

A pod has the time since when it has no node while it has none (condition PodScheduled "False", reason Unschedulable or
SchedulingGated); once it has one, the condition only has the time of that. So both states have to be observed.

A pod that is ready when it is first observed counts once, from scheduled to ready, unless one of its containers has
been restarted or that would be more than OLD_S: then it may have become unready and ready again. So a workload that has
run for a year has a measured start a second after Tidegate has begun. It is not counted again after a restart of
Tidegate: only pods that became ready after the last one that counted. A pod that becomes unready and ready again, or
whose containers restart, makes no second start, and one that ends before it is ready made none.

**Two kinds of starts** are kept apart: of the first replica after zero, which a request waits for, and of further ones,
which sizing waits for. They differ where engines are restored from a snapshot, as the memory of a process or of a GPU:
the snapshot is on the node that ran the last replica, so the first is restored in seconds, and a further one on another
node loads for minutes. A pod is the first if it becomes ready before any other that does not terminate. Of a kind
without a measured start the times are those of the other.

A snapshot needs no state between one replica and zero: it holds no GPU, so it is zero with a short start. But such
starts have two modes, restored and cold, and a median is one of them; what a start costs on average is its mean. The
slowest tenth counts as the 90th percentile there: a pod that loaded for a day says nothing of the next.

Worked example: created at 0, no node from 1 on, scheduled at 240, ready at 310 while two requests wait, first token at
313: unscheduled 239 s, scheduling 1 s, loading 70 s, first_token 3 s; the start took 74 s. Of four starts of 4 s and
one of 85 s the median is 4 s, and the mean 20 s.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from exporter.kubernetes.objects import Pod
from exporter.model import Floats, PodKey
from scaler.columns import Array, Columns, Rows, copy_into

from .histograms import GROWTH, Histograms, scale

EDGES = scale(1.0, GROWTH, 86400.0)
# At a start a day ten count: two of a slower image are the 90th percentile, a week of them the median.
HALF_LIFE_S = 7 * 86400.0
OLD_S = 3600.0
# The first token is awaited for so long after ready: a client has given up by then.
FIRST_TOKEN_S = 600.0


class ColdStarts(NamedTuple):
    """Seconds that a start takes, shape (rows,); NaN if none was measured. p50: typical. p90: to be safe.

    mean: what it costs on average; longer ones count as the p90.
    """

    p50: Floats
    p90: Floats
    mean: Floats

    @classmethod
    def unmeasured(cls, rows: int) -> ColdStarts:
        return cls(*np.full((len(cls._fields), rows), np.nan))


@dataclass(slots=True)
class _Start:
    """One pod. from_the_first: it was observed before it had a node. over: it has counted, or never will."""

    uid: str
    from_the_first: bool
    unscheduled_since: float | None = None
    over: bool = False


class _Awaited(NamedTuple):
    row: int
    ready_at: float
    until_ready: float  # seconds of its start so far; NaN unknown
    first: bool = False  # after zero


class Starts:
    """The starts of a fixed list of workloads.

    times: how long those of further replicas take, as of the last one. zero_times: those of the first after zero.
    """

    def __init__(self, rows: int) -> None:
        self.times, self.zero_times = ColdStarts.unmeasured(rows), ColdStarts.unmeasured(rows)
        # In checkpoints the former are "whole": earlier versions have all starts there.
        self._further, self._zero = (Histograms(rows, EDGES, HALF_LIFE_S) for _ in range(2))
        self._last: Floats = np.full(rows, np.nan)  # ready_at of the last that counted
        self._pods: list[dict[str, _Start]] = [{} for _ in range(rows)]
        self._awaited: dict[PodKey, _Awaited] = {}

    def observe(self, row: int, pods: Iterable[Pod], *, waiting: bool, now: float) -> None:
        """Takes all the pods of a workload that serve requests. waiting: requests wait for it now."""
        before, after = self._pods[row], {}
        found_ready = []
        pods = list(pods)
        first = min((_ready_since(pod) for pod in pods if pod.was_ready and not pod.leaving), default=None)
        for pod in pods:
            start = before.get(pod.key.pod)
            if start is None or start.uid != pod.uid:
                start = _Start(pod.uid, from_the_first=pod.scheduled_at is None and pod.node is None)
                if pod.was_ready:
                    start.over = True
                    found_ready.append(pod)
            after[pod.key.pod] = start
            self._follow(row, start, pod, first=_ready_since(pod) == first, waiting=waiting, now=now)
        self._pods[row] = after
        for key in [key for key, awaited in self._awaited.items() if awaited.row == row and key.pod not in after]:
            self._finish(self._awaited.pop(key), np.nan)
        self._count_found(row, found_ready, now)

    def _follow(self, row: int, start: _Start, pod: Pod, *, first: bool, waiting: bool, now: float) -> None:
        if start.over:
            return
        if start.unscheduled_since is None and start.from_the_first:
            start.unscheduled_since = pod.unscheduled_since
        start.over = pod.ready or pod.leaving
        if not pod.ready or pod.ready_at is None:
            return
        ready_at = min(pod.ready_at, now)  # a node's clock may be ahead of ours
        awaited = _Awaited(row, ready_at, _seconds_until_ready(start, pod, ready_at), first)
        if waiting:
            self._awaited[pod.key] = awaited
        else:
            self._finish(awaited, np.nan)

    def _count_found(self, row: int, pods: Iterable[Pod], now: float) -> None:
        """Counts pods that were ready when they were first observed: what was there before them is not known."""
        last = self._last[row]
        for pod in pods:
            measured = pod.ready_at is not None and pod.scheduled_at is not None and not pod.restarted
            if not measured or pod.ready_at is None or pod.scheduled_at is None:
                continue
            loading = pod.ready_at - pod.scheduled_at
            if 0.0 <= loading <= OLD_S and not pod.ready_at <= last and pod.ready_at <= now:
                self._finish(_Awaited(row, pod.ready_at, loading), np.nan)

    def awaits(self, pod: PodKey) -> bool:
        """Whether its first token is still to come. Cheap enough for every response."""
        return pod in self._awaited

    def served(self, pod: PodKey, at: float) -> None:
        """A counter of tokens or finished requests of its engine has risen from zero, in the response of `at`."""
        awaited = self._awaited.pop(pod, None)
        if awaited is not None:
            took = max(at - awaited.ready_at, 0.0)
            self._finish(awaited, took if took <= FIRST_TOKEN_S else np.nan)

    def passed(self, now: float) -> None:
        """Ends the starts whose first token did not come: no request waited for them."""
        for pod, awaited in list(self._awaited.items()):
            if now - awaited.ready_at > FIRST_TOKEN_S:
                del self._awaited[pod]
                self._finish(awaited, np.nan)

    def _finish(self, start: _Awaited, first_token: float) -> None:
        seconds = start.until_ready + np.nan_to_num(first_token)
        histograms = self._zero if start.first else self._further
        histograms.add(np.array([start.row]), np.array([seconds]), start.ready_at)
        self._last[start.row] = np.fmax(self._last[start.row], start.ready_at)
        self._measure(np.array([start.row]))

    def _measure(self, rows: Rows) -> None:
        further, zero = _times_of(self._further, rows), _times_of(self._zero, rows)
        for times, mine, other in ((self.times, further, zero), (self.zero_times, zero, further)):
            for column, new, instead in zip(times, mine, other, strict=True):
                column[rows] = np.where(np.isnan(new), instead, new)

    def columns(self) -> dict[str, Array]:
        """The state that a checkpoint keeps, one slot per workload."""
        further, zero = self._further.columns("coldstarts.whole"), self._zero.columns("coldstarts.zero")
        return {"coldstarts.last_at": self._last, **further, **zero}

    def take(self, columns: Columns, rows: Rows, source_rows: Rows) -> None:
        """Copies state from `columns[source_rows]` into `rows`, pairwise; a missing column changes nothing."""
        self._further.take("coldstarts.whole", columns, rows, source_rows)
        self._zero.take("coldstarts.zero", columns, rows, source_rows)
        copy_into({"coldstarts.last_at": self._last}, columns, rows, source_rows)
        self._measure(rows)

    def go_on(self, other: Starts, rows: Rows, source_rows: Rows) -> None:
        """Beside `take`, within one process: starts under way go on."""
        moved = dict(zip(source_rows.tolist(), rows.tolist(), strict=True))
        for old, new in moved.items():
            self._pods[new] = other._pods[old]
        self._awaited |= {
            pod: awaited._replace(row=moved[awaited.row])
            for pod, awaited in other._awaited.items()
            if awaited.row in moved
        }


def _ready_since(pod: Pod) -> tuple[float, str]:
    """When it became ready, for a comparison: before all others if that is not known any more."""
    return -np.inf if pod.ready_at is None else pod.ready_at, pod.uid


def _times_of(histograms: Histograms, rows: Rows) -> ColdStarts:
    """Those of `rows`, in their order."""
    times = ColdStarts.unmeasured(len(rows))
    places = np.flatnonzero(~np.isnan(histograms.reference[rows]))  # without the rows that have no start
    if not len(places):
        return times
    p50, p90 = histograms.quantiles((0.5, 0.9), rows[places])
    # As in a quantile a start counts as the upper end of its bucket: of one length all three are the same.
    lengths = np.minimum(np.append(EDGES[1:], EDGES[-1]), p90[:, None])
    mean = (histograms.shares(rows[places]) * lengths).sum(axis=1)
    for column, new in zip(times, (p50, p90, mean), strict=True):
        column[places] = new
    return times


def _seconds_until_ready(start: _Start, pod: Pod, ready_at: float) -> float:
    """The scheduling and loading of a start, as far as they are known; NaN unknown."""
    scheduled_at = pod.scheduled_at if pod.scheduled_at is not None else pod.started_at
    if scheduled_at is None:
        return np.nan
    scheduling = 0.0
    if start.from_the_first and pod.created_at is not None:
        # The times are whole seconds of several clocks: a difference below zero is zero.
        since = start.unscheduled_since
        scheduling = max((scheduled_at if since is None else since) - pod.created_at, 0.0)
    return scheduling + max(ready_at - scheduled_at, 0.0)

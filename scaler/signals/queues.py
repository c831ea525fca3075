"""Reads the queues of one workload from the response of an engine or a gateway, as the columns of a slot. Pure.

A response may have several queues, of which a workload may have chosen one; a gateway may repeat the metrics of its
engines. `Kind.at_zero` tells which series of a kind still change at zero replicas; whether this response has them is
checked here: that is the wake source.

An incomplete quantity (see `exporter.catalog.completeness`) is a lower bound of what is known of it: it counts as
demand and proves nothing.

Worked example: EPP with two requests in its own queue, in front of pods that are scraped themselves: HELD is 2, WAITING
and RUNNING are unknown (they repeat those of the pods), and its queue is a wake source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum, IntFlag
from math import isnan, nan
from typing import NamedTuple

import numpy as np

from exporter.catalog import KINDS, Kind
from exporter.histogram import Latency
from exporter.model import Floats, Gap, Quantity, Role, Samples
from scaler.columns import Rows

from .rates import NO_SPLITS, SloSplits
from .slots import ACTIVITY, WIDTH, Column

# Counts that are sums over the queues of a response.
QUEUE_COLUMNS = (
    (Column.WAITING, Quantity.REQUESTS_WAITING),
    (Column.RUNNING, Quantity.REQUESTS_RUNNING),
    (Column.HELD, Quantity.REQUESTS_HELD),
    (Column.READY, Quantity.REPLICAS_READY),
)


_NOTHING_READ = np.full(WIDTH, nan)
_REPEATED = frozenset({Quantity.REQUESTS_WAITING, Quantity.REQUESTS_RUNNING})
IN_HAND = _REPEATED | {Quantity.REQUESTS_HELD}


class WakeSource(IntEnum):
    """Which series of a target show a request that comes at zero replicas."""

    NOTHING = 0
    REFUSALS = 1  # only a counter of rejected, or of all requests
    QUEUE = 2  # the request itself, which waits


class Incomplete(IntFlag):
    """Which quantities of a response are lower bounds."""

    NOTHING = 0
    IN_HAND = 1  # requests waiting, running or held
    COUNTERS = 2  # the counters that rise with activity
    KV_CACHE = 4


_GROUPS = {
    **dict.fromkeys(IN_HAND, Incomplete.IN_HAND),
    **dict.fromkeys(ACTIVITY, Incomplete.COUNTERS),
    Quantity.KV_CACHE_USED: Incomplete.KV_CACHE,
}


class QueuePage(NamedTuple):
    """The queues of one workload in one response.

    values:   shape (slots.WIDTH,), NaN if not exposed.
    sums:     over its queues, of counters too; NaN if one is not known.
    at:       POSIX seconds of its oldest part.
    arrivals: with REFUSALS, whether the counter of finished requests rises with a request that finds no replica (all
              are counted as they arrive), or that of failed ones.
    gaps:     the incomplete series of the quantities that count here.
    splits:   the latencies of an engine at the SLO.
    lags:     the requests in hand may be older than the counters: `Kind.lags`.
    forgets:  the counters of requests leave out those that their clients leave: `Kind.forgets`.
    """

    values: Floats
    sums: Mapping[Quantity, float]
    at: float
    wake_source: WakeSource
    arrivals: bool = False
    incomplete: Incomplete = Incomplete.NOTHING
    gaps: tuple[Gap, ...] = ()
    splits: SloSplits = NO_SPLITS
    lags: bool = False
    forgets: bool = False

    @property
    def counters(self) -> Floats:
        """The counters that rise with activity, in the order of ACTIVITY; NaN if not exposed."""
        return np.array([self.sums.get(quantity, nan) for quantity in ACTIVITY])


def read(
    samples: Samples,
    role: Role,
    queue: str | None,
    at: float,
    *,
    pods: bool,
    namespace: str = "",
    slo: tuple[float, float] | None = None,
) -> QueuePage:
    """Reads one response. queue: the one that counts; None is all. pods: the engines are scraped themselves.

    at: POSIX seconds of receipt. namespace: the workload's; of a kind whose queues have one, only those in it count.
    slo: seconds until the first token, and per output token.
    """
    kind = KINDS[samples.kind]
    full = f"{namespace}/{queue}" if kind.namespaced and queue is not None else queue
    chosen = _chosen(samples, queue, full)
    gaps = _gaps(samples, chosen) if samples.gaps else ()
    sums = _sums(samples, chosen, gaps)
    values = _NOTHING_READ.copy()
    for column, quantity in QUEUE_COLUMNS:
        values[column] = sums.get(quantity, nan)
    values[Column.KV_CACHE] = _mean(_present(samples, chosen, Quantity.KV_CACHE_USED))
    values[Column.SLEEPING] = _any_zero(_present(samples, chosen, Quantity.ENGINE_AWAKE))
    measured = min(samples.at[chosen].tolist(), default=at)
    if role is not Role.GATEWAY:
        splits = NO_SPLITS if slo is None else _splits(samples, chosen, *slo)
        return QueuePage(
            values, sums, min(measured, at), WakeSource.NOTHING, incomplete=incomplete(gaps), gaps=gaps, splits=splits,
            lags=kind.lags, forgets=kind.forgets,
        )  # fmt: skip
    wake_source = _wake_source(kind.at_zero, values, sums, repeats=kind.repeats_engines)
    values[Column.OPEN] = _open(kind, values, sums, wake_source)
    if Quantity.REQUESTS_OPEN in sums and not kind.repeats_engines:
        # Ray Serve: what its handles have passed on runs in replicas, which count it themselves.
        values[Column.RUNNING] = nan if pods else sums[Quantity.REQUESTS_OPEN]
    if pods and kind.repeats_engines:
        if kind.at_zero == "in_flight":
            values[Column.IN_FLIGHT] = np.nansum([values[Column.WAITING], values[Column.RUNNING]])
        else:
            gaps = tuple(gap for gap in gaps if gap.quantity not in _REPEATED)
        values[[Column.WAITING, Column.RUNNING]] = nan
    counted = kind.at_zero == "counted"
    return QueuePage(values, sums, min(measured, at), wake_source, counted, incomplete(gaps), gaps)


def incomplete(gaps: Iterable[Gap]) -> Incomplete:
    """Which groups of quantities these gaps make lower bounds."""
    found = Incomplete.NOTHING
    for gap in gaps:
        found |= _GROUPS.get(gap.quantity, Incomplete.NOTHING)
    return found


def has_served(samples: Samples) -> bool:
    """Whether an engine has counted a generated token or a finished request."""
    counted = (samples.column(quantity) for quantity in (Quantity.TOKENS_GENERATED, Quantity.REQUESTS_FINISHED))
    return any(bool((column > 0.0).any()) for column in counted)


def _wake_source(at_zero: str, values: Floats, sums: Mapping[Quantity, float], *, repeats: bool) -> WakeSource:
    in_hand = not isnan(values[Column.WAITING]) or not isnan(values[Column.RUNNING])
    if at_zero == "in_flight":
        queue = in_hand or not isnan(values[Column.HELD])
    else:
        # A metric that it repeats of its engines is gone with them; its own queue is not.
        queue = at_zero == "queue" and (not isnan(values[Column.HELD]) or (in_hand and not repeats))
    if queue:
        return WakeSource.QUEUE
    counter = Quantity.REQUESTS_FINISHED if at_zero == "counted" else Quantity.REQUESTS_FAILED
    refuses = at_zero != "nothing" and not isnan(sums.get(counter, nan))
    return WakeSource.REFUSALS if refuses else WakeSource.NOTHING


def _open(kind: Kind, values: Floats, sums: Mapping[Quantity, float], wake_source: WakeSource) -> float:
    """Requests in engines as the gateway itself counts them: those that wait in an engine that sleeps are among them.

    0 if its requests in hand count whether engines show them or not; NaN if it would not show such a request.
    """
    if not kind.repeats_engines:
        return 0.0 if wake_source is WakeSource.QUEUE else nan
    if Quantity.REQUESTS_OPEN in sums or not kind.counts_open or kind.feeds:
        return sums.get(Quantity.REQUESTS_OPEN, nan)
    in_hand = [values[column] for column in (Column.WAITING, Column.RUNNING) if not isnan(values[column])]
    return sum(in_hand) if in_hand else nan


def _chosen(samples: Samples, *names: str | None) -> Rows:
    """Rows of the queues with one of these names; None is any."""
    rows = [
        index
        for index, subject in enumerate(samples.subjects)
        if (name := getattr(subject, "name", None)) is not None and (None in names or name in names)
    ]
    return np.array(rows, dtype=np.int64)


def _splits(samples: Samples, chosen: Rows, ttft_s: float, itl_s: float) -> SloSplits:
    # A queue that is missing has a row and no histogram: then neither is known.
    rows, histograms = chosen.tolist(), samples.histograms
    ttft, tpot = histograms.split(Latency.TTFT, rows, ttft_s), histograms.split(Latency.TPOT, rows, itl_s)
    return SloSplits(ttft_s, itl_s, ttft, tpot)


def _gaps(samples: Samples, rows: Rows) -> tuple[Gap, ...]:
    chosen = set(rows.tolist())
    return tuple(gap for gap in samples.gaps if gap.row in chosen)


def _sums(samples: Samples, rows: Rows, gaps: Sequence[Gap]) -> dict[Quantity, float]:
    """Sums over queues. One unknown value makes the sum NaN: unknown is never zero.

    Incomplete requests in hand are the sum of what is known. An incomplete counter stays NaN, because a smaller sum
    looks like a restart.
    """
    if not len(rows):
        return {}
    # A queue that is missing as a whole makes only those quantities incomplete that it had.
    missing = {gap.row for gap in gaps if np.isnan(samples.values[gap.row]).all()}
    there = [row for row in rows.tolist() if row not in missing]
    totals: list[float]
    if len(there) == 1:
        totals = samples.values[there[0]].tolist()
    else:
        totals = samples.values[there].sum(axis=0).tolist() if there else [nan] * len(samples.quantities)
    sums = dict(zip(samples.quantities, totals, strict=True))
    for quantity in {gap.quantity for gap in gaps} & sums.keys():
        sums[quantity] = nan
    for quantity in {gap.quantity for gap in gaps} & IN_HAND & sums.keys():
        parts = [
            *samples.column(quantity)[rows],
            *{gap.row: gap.at_least for gap in gaps if gap.quantity is quantity}.values(),
        ]
        sums[quantity] = float(np.nansum(parts)) if not np.isnan(parts).all() else nan
    return sums


def _present(samples: Samples, rows: Rows, quantity: Quantity) -> list[float]:
    """The values of these rows that are not NaN."""
    if quantity not in samples.quantities:
        return []
    return [value for value in samples.column(quantity)[rows].tolist() if not isnan(value)]


def _any_zero(values: Sequence[float]) -> float:
    """1 if a value is 0, 0 if none is, NaN if there is none."""
    return float(0.0 in values) if values else nan


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else nan

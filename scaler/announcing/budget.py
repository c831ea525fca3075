"""How many Events may be written, and what is a new one and what the same again. Pure; `now` is POSIX seconds.

Events are kept in etcd beside everything else, so that a fault of ours or a fleet-wide outage must not fill it. Two
buckets: one for each workload, with the numbers of client-go's spam filter (25 at once, then one in five minutes, for
each source and object: tools/record/events_cache.go), and one for all of them, with the rate that client-go allows a
client (5 per second: rest/config.go) and a burst of ten seconds of it. The same news of the same workload within six
minutes (`finishTime` of tools/events) belongs to one series: one Event, counted on.

Worked example: `take(chat, HELD, 0.0)` is `NEW`; after `written(chat, HELD, "chat.5f3a", 0.0)`, `take(chat, HELD,
60.0)` is `Again("chat.5f3a", 2)`. The 26th at once is None, and what is taken after that counts it.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias, TypeVar

from exporter.model import WorkloadKey

from .words import Kind

SERIES_S = 360.0
# What is remembered of: client-go's maxLruCacheEntries.
MOST = 4096


class Rate(NamedTuple):
    burst: float
    per_s: float


WORKLOAD = Rate(25.0, 1 / 300)
FLEET = Rate(50.0, 5.0)


class Bucket(NamedTuple):
    """left: at `at`, POSIX seconds."""

    left: float
    at: float

    def level(self, rate: Rate, now: float) -> float:
        return min(rate.burst, self.left + max(0.0, now - self.at) * rate.per_s)


@dataclass(frozen=True, slots=True)
class New:
    """Write an Event of its own."""


@dataclass(frozen=True, slots=True)
class Again:
    """Raise the count of the Event of that name. count: of all times, those included that nothing was written of."""

    name: str
    count: int


NEW: Final = New()
Key: TypeAlias = tuple[WorkloadKey, Kind]
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(slots=True)
class _Series:
    name: str
    count: int
    at: float


class Budget:
    def __init__(self) -> None:
        self._fleet: Bucket | None = None
        self._workloads: dict[WorkloadKey, Bucket] = {}
        self._series: dict[Key, _Series] = {}

    def take(self, workload: WorkloadKey, kind: Kind, now: float) -> New | Again | None:
        """What is to be written of this news; None: nothing, there has been too much."""
        series = self._series.get((workload, kind))
        if series is not None and now - series.at > SERIES_S:
            series = None
        if series is not None:
            series.count, series.at = series.count + 1, now
        own = self._workloads.get(workload, Bucket(WORKLOAD.burst, now)).level(WORKLOAD, now)
        fleet = FLEET.burst if self._fleet is None else self._fleet.level(FLEET, now)
        if own < 1.0 or fleet < 1.0:
            return None
        _keep(self._workloads, workload, Bucket(own - 1.0, now))
        self._fleet = Bucket(fleet - 1.0, now)
        return NEW if series is None else Again(series.name, series.count)

    def written(self, workload: WorkloadKey, kind: Kind, name: str, now: float) -> None:
        """There is an Event of this name now, of one time."""
        _keep(self._series, (workload, kind), _Series(name, 1, now))

    def gone(self, workload: WorkloadKey, kind: Kind) -> None:
        """The Event of this series is not kept any more; the next news is a new one."""
        self._series.pop((workload, kind), None)


def _keep(kept: dict[K, V], key: K, value: V) -> None:
    """The latest at the end; what was used longest ago is forgotten."""
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > MOST:
        del kept[next(iter(kept))]

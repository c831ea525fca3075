"""Writes Kubernetes Events about decisions, never at the cost of a decision.

Changes of decisions enter a bounded queue; what does not fit is dropped and counted. One task empties the queue. With
several replicas of Tidegate only the leader writes; the others drop the same changes, so a new leader repeats none.

Events are in etcd beside all other objects, so neither a bug nor a fleet-wide outage may fill it. Two token buckets
limit them: one per workload, with the numbers of client-go's spam filter (25 at once, then one in five minutes, for
each source and object: tools/record/events_cache.go), and one for all workloads, with the rate that client-go allows a
client (5 per second: rest/config.go) and a burst of ten seconds of it. The same reason of the same workload within six
minutes (`finishTime` of tools/events) belongs to one series: one Event with a count.

An Event is on the object that the workload scales, because people describe that. Of workload `ai/chat`, made by the
ScaledObject `ai/chat` that scales Deployment `ai/llama`, it is `EventObject(subject=the Deployment, related=the
ScaledObject)`. If the target does not exist or its kind is not watched, the ScaledObject is the subject.

Worked example: `budget.take(chat, HELD, 0.0)` is `NEW`; after `written(chat, HELD, "chat.5f3a", 0.0)`,
`take(chat, HELD, 60.0)` is `Again("chat.5f3a", 2)`. The 26th at once is None, and the next one that is allowed counts
it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, NamedTuple, TypeVar

import structlog

from exporter.clock import Clock
from exporter.kubernetes.cache import Cluster
from exporter.kubernetes.events import EventRecord, Events, Subject
from exporter.kubernetes.objects import Ref
from exporter.kubernetes.protocol import ApiFailure, Forbidden, NamespaceTerminating
from exporter.model import WorkloadKey, printable
from scaler.explain.event_text import EventReason, news, sentence
from scaler.model import Decision

# The bucket of the fleet writes 50 at once and 5 per second: after 1,000 others an Event would be minutes late.
MOST_WAITING = 1000
# If RBAC refuses, a Role must change: until then each try is one more refusal in the audit log.
REFUSED_S = 300.0
REPORT_DROPPED_S = 60.0
SERIES_S = 360.0
MOST = 4096  # workloads and series with state: client-go's maxLruCacheEntries
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Rate(NamedTuple):
    """State of a token bucket."""

    burst: float
    per_s: float


WORKLOAD = Rate(25.0, 1 / 300)
FLEET = Rate(50.0, 5.0)


class _Change(NamedTuple):
    """Two successive decisions, and the reason of the Event. at: POSIX seconds of the second."""

    reason: EventReason
    before: Decision
    after: Decision
    at: float


class EventWriter:
    """Queues changes and writes Events.

    object_of:  the objects of a workload's Events; None if the cluster has none.
    writes:     whether this process writes at this moment, POSIX seconds.
    instance:   the name of this process.
    on_written: called for each Event that was written or counted.
    on_dropped: called with the cause and the number of those that were not: "queue" (full), "budget", "no_object",
                "refused" (RBAC), "failed" (the API server did not accept it).
    on_problem: called with the namespace ("" is all) and why Events cannot be written, and with None once they can.
    """

    def __init__(
        self,
        *,
        object_of: Callable[[WorkloadKey], EventObject | None],
        writes: Callable[[float], bool],
        instance: str,
        clock: Clock,
        on_written: Callable[[], None],
        on_dropped: Callable[[str, int], None],
        on_problem: Callable[[str, str | None], None],
    ) -> None:
        self._object_of, self._writes, self._instance, self._clock = object_of, writes, instance, clock
        self._on_written, self._on_dropped, self._on_problem = on_written, on_dropped, on_problem
        self._waiting: asyncio.Queue[_Change] = asyncio.Queue(MOST_WAITING)
        self._budget = EventBudget()
        self._dropped: Counter[EventReason] = Counter()  # since the last report
        self._refused: dict[str, float] = {}  # until when, by namespace
        self._failing: set[str] = set()  # reported namespaces; "" is all
        self._log = structlog.get_logger()

    def add(self, before: Mapping[WorkloadKey, Decision], changed: Mapping[WorkloadKey, Decision], at: float) -> None:
        """Queues changed decisions; does not wait. before: all decisions as they were."""
        if not self._writes(at):
            return
        dropped: Counter[EventReason] = Counter()
        for workload, after in changed.items():
            last = before.get(workload)
            if last is None:
                continue
            for reason in news(last, after, at):
                if self._waiting.full():
                    dropped[reason] += 1
                else:
                    self._waiting.put_nowait(_Change(reason, last, after, at))
        if dropped:
            self._drop(dropped, "queue")

    async def run(self, events: Events) -> None:
        """Writes until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._write_forever(events), name="Events")
            tasks.create_task(self._report_dropped_forever(), name="dropped Events")

    def _drop(self, reasons: Counter[EventReason], why: str) -> None:
        self._dropped += reasons
        self._on_dropped(why, reasons.total())

    async def _write_forever(self, events: Events) -> None:
        while True:
            await self._write(await self._waiting.get(), events)

    async def _write(self, change: _Change, events: Events) -> None:
        workload, now = change.after.workload, self._clock.now()
        objects = self._object_of(workload)
        if objects is None:
            self._on_dropped("no_object", 1)
            return
        namespace = objects.subject.ref.namespace
        if now < self._refused.get(namespace, now):
            self._on_dropped("refused", 1)
            return
        allowed = self._budget.take(workload, change.reason, now)
        if allowed is None:
            self._drop(Counter((change.reason,)), "budget")
            return
        try:
            if not (isinstance(allowed, Again) and await self._repeat(change, allowed, namespace, events)):
                happening = EventRecord(
                    objects.subject,
                    objects.related,
                    change.reason.type,
                    change.reason.value,
                    change.reason.action,
                    printable(sentence(change.reason, change.before, change.after)),
                    change.at,
                )
                name = await events.write_event(happening, self._instance)
                self._budget.written(workload, change.reason, name, now)
        except ApiFailure as failed:
            self._fail(namespace, failed)
            return
        self._on_written()
        self._recover(namespace)

    async def _repeat(self, change: _Change, again: Again, namespace: str, events: Events) -> bool:
        """Raises the count of the Event. False if it no longer exists. Raises ApiFailure."""
        try:
            await events.repeat_event(namespace, again.name, again.count, change.at)
        except ApiFailure as failed:
            if failed.status != HTTPStatus.NOT_FOUND:
                raise
            self._budget.gone(change.after.workload, change.reason)
            return False
        return True

    def _fail(self, namespace: str, failed: ApiFailure) -> None:
        if isinstance(failed, NamespaceTerminating) or failed.status == HTTPStatus.NOT_FOUND:
            self._on_dropped("no_object", 1)  # the namespace is being deleted, or is gone
            return
        refused = isinstance(failed, Forbidden)
        if refused:
            self._refused[namespace] = self._clock.now() + REFUSED_S
        self._on_dropped("refused" if refused else "failed", 1)
        where = namespace if refused else ""
        if where not in self._failing:
            self._failing.add(where)
            self._on_problem(where, failed.detail)

    def _recover(self, namespace: str) -> None:
        for where in self._failing & {namespace, ""}:
            self._failing.discard(where)
            self._on_problem(where, None)

    async def _report_dropped_forever(self) -> None:
        while True:
            await self._clock.sleep(REPORT_DROPPED_S)
            if self._dropped:
                by_reason = {str(reason): count for reason, count in sorted(self._dropped.items())}
                self._log.warning("Events dropped", count=sum(by_reason.values()), of=by_reason)
                self._dropped.clear()


class Bucket(NamedTuple):
    """A token bucket. left: tokens at `at`, POSIX seconds."""

    left: float
    at: float

    def level(self, rate: Rate, now: float) -> float:
        return min(rate.burst, self.left + max(0.0, now - self.at) * rate.per_s)


@dataclass(frozen=True, slots=True)
class New:
    """Write a new Event."""


@dataclass(frozen=True, slots=True)
class Again:
    """Set the count of the Event of that name. count: includes those that were not written."""

    name: str
    count: int


NEW: Final = New()


@dataclass(slots=True)
class _EventSeries:
    name: str
    count: int
    at: float


class EventBudget:
    """Limits how many Events are written, and finds series."""

    def __init__(self) -> None:
        self._fleet = Bucket(FLEET.burst, float("-inf"))
        self._workloads: dict[WorkloadKey, Bucket] = {}
        self._series: dict[tuple[WorkloadKey, EventReason], _EventSeries] = {}

    def take(self, workload: WorkloadKey, reason: EventReason, now: float) -> New | Again | None:
        """Returns the Event to write, or None if a bucket is empty. now: POSIX seconds."""
        series = self._series.get((workload, reason))
        if series is not None and now - series.at > SERIES_S:
            series = None
        if series is not None:
            series.count, series.at = series.count + 1, now
        level = self._workloads.get(workload, Bucket(WORKLOAD.burst, now)).level(WORKLOAD, now)
        fleet = self._fleet.level(FLEET, now)
        if level < 1.0 or fleet < 1.0:
            return None
        _put(self._workloads, workload, Bucket(level - 1.0, now))
        self._fleet = Bucket(fleet - 1.0, now)
        return NEW if series is None else Again(series.name, series.count)

    def written(self, workload: WorkloadKey, reason: EventReason, name: str, now: float) -> None:
        """Begins a series with the Event of this name."""
        _put(self._series, (workload, reason), _EventSeries(name, 1, now))

    def gone(self, workload: WorkloadKey, reason: EventReason) -> None:
        """Ends a series: its Event no longer exists."""
        self._series.pop((workload, reason), None)


def _put(entries: dict[K, V], key: K, value: V) -> None:
    """Adds an entry as the newest; drops the oldest above MOST."""
    entries.pop(key, None)
    entries[key] = value
    if len(entries) > MOST:
        del entries[next(iter(entries))]


class EventObject(NamedTuple):
    """The object of an Event. related: the ScaledObject or ScaledJob of the workload, if it is not the subject."""

    subject: Subject
    related: Subject | None = None


def event_object(cluster: Cluster, targets: Mapping[WorkloadKey, Ref], workload: WorkloadKey) -> EventObject | None:
    """targets: what each workload scales. None if the cluster has no such object."""
    named = [Ref(workload.namespace, kind, workload.name) for kind in ("ScaledObject", "ScaledJob")]
    scaled = next((found for ref in named if (found := cluster.subject(ref)) is not None), None)
    target = targets.get(workload)
    subject = None if target is None else cluster.subject(target)
    if subject is None:
        return None if scaled is None else EventObject(scaled)
    return EventObject(subject, None if scaled == subject else scaled)

"""What the Board's changes give to tell, written as Events: never at the cost of a decision.

The publisher says what has changed and waits for nobody: what is worth an Event goes into a queue, and what does not
fit is left out and counted. One task empties it. Where there are several replicas only the leader writes; the others
hear the same changes, so that a new leader does not tell them again.

Worked example: `publisher.on_change = announcer.heard`, and `announcer.run(client)` in a task.

How many Events may be written, and what is a new one and what the same again. Pure; `now` is POSIX seconds.

Events are kept in etcd beside everything else, so that a fault of ours or a fleet-wide outage must not fill it. Two
buckets: one for each workload, with the numbers of client-go's spam filter (25 at once, then one in five minutes, for
each source and object: tools/record/events_cache.go), and one for all of them, with the rate that client-go allows a
client (5 per second: rest/config.go) and a burst of ten seconds of it. The same news of the same workload within six
minutes (`finishTime` of tools/events) belongs to one series: one Event, counted on.

Worked example: `take(chat, HELD, 0.0)` is `NEW`; after `written(chat, HELD, "chat.5f3a", 0.0)`, `take(chat, HELD,
60.0)` is `Again("chat.5f3a", 2)`. The 26th at once is None, and what is taken after that counts it.

Where a workload's Events belong: on what it scales, because that is what people describe. Pure.

Worked example: of workload `ai/chat`, made by the ScaledObject `ai/chat` that scales Deployment `ai/llama`, it is
`Place(subject=the Deployment, related=the ScaledObject)`. Of a target that the cluster does not have, or of a kind that
is not watched, the ScaledObject itself is the subject.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar

import structlog

from exporter.clock import Clock
from exporter.kubernetes.events import Events, Happening, Subject
from exporter.kubernetes.objects import Ref
from exporter.kubernetes.protocol import ApiFailure, Ending, Forbidden
from exporter.model import WorkloadKey, printable
from scaler.explain.event_text import EventReason, news, sentence
from scaler.model import Decision

# News that wait to be written. The fleet's budget writes 50 at once and 5 per second: what stands behind a thousand
# others would be told minutes late, if ever.
MOST_WAITING = 1000
# Where RBAC says no, somebody has to change a Role: until then each try is one more refusal in the audit log.
REFUSED_S = 300.0
SAY_LEFT_OUT_S = 60.0


class _News(NamedTuple):
    kind: EventReason
    before: Decision
    after: Decision
    at: float


class EventWriter:
    """place:   what a workload's Events are on; None where the cluster has no such object, or none that is watched.
    writes:  is it for this process to write, at this moment (POSIX seconds)?
    instance: which process says so.
    written: told of each Event that was written or counted on. dropped: why some were not, and how many: "queue" (too
             many waited), "budget", "no_object", "refused" (RBAC), "failed" (the API did not take it).
    told:    why nothing can be written (in a namespace, or anywhere: ""), and None once it can be.
    """

    def __init__(
        self,
        *,
        place: Callable[[WorkloadKey], EventObject | None],
        writes: Callable[[float], bool],
        instance: str,
        clock: Clock,
        written: Callable[[], None],
        dropped: Callable[[str, int], None],
        told: Callable[[str, str | None], None],
    ) -> None:
        self._place, self._writes, self._instance, self._clock = place, writes, instance, clock
        self._written, self._dropped, self._told = written, dropped, told
        self._waiting: asyncio.Queue[_News] = asyncio.Queue(MOST_WAITING)
        self._budget = EventBudget()
        self._left_out: Counter[EventReason] = Counter()
        self._refused: dict[str, float] = {}  # until when, by namespace
        self._failing: set[str] = set()  # where that was said; "" is everywhere
        self._log = structlog.get_logger()

    def heard(self, before: Mapping[WorkloadKey, Decision], changed: Mapping[WorkloadKey, Decision], at: float) -> None:
        """Answers have changed. before: all of them as they were. Waits for nothing."""
        if not self._writes(at):
            return
        left_out: Counter[EventReason] = Counter()
        for workload, after in changed.items():
            was = before.get(workload)
            if was is None:
                continue
            for kind in news(was, after, at):
                if self._waiting.full():
                    left_out[kind] += 1
                else:
                    self._waiting.put_nowait(_News(kind, was, after, at))
        if left_out:
            self._leave_out(left_out, "queue")

    async def run(self, events: Events) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._write_forever(events), name="Events")
            tasks.create_task(self._say_left_out_forever(), name="what Events leave out")

    def _leave_out(self, kinds: Counter[EventReason], why: str) -> None:
        self._left_out += kinds
        self._dropped(why, kinds.total())

    async def _write_forever(self, events: Events) -> None:
        while True:
            await self._write(await self._waiting.get(), events)

    async def _write(self, told: _News, events: Events) -> None:
        workload, now = told.after.workload, self._clock.now()
        place = self._place(workload)
        if place is None:
            self._dropped("no_object", 1)
            return
        namespace = place.subject.ref.namespace
        if now < self._refused.get(namespace, now):
            self._dropped("refused", 1)
            return
        taken = self._budget.take(workload, told.kind, now)
        if taken is None:
            self._leave_out(Counter((told.kind,)), "budget")
            return
        try:
            if not (isinstance(taken, Again) and await self._count_on(told, taken, namespace, events)):
                happening = Happening(
                    place.subject,
                    place.related,
                    told.kind.type,
                    told.kind.value,
                    told.kind.action,
                    printable(sentence(told.kind, told.before, told.after)),
                    told.at,
                )
                name = await events.write_event(happening, self._instance)
                self._budget.written(workload, told.kind, name, now)
        except ApiFailure as failed:
            self._fail(namespace, failed)
            return
        self._written()
        self._works(namespace)

    async def _count_on(self, told: _News, taken: Again, namespace: str, events: Events) -> bool:
        """Raise the count of the Event that is there; False: it is there no more. Raises ApiFailure."""
        try:
            await events.repeat_event(namespace, taken.name, taken.count, told.at)
        except ApiFailure as failed:
            if failed.status != HTTPStatus.NOT_FOUND:
                raise
            self._budget.gone(told.after.workload, told.kind)
            return False
        return True

    def _fail(self, namespace: str, failed: ApiFailure) -> None:
        if isinstance(failed, Ending) or failed.status == HTTPStatus.NOT_FOUND:
            self._dropped("no_object", 1)  # the namespace goes, or has gone: with it what this was about
            return
        refused = isinstance(failed, Forbidden)
        if refused:
            self._refused[namespace] = self._clock.now() + REFUSED_S
        self._dropped("refused" if refused else "failed", 1)
        where = namespace if refused else ""
        if where not in self._failing:
            self._failing.add(where)
            self._told(where, failed.detail)

    def _works(self, namespace: str) -> None:
        for where in self._failing & {namespace, ""}:
            self._failing.discard(where)
            self._told(where, None)

    async def _say_left_out_forever(self) -> None:
        while True:
            await self._clock.sleep(SAY_LEFT_OUT_S)
            if self._left_out:
                by_kind = {str(kind): count for kind, count in sorted(self._left_out.items())}
                more = sum(by_kind.values())
                self._log.warning("more happened than Events were written of", more=more, of=by_kind)
                self._left_out.clear()


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
Key: TypeAlias = tuple[WorkloadKey, EventReason]
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(slots=True)
class _EventSeries:
    name: str
    count: int
    at: float


class EventBudget:
    def __init__(self) -> None:
        self._fleet: Bucket | None = None
        self._workloads: dict[WorkloadKey, Bucket] = {}
        self._series: dict[Key, _EventSeries] = {}

    def take(self, workload: WorkloadKey, kind: EventReason, now: float) -> New | Again | None:
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

    def written(self, workload: WorkloadKey, kind: EventReason, name: str, now: float) -> None:
        """There is an Event of this name now, of one time."""
        _keep(self._series, (workload, kind), _EventSeries(name, 1, now))

    def gone(self, workload: WorkloadKey, kind: EventReason) -> None:
        """The Event of this series is not kept any more; the next news is a new one."""
        self._series.pop((workload, kind), None)


def _keep(kept: dict[K, V], key: K, value: V) -> None:
    """The latest at the end; what was used longest ago is forgotten."""
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > MOST:
        del kept[next(iter(kept))]


class Subjects(Protocol):
    """What of a cluster is asked here."""

    def subject(self, ref: Ref) -> Subject | None: ...


class EventObject(NamedTuple):
    """related: the ScaledObject or ScaledJob that made the workload, where that is not itself the subject."""

    subject: Subject
    related: Subject | None = None


def place(cluster: Subjects, targets: Mapping[WorkloadKey, Ref], workload: WorkloadKey) -> EventObject | None:
    """targets: what each workload scales. None: the cluster has nothing to write on."""
    named = [Ref(workload.namespace, kind, workload.name) for kind in ("ScaledObject", "ScaledJob")]
    asks = next((found for ref in named if (found := cluster.subject(ref)) is not None), None)
    target = targets.get(workload)
    subject = None if target is None else cluster.subject(target)
    if subject is None:
        return None if asks is None else EventObject(asks)
    return EventObject(subject, None if asks == subject else asks)

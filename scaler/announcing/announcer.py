"""What the Board's changes give to tell, written as Events: never at the cost of a decision.

The publisher says what has changed and waits for nobody: what is worth an Event goes into a queue, and what does not
fit is left out and counted. One task empties it. Where there are several replicas only the leader writes; the others
hear the same changes, so that a new leader does not tell them again.

Worked example: `publisher.on_change = announcer.heard`, and `announcer.run(client)` in a task.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple

import structlog

from exporter.clock import Clock
from exporter.cluster.api import ApiFailure, Ending, Refused
from exporter.cluster.events import Events, Happening
from exporter.model import WorkloadKey, printable

from ..board import Decision
from .budget import Again, Budget
from .place import Place
from .words import Kind, news, sentence

# News that wait to be written. The fleet's budget writes 50 at once and 5 per second: what stands behind a thousand
# others would be told minutes late, if ever.
MOST_WAITING = 1000
# Where RBAC says no, somebody has to change a Role: until then each try is one more refusal in the audit log.
REFUSED_S = 300.0
SAY_LEFT_OUT_S = 60.0


class _News(NamedTuple):
    kind: Kind
    before: Decision
    after: Decision
    at: float


class Announcer:
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
        place: Callable[[WorkloadKey], Place | None],
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
        self._budget = Budget()
        self._left_out: Counter[Kind] = Counter()
        self._refused: dict[str, float] = {}  # until when, by namespace
        self._failing: set[str] = set()  # where that was said; "" is everywhere
        self._log = structlog.get_logger()

    def heard(self, before: Mapping[WorkloadKey, Decision], changed: Mapping[WorkloadKey, Decision], at: float) -> None:
        """Answers have changed. before: all of them as they were. Waits for nothing."""
        if not self._writes(at):
            return
        left_out: Counter[Kind] = Counter()
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

    def _leave_out(self, kinds: Counter[Kind], why: str) -> None:
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
        refused = isinstance(failed, Refused)
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

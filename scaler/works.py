"""Scrapes and ticks: what a configuration sets going, and what a new one replaces.

Everything compiled is behind this module: importing it compiles the kernels, which takes seconds without a cache on
disk. So the daemon listens first and imports it then, in a thread: KEDA's GetMetricSpec is answered meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from exporter.clock import Clock
from exporter.model import Failure, Scrape, Target
from exporter.scrape import Counters, Loop
from exporter.sources.http import HttpPages
from exporter.targets import Discovery
from exporter.textformat import Scanner

from . import sources
from .config import Config
from .decider import Decider
from .publisher import Publisher
from .replicas import ReplicaCounts
from .web.own import OwnMetrics


@dataclass(slots=True)
class Surroundings:
    """What outlives a configuration.

    discoveries: who knows where pages are; None is what the configuration says.
    ticked:      told the time of every sweep that worked.
    """

    clock: Clock
    pages: HttpPages
    publisher: Publisher
    replicas: ReplicaCounts
    own: OwnMetrics
    ticked: Callable[[float], None]
    discoveries: Callable[[Config], Sequence[Discovery]] | None = None
    failing: dict[Target, str] = field(default_factory=dict)


class Works:
    """One configuration's scrapes and ticks. `before`: whose memory to take over."""

    def __init__(self, config: Config, around: Surroundings, before: Works | None = None) -> None:
        self.config = config
        self._around = around
        self._log = structlog.get_logger()
        self._broken = self._given_up = False
        self._decider = Decider(
            sources.plans(config),
            interval_s=config.scrape.interval,
            fresh_intervals=config.freshness.intervals,
        )
        if before is not None:
            self._decider.adopt(before._decider)  # noqa: SLF001 - its own kind
        self._loop = Loop(
            discoveries=(around.discoveries or sources.discoveries)(config),
            pages=around.pages,
            clock=around.clock,
            interval_s=config.scrape.interval,
            concurrency=config.scrape.concurrency,
            new_scanner=Scanner,
            landed=self._landed,
            listed=self._listed,
            added=self._decider.expect,
            retired=self._retired,
        )

    @property
    def counters(self) -> Mapping[Target, Counters]:
        return self._loop.counters

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._loop.run(), name="scrapes")
            tasks.create_task(self._tick_forever(), name="ticks")

    async def _tick_forever(self) -> None:
        """Never two at once: the next begins when this one has ended."""
        clock = self._around.clock
        while True:
            began = clock.now()
            with self._around.own.tick_seconds.time():
                self.tick(began)
            await clock.sleep(max(0.0, began + self.config.tick - clock.now()))

    def tick(self, now: float) -> None:
        """Sweep over all workloads. One that fails leaves the last Board standing, and says so."""
        publisher = self._around.publisher
        try:
            for plan in self._decider.plans:
                self._decider.counted(plan.workload, self._around.replicas.count(plan.workload))
            publisher.publish(self._decider.sweep(now), now)
        except Exception:  # noqa: BLE001 - a bug that costs every tick shows in liveness, not in a silent zero
            self._around.own.ticks_failed.inc()
            if not self._broken:
                self._log.exception("tick failed; the last Board stands")
            self._broken = True
            if now - publisher.board.at > self.config.freshness.hold:
                publisher.give_up(now)
                self._decider.forget_answers()
                self._given_up = True
            return
        if self._broken:
            self._log.info("ticks work again")
        self._broken = self._given_up = False
        self._around.ticked(now)

    def _landed(self, scrape: Scrape) -> None:
        self._say_if_changed(scrape)
        if isinstance(scrape.outcome, Failure):
            self._decider.missed(scrape.target)
            return
        changed = self._decider.land(scrape.target, scrape.outcome, scrape.at, self._around.clock.now())
        # What no tick could take down again is no answer: after giving up, the next one that works gives them all.
        if changed and not self._given_up:
            self._around.publisher.publish(changed, self._around.publisher.board.at)

    def _say_if_changed(self, scrape: Scrape) -> None:
        """One line when a target begins to fail, fails otherwise, or comes back."""
        failed = scrape.outcome if isinstance(scrape.outcome, Failure) else None
        before = self._around.failing.get(scrape.target)
        if failed is None:
            if before is not None:
                del self._around.failing[scrape.target]
                self._log.info("scrape works again", target=str(scrape.target))
        elif before != failed.kind:
            self._around.failing[scrape.target] = failed.kind
            self._log.warning(
                "scrape failed",
                target=str(scrape.target),
                error=str(failed.kind),
                detail=failed.detail,
                took_s=round(scrape.took_s, 3),
            )

    def _listed(self, discovery: Discovery, listing: tuple[Target, ...] | None) -> None:
        if discovery.owner is not None:
            self._decider.listed(discovery.owner, None if listing is None else len(listing))

    def _retired(self, target: Target) -> None:
        self._around.failing.pop(target, None)
        self._decider.retire(target)

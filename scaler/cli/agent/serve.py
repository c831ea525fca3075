"""Start and stop: the configuration becomes sources, which are asked, and a page, which is served.

Nothing is reloaded: a new configuration is a new pod (kustomize's name suffixes see to that), which is ready in a
second.

Worked example: `await export(settings, WallClock(), stop)` listens, says so in the log, and serves until `stop` is set.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import structlog

from exporter.agent.agent import Exporter, ExportSource, OfPod, PageSource
from exporter.clock import Clock
from exporter.model import Failure, Gpu, PodKey, Samples
from exporter.sources import nvml
from exporter.sources.http import HttpLimits, HttpPages

from .lean import let_go_of_code
from .listener import Listener
from .settings import PageAt, Settings


async def export(
    settings: Settings, clock: Clock, stop: asyncio.Event, started: Callable[[int], None] = lambda _port: None
) -> None:
    """Serve the page until `stop` is set. Raises OSError if the port is taken. `started`: told the port."""
    log = structlog.get_logger()
    pages = HttpPages(HttpLimits(settings.timeout_s, settings.body_limit))
    driver = _driver(settings) if settings.nvml else None
    exporter = Exporter(_sources(settings, pages, clock, driver), settings.interval_s, clock, changed=_told)
    listener = Listener(settings.host, settings.port, exporter, clock)
    try:
        port = await listener.start()
        log.info("listening", port=port, sources=[heard.source for heard in exporter.states])
        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(exporter.run(), name="sources")
            settling = tasks.create_task(_settle(2 * settings.interval_s, clock), name="settling")
            started(port)
            await stop.wait()
            listener.draining = True
            log.info("draining")
            asking.cancel()
            settling.cancel()
    finally:
        await listener.stop()
        await pages.close()
        if driver is not None:
            await driver.nvml.close()
    log.info("stopped")


async def _settle(after_s: float, clock: Clock) -> None:
    """Every source has been asked by then, so what runs has run once."""
    await clock.sleep(after_s)
    let_go_of_code()
    structlog.get_logger().info("settled")


@dataclass(frozen=True, slots=True)
class Driver:
    """NVML as a source. node: the name of this node; None where nobody says it."""

    nvml: nvml.Nvml
    node: str | None
    name: str = "nvml"

    async def samples(self, now: float) -> Samples | Failure:
        outcome = await self.nvml.samples(now)
        return outcome if isinstance(outcome, Failure) else _on_node(outcome, self.node)


def _on_node(samples: Samples, node: str | None) -> Samples:
    subjects = (replace(each, node=node) if isinstance(each, Gpu) else each for each in samples.subjects)
    return replace(samples, subjects=tuple(subjects))


def _driver(settings: Settings) -> Driver:
    # A process' control group is called by its pod's UID. Which pod that is, a pod knows of itself alone; of a node's
    # pods the daemon knows it.
    if settings.pod is not None and settings.pod_uid is not None:
        pods = {settings.pod_uid: settings.pod}
        return Driver(nvml.Nvml(nvml.installed(), pods.get, settings.timeout_s), settings.node)
    return Driver(nvml.Nvml(nvml.installed(), partial(PodKey, ""), settings.timeout_s), settings.node)


def _sources(settings: Settings, pages: HttpPages, clock: Clock, driver: Driver | None) -> list[ExportSource]:
    def source(page: PageAt) -> ExportSource:
        return PageSource(page.url, page.kind, page.access, pages, clock)

    found = [source(page) for page in settings.engines]
    gpus = driver if settings.gpus is None else source(settings.gpus)
    if gpus is not None:
        found.append(gpus if settings.pod is None else OfPod(gpus, settings.pod))
    return found


def _told(source: str, failure: Failure | None) -> None:
    log = structlog.get_logger()
    if failure is None:
        log.info("source answers", source=source)
    else:
        log.warning("source does not answer", source=source, kind=str(failure.kind), detail=failure.detail)

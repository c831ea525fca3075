"""Scrapes the sources of `tidegate export`, each in a task of its own, and keeps the last samples of each.

A source returns `Samples`: HTTP here, NVML in `exporter.sources.nvml`. No source waits for another, and a reader of
`Exporter.states` waits for none.

Worked example: with a `PageSource` of an engine that responds and one of a dcgm-exporter that hangs, `states` has the
engine's samples with `up` True, and for dcgm-exporter `up` False and `failures == {TIMEOUT: …}`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Protocol

from exporter.catalog import Reader, families
from exporter.catalog.completeness import START_TIME
from exporter.clock import Clock
from exporter.model import Credentials, Failure, FailureKind, Gpu, PodKey, Samples
from exporter.scrape.request import THREAD_BYTES, Pages, read
from exporter.textformat import PlainScanner

from .page import SourceState

# The slowest scrape takes the interval and the time-out, at most twice the interval. One that takes three times as long
# does not end.
STUCK_TURNS = 6.0
STUCK_S = 30.0
# The first scrape begins within so many seconds, and within a quarter of the interval.
START_SPREAD_S = 0.25


class ExportSource(Protocol):
    """Returns the samples of one source. Limits its own time, and never raises."""

    @property
    def name(self) -> str: ...

    async def samples(self, now: float) -> Samples | Failure:
        """`now`: POSIX seconds."""


class PageSource:
    """A target over HTTP. Its samples are as old as their timestamps, else as the receipt."""

    def __init__(self, url: str, kind: str, access: Credentials, pages: Pages, clock: Clock) -> None:
        self.name = url
        self._kind, self._access, self._pages, self._clock = kind, access, pages, clock
        self._reader, self._scanner, self._wanted = Reader(kind), PlainScanner(), lines_of(kind)

    async def samples(self, now: float) -> Samples | Failure:  # noqa: ARG002 - they are as old as the receipt
        body = await self._pages.fetch(self.name, self._access)
        at = self._clock.now()
        if isinstance(body, Failure):
            return body
        body = matching_lines(self._wanted, body) or body
        if len(body) > THREAD_BYTES:
            outcome = await asyncio.to_thread(read, body, self._reader, self._scanner, at)
        else:
            outcome = read(body, self._reader, self._scanner, at)
        if isinstance(outcome, Samples) and not outcome.subjects:
            # No empty queue, but an engine that has not begun, an exporter that reloads, or another kind.
            return Failure(FailureKind.UNREADABLE, f"the response has no queue and no GPU of the kind {self._kind}")
        return outcome


def lines_of(kind: str) -> re.Pattern[bytes]:
    """Matches the lines that are read of a kind: its families, their types, and quoted names, which are rare."""
    names = b"|".join(re.escape(name.encode()) for name in sorted(families(kind) | {START_TIME}, reverse=True))
    return re.compile(rb"^[ \t]*(?:#[ \t]*(?:TYPE|EOF)\b|\{|(?:" + names + rb")[ \t{]).*\n?", re.MULTILINE)


def matching_lines(wanted: re.Pattern[bytes], body: bytes) -> bytes:
    """These lines of a response. An engine's response is mostly histograms, which are not read, and each line that is
    read is remembered at 1.5 KB: 5,000 lines would take the memory that this process may have.
    """
    return b"".join(wanted.findall(body))


@dataclass(frozen=True, slots=True)
class PodGpus:
    """The GPUs of one pod, from a source of a whole node.

    Without a GPU of the pod the scrape has failed: exporters lose the label now and then, and a Service may have led to
    another node. Other pods of a shared GPU stay on it: else it would look exclusive.
    """

    source: ExportSource
    pod: PodKey

    @property
    def name(self) -> str:
        return self.source.name

    async def samples(self, now: float) -> Samples | Failure:
        outcome = await self.source.samples(now)
        return outcome if isinstance(outcome, Failure) else _of_pod(outcome, self.pod)


def _of_pod(samples: Samples, pod: PodKey) -> Samples | Failure:
    rows = [row for row, each in enumerate(samples.subjects) if isinstance(each, Gpu) and pod in each.pods]
    if not rows:
        return Failure(FailureKind.PARTIAL, f"no GPU has the pod {pod.namespace}/{pod.pod}")
    return replace(
        samples, subjects=tuple(samples.subjects[row] for row in rows), values=samples.values[rows], at=samples.at[rows]
    )


@dataclass(slots=True)
class Exporter:
    """Scrapes every source periodically.

    changed: called when a source fails (why) and when it succeeds again (None), once per change.
    states:  the state of each source, in the order of `sources`.
    """

    sources: Sequence[ExportSource]
    interval_s: float
    clock: Clock
    changed: Callable[[str, Failure | None], None] = lambda _source, _failure: None
    jitter: Random = field(default_factory=Random)
    states: tuple[SourceState, ...] = field(init=False)
    _ended_at: dict[str, float] = field(init=False)

    def __post_init__(self) -> None:
        self.states = tuple(SourceState(source.name) for source in self.sources)
        self._ended_at = dict.fromkeys((source.name for source in self.sources), self.clock.now())

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for source, state in zip(self.sources, self.states, strict=True):
                tasks.create_task(self._scrape_periodically(source, state), name=f"source {source.name}")

    def stuck(self, now: float) -> str | None:
        """The source with a scrape that does not end, which is a bug; else None. `now`: POSIX seconds."""
        limit = max(STUCK_S, STUCK_TURNS * self.interval_s)
        for name, at in self._ended_at.items():
            if now - at > limit:
                return f"{name}: a scrape must end within {limit:.0f} s, took {now - at:.0f} s so far"
        return None

    async def _scrape_periodically(self, source: ExportSource, state: SourceState) -> None:
        # Soon, because the response is wanted at once; spread, because a rollout starts pods on every node.
        await self.clock.sleep(self.jitter.uniform(0.0, min(START_SPREAD_S, self.interval_s / 4)))
        due = self.clock.now()
        while True:
            outcome = await source.samples(self.clock.now())
            self._update(state, outcome)
            now = self._ended_at[source.name] = self.clock.now()
            due = max(due + self.interval_s, now)  # a late scrape does not make the next ones early
            await self.clock.sleep(due - now)

    def _update(self, state: SourceState, outcome: Samples | Failure) -> None:
        first, was_up = state.scrapes == 0, state.up
        state.scrapes += 1
        state.up = isinstance(outcome, Samples)
        if isinstance(outcome, Samples):
            state.samples = outcome
            state.dropped_lines += len(outcome.dropped)
        else:
            state.failures[outcome.kind] = state.failures.get(outcome.kind, 0) + 1
        if first or state.up != was_up:
            self.changed(state.source, None if isinstance(outcome, Samples) else outcome)

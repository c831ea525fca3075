"""Sources beside us, each asked at its own pace, and what each said last.

A source is whoever yields `Samples`: a page over HTTP here, NVML elsewhere. Each has a task of its own; none waits for
another, and whoever reads what was heard waits for none. It refuses to know what the samples are good for, and how they
are printed (`normalised`).

Worked example: with a `PageSource` of an engine that answers and one of a dcgm-exporter that hangs, `heard` has the
engine's samples with `up` True, and the exporter's `Heard` with `up` False and `failures == {TIMEOUT: …}`.
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

# The worst turn takes the interval and the time-out, at most twice the interval; one that takes three times as long as
# that does not end.
STUCK_TURNS = 6.0
STUCK_S = 30.0
# The first turn begins within so many seconds, and within a quarter of the interval.
START_SPREAD_S = 0.25


class ExportSource(Protocol):
    """Somebody who knows something now. Bounds its own time, and never raises."""

    @property
    def name(self) -> str: ...

    async def samples(self, now: float) -> Samples | Failure:
        """`now`: POSIX seconds."""


class PageSource:
    """A page over HTTP. Its samples are as old as its own times say, else as the receipt."""

    def __init__(self, url: str, kind: str, access: Credentials, pages: Pages, clock: Clock) -> None:
        self.name = url
        self._kind, self._access, self._pages, self._clock = kind, access, pages, clock
        self._reader, self._scanner, self._wanted = Reader(kind), PlainScanner(), lines_of(kind)

    async def samples(self, now: float) -> Samples | Failure:  # noqa: ARG002 - a page is as old as its receipt
        body = await self._pages.fetch(self.name, self._access)
        at = self._clock.now()
        if isinstance(body, Failure):
            return body
        body = only(self._wanted, body) or body
        if len(body) > THREAD_BYTES:
            outcome = await asyncio.to_thread(read, body, self._reader, self._scanner, at)
        else:
            outcome = read(body, self._reader, self._scanner, at)
        if isinstance(outcome, Samples) and not outcome.subjects:
            # Which is no empty queue: an engine that has not begun, an exporter that reloads, another kind of page.
            return Failure(FailureKind.UNREADABLE, f"no queue and no GPU in the words of {self._kind} is on the page")
        return outcome


def lines_of(kind: str) -> re.Pattern[bytes]:
    """The lines that a kind of page is read by: its families, their types, and names in quotes, which are rare."""
    names = b"|".join(re.escape(name.encode()) for name in sorted(families(kind) | {START_TIME}, reverse=True))
    return re.compile(rb"^[ \t]*(?:#[ \t]*(?:TYPE|EOF)\b|\{|(?:" + names + rb")[ \t{]).*\n?", re.MULTILINE)


def only(wanted: re.Pattern[bytes], body: bytes) -> bytes:
    """Those lines of a page. An engine's page is mostly histograms that nobody reads, and each line that is read is
    remembered at 1.5 KB: a page of 5,000 lines would take the memory that this process may have.
    """
    return b"".join(wanted.findall(body))


@dataclass(frozen=True, slots=True)
class OfPod:
    """The GPUs of one pod, of a source that shows a whole node's.

    A page that names the pod beside no GPU has not answered: exporters lose the label now and then, and a Service may
    have led to another node. Whoever shares a GPU of the pod stays named on it: else it would look like the pod's own.
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
        return Failure(FailureKind.PARTIAL, f"no GPU is said to be that of the pod {pod.namespace}/{pod.pod}")
    return replace(
        samples,
        subjects=tuple(samples.subjects[row] for row in rows),
        values=samples.values[rows],
        at=samples.at[rows],
    )


Changed = Callable[[str, Failure | None], None]


@dataclass(slots=True)
class Exporter:
    """Asks every source again and again.

    told:  hears when a source ceases to answer (why) and when it answers (None), once per change.
    heard: what is known of each source, in the order of `sources`.
    """

    sources: Sequence[ExportSource]
    interval_s: float
    clock: Clock
    changed: Changed = lambda _source, _failure: None
    jitter: Random = field(default_factory=Random)
    states: tuple[SourceState, ...] = field(init=False)
    _ended_at: dict[str, float] = field(init=False)

    def __post_init__(self) -> None:
        self.states = tuple(SourceState(source.name) for source in self.sources)
        self._ended_at = dict.fromkeys((source.name for source in self.sources), self.clock.now())

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for source, heard in zip(self.sources, self.states, strict=True):
                tasks.create_task(self._ask_again_and_again(source, heard), name=f"source {source.name}")

    def stuck(self, now: float) -> str | None:
        """The source whose question does not end, though it should long have: a fault of ours. `now`: POSIX seconds."""
        limit = max(STUCK_S, STUCK_TURNS * self.interval_s)
        for name, at in self._ended_at.items():
            if now - at > limit:
                return f"{name} has been asked for {now - at:.0f} s (limit {limit:.0f} s)"
        return None

    async def _ask_again_and_again(self, source: ExportSource, heard: SourceState) -> None:
        # The page is wanted at once, and a rollout's pods do not begin at one moment on every node.
        await self.clock.sleep(self.jitter.uniform(0.0, min(START_SPREAD_S, self.interval_s / 4)))
        due = self.clock.now()
        while True:
            outcome = await source.samples(self.clock.now())
            self._note(heard, outcome)
            now = self._ended_at[source.name] = self.clock.now()
            due = max(due + self.interval_s, now)  # a turn that ran late does not make the next ones early
            await self.clock.sleep(due - now)

    def _note(self, heard: SourceState, outcome: Samples | Failure) -> None:
        first, was_up = heard.asked == 0, heard.up
        heard.asked += 1
        heard.up = isinstance(outcome, Samples)
        if isinstance(outcome, Samples):
            heard.samples = outcome
            heard.dropped_lines += len(outcome.dropped)
        else:
            heard.failures[outcome.kind] = heard.failures.get(outcome.kind, 0) + 1
        if first or heard.up != was_up:
            self.changed(heard.source, None if isinstance(outcome, Samples) else outcome)

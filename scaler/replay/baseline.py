"""Defines a baseline of the replay: an autoscaler that polls and sets the desired replicas.

It knows the protocol. What is looked at is one row of numbers (`pages.look`'s names); how old it is when it is used,
and how often, is the plane's own business, because that is what the chains people build differ in.

Worked example: `Static(4)` orders 4 replicas at second 0 and never looks again.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from typing import NamedTuple, Protocol, runtime_checkable

from exporter.model import Floats

from .columns import ARRIVED, FINISHED, PROMPT_TOKENS, ReplayWorld, ServerColumns
from .metric_pages import EXISTING, READY_NOW, WANTED, look, look_each, request_seconds
from .servers import ReplaySlo, ServerProfile


class Observation(NamedTuple):
    """The metrics of the simulated Deployment at one moment.

    now:     seconds of the load.
    pages:   shape (13,): the columns of `metric_pages.look`, by its names.
    arrived, finished, prompt_tokens: counters, as a gateway keeps them.
    """

    now: float
    pages: Floats
    arrived: int
    finished: int
    prompt_tokens: int
    world: ReplayWorld
    server: ServerColumns
    slo: ReplaySlo | None = None

    @property
    def each(self) -> Floats:
        """The same moment pod by pod: shape (pods, 7), the columns of `each.look_each`."""
        return look_each(self.world, self.server)

    @property
    def request_s(self) -> float:
        """A counter: seconds of requests at the gateway and in pods that are not draining."""
        return float(request_seconds(self.world))

    @property
    def wanted(self) -> int:
        return int(self.pages[WANTED])

    @property
    def ready(self) -> int:
        return int(self.pages[READY_NOW])

    @property
    def existing(self) -> int:
        return int(self.pages[EXISTING])


def observe(world: ReplayWorld, profile: ServerProfile, now: float) -> Observation:
    counts = world.counts
    pages = look(world, profile.server)
    return Observation(
        now,
        pages,
        int(counts[ARRIVED]),
        int(counts[FINISHED]),
        int(counts[PROMPT_TOKENS]),
        world,
        profile.server,
        profile.slo,
    )


class Baseline(Protocol):
    """every_s: how often it looks, seconds. first: replicas there are, ready, when the load begins."""

    @property
    def name(self) -> str: ...

    @property
    def every_s(self) -> float: ...

    @property
    def first(self) -> int: ...

    def step(self, observation: Observation) -> int | None:
        """How many replicas to order; None is: leave what was ordered. Called in order of time."""
        ...


class Explanation(NamedTuple):
    """Why a baseline orders what it orders. work: replicas of arriving work; NaN if it does not estimate it."""

    reason: str = ""
    work: float = nan


@runtime_checkable
class Explains(Protocol):
    """A baseline, or a scaler within one, that can explain its last step."""

    def explain(self) -> Explanation: ...


class EngineSleep(NamedTuple):
    """The sleep mode of engines.

    asleep: whether they are to sleep now. price: of a replica asleep, as a part of its price ready.
    wake_s: seconds that a wake takes. look_s: seconds between two looks at the gateway while they sleep.
    """

    asleep: bool
    price: float
    wake_s: float
    look_s: float


@runtime_checkable
class Sleeps(Protocol):
    """A baseline, or a scaler within one, that puts engines to sleep; None: this one never does."""

    def engine_sleep(self) -> EngineSleep | None: ...


@dataclass(frozen=True, slots=True)
class Static:
    """So many, whatever comes."""

    first: int
    every_s: float = 3600.0

    @property
    def name(self) -> str:
        return f"static {self.first}"

    def step(self, observation: Observation) -> int | None:  # noqa: ARG002 - it does not look
        return None

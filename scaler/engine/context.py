"""Holds what the control loops of one daemon share across reloads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from exporter.clock import Clock
from exporter.discovery import Discovery
from exporter.kubernetes.cache import Cluster
from exporter.model import ScrapeResult, WorkloadKey
from exporter.scrape.loop import Delays
from exporter.scrape.request import Pages
from exporter.sources.promql import Promql
from exporter.sources.redis import RedisPages
from scaler.config import Config
from scaler.metrics import SelfMetrics
from scaler.model import Decision
from scaler.workloads import Registry
from scaler.workloads.pods import ReplicaCounts

from .checkpoint import UnclaimedState
from .engine_calls import Post
from .publisher import Publisher


@dataclass(frozen=True, slots=True)
class DecisionPass:
    """One pass from samples to the Board. Times are POSIX seconds.

    cause:   "scrape" or "tick". scrapes: those that it takes; none for a tick.
    changed: its new decisions.
    """

    cause: str
    scrapes: Sequence[ScrapeResult]
    began_at: float
    decided_at: float
    published_at: float
    changed: Sequence[Decision]


@dataclass(slots=True)
class LoopContext:
    """The parts that stay across reloads.

    on_tick:     called with the time of every successful sweep, POSIX seconds.
    on_registry: called with each new registry, and with None when the cluster's state becomes unknown.
    leads:       whether this replica's accounts are published, given POSIX seconds.
    follows:     whether another replica is known to lead, given POSIX seconds.
    post:        calls an engine; None: none is called.
    cluster:     the cache of Kubernetes objects; None without Kubernetes. moved: set when an object has changed.
    replicas:    counts the replicas; None is the cluster if there is one.
    discoveries: the target discoveries of a configuration; None is the default.
    unclaimed:   restored state of workloads that do not exist yet.
    refused:     workloads for which the leader's decision is not repeated.
    delays:      counts late and skipped scrapes.
    trace:       takes each pass with new decisions; None: no pass is recorded.
    """

    clock: Clock
    pages: Pages
    promql: Promql
    publisher: Publisher
    self_metrics: SelfMetrics
    on_tick: Callable[[float], None]
    on_registry: Callable[[Registry | None], None]
    leads: Callable[[float], bool] = lambda _: True
    follows: Callable[[float], bool] = lambda _: False
    post: Post | None = None
    cluster: Cluster | None = None
    redis: RedisPages | None = None
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    replicas: ReplicaCounts | None = None
    discoveries: Callable[[Config], Sequence[Discovery]] | None = None
    unclaimed: UnclaimedState = field(default_factory=UnclaimedState)
    object_errors: frozenset[str] = frozenset()
    refused: set[WorkloadKey] = field(default_factory=set)
    delays: Delays = field(default_factory=Delays)
    trace: Callable[[DecisionPass], None] | None = None

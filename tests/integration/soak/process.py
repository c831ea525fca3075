"""Tidegate in simulated time: the real ControlLoop with its scrape loop, tasks and checkpoints, restarted and reloaded.

Sockets are replaced: `Pages` return the simulated targets' text, and an answer is what the servers compute for a call.

Worked example: `process = Process(clock, pages, counts, discoveries, pushed)`, `process.start(config)`; 20 s later
`process.answer(key)` is `Answer(replicas=3, active=True)`, or None if KEDA gets an error.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from prometheus_client import CollectorRegistry, generate_latest

from exporter.model import WorkloadKey
from scaler.api.http.collectors import BoardCollector
from scaler.api.keda import servicer
from scaler.api.metrics_api import values
from scaler.api.metrics_api.errors import ApiError
from scaler.engine.checkpoint import UnclaimedState
from scaler.engine.checkpoint_format import pack, unpack_all
from scaler.engine.loop import ControlLoop
from scaler.engine.publisher import Publisher
from scaler.metrics import SelfMetrics
from tests.fakes.daemon import loop_context


class Answer(NamedTuple):
    replicas: int
    active: bool


class Process:
    """counts: of replicas, see `ReplicaCounts`. discoveries: of targets, for a configuration. pushed: called with each
    workload whose decision has changed.
    """

    def __init__(self, clock, pages, counts, discoveries, pushed):
        self._clock, self._pages, self._counts = clock, pages, counts
        self._discoveries, self._pushed = discoveries, pushed
        self._task = self._loop = None
        self._kept = b""  # the checkpoint
        self.leads = True
        self.ticked_at = 0.0

    @property
    def alive(self):
        return self._task is not None

    def start(self, config):
        """Starts a process with the last checkpoint."""
        workloads = [WorkloadKey(each.namespace, each.name) for each in config.workloads]
        self.publisher, self.registry = Publisher(workloads), CollectorRegistry(auto_describe=True)
        self.registry.register(BoardCollector(lambda: self.publisher.board, self._clock.now))
        self._metrics = SelfMetrics(self.registry)
        context = loop_context(
            self._clock,
            self._pages,
            self.publisher,
            self_metrics=self._metrics,
            on_tick=self._ticked,
            replicas=self._counts,
            discoveries=self._discoveries,
            leads=lambda now: self.leads,
            follows=lambda now: not self.leads,
            trace=lambda made: self._push(made.changed),
            unclaimed=UnclaimedState(unpack_all(self._kept) if self._kept else []),
        )
        self.publisher.renew = self._renew
        self._run(ControlLoop(config, context))
        self._context = context

    async def reload(self, config):
        """Replaces the control loop, as the daemon does for a new configuration."""
        await self._stop()
        before = self._loop
        self._run(ControlLoop(config, self._context, before))
        before.forget()

    async def kill(self):
        """Ends the process; what is not in the checkpoint is lost."""
        await self._stop()
        self._loop = self.publisher = self.registry = self._context = None

    async def checkpoint(self):
        self._kept = b"".join(pack(state) for state in await self._loop.states())
        return len(self._kept)

    async def read_metrics(self):
        """GET /metrics."""
        await self.publisher.renew()
        return generate_latest(self.registry)

    def failures(self):
        """Exceptions that cost a datum or a tick: bugs."""
        return sum(
            sample.value
            for family in (self._metrics.internal_errors, self._metrics.ticks_failed)
            for metric in family.collect()
            for sample in metric.samples
            if sample.name.endswith("_total")
        )

    def answer(self, workload):
        """The answer of GetMetrics and IsActive, and the same of the metrics API; None if it is an error."""
        now = self._clock.now()
        try:
            replicas, active, _ = servicer.answer(self.publisher, workload, now)
        except servicer.RpcError:
            replicas, active = None, None
        try:
            number = values.number(values.replicas, self.publisher.board, workload, now).value
        except ApiError:
            number = None
        assert number == replicas, f"{workload}: the metrics API answers {number}, KEDA gets {replicas}"
        return None if replicas is None else Answer(replicas, active)

    def follow(self, leads):
        """Leads, or follows a leader that decides the same."""
        self.leads = leads
        if leads:
            self.publisher.alone()
        else:
            self.publisher.follow(self.publisher.local.decisions, self.publisher.local.at)

    def _ticked(self, now):
        self.ticked_at = now
        if not self.leads:
            self.follow(leads=False)

    def _push(self, changed):
        for decision in changed:
            self._pushed(decision.workload)

    async def _renew(self):
        await self._loop.renew()

    def _run(self, control_loop):
        self._loop = control_loop
        self._task = asyncio.get_running_loop().create_task(control_loop.run(), name="control loop")

    async def _stop(self):
        task, self._task = self._task, None
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()

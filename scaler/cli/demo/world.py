"""Runs the simulated cluster, its load, its GPUs and its servers on a clock.

The stand-in calls `scale`; the daemon reads `pod_targets`, `replica_count` and the pages.

Worked example:

    async with open_world(FastClock(60.0), seed=1, duration_s=3600.0) as world:
        world.gateway_url, world.dcgm_urls      # "http://127.0.0.1:40001", ("http://127.0.0.1:40002", …)
        await world.run()                       # a minute later: the day is over and every request is answered
        world.summary()
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import numpy as np
from aiohttp import web

from exporter.clock import Clock
from scaler.explain.summary import WorkloadState

from .cluster import SimulatedCluster, SimulatedReplica
from .engine import Completion, Request
from .gpus import SimulatedGpus
from .load import shape
from .pages import MODEL, dcgm_page, gateway_page, vllm_page
from .servers import gateway_app, listen, page_app
from .summary import Summary, attainment, summarise

NAMESPACE = "demo"
WORKLOAD = "chat"
TICK_S = 0.5  # simulated; 8 ms of real time at speed 60
COLLECT_INTERVAL_S = 10.0  # dcgm-exporter's --collect-interval; its default is 30
GRACE_S = 600.0  # after the day, for unanswered requests
_RATE_WINDOW_S = 10.0


@dataclass(frozen=True, slots=True)
class ScreenFrame:
    """One moment of the demo for the screen. Times are simulated seconds; None and "" are unknown.

    slo_met_ratio: as in `Summary`.

    gpu_active: ratio of each ready replica's GPU, in the order of pods. demand: unrounded replicas; state,
    reason: as in `scaler.explain.rows`. autoscaler: last action of the stand-in.
    """

    at_s: float
    duration_s: float
    speed: float
    arrivals_per_s: float
    held: int
    waiting: int
    running: int
    gpu_active: tuple[float, ...]
    wanted: int
    ready: int
    loading: int
    draining: int
    sent: int
    answered: int
    slo_met_ratio: float | None
    gpu_hours: float
    demand: float | None = None
    state: WorkloadState | None = None
    reason: str = ""
    autoscaler: str = ""


class World:
    """Create it with `open_world`."""

    def __init__(self, clock: Clock, duration_s: float, seed: int, startup_s: float) -> None:
        now = clock.now()
        self.duration_s = duration_s
        self.gateway_url = ""
        self.dcgm_urls: tuple[str, ...] = ()
        self.cluster = SimulatedCluster(WORKLOAD, seed, now, startup_s=startup_s)
        self._clock = clock
        self._seed = seed
        self._arrivals = shape(duration_s, seed)
        self._gpus = SimulatedGpus(self.cluster.gpus, now)
        self._first_begun_at: float | None = None  # None before `run`
        self._begun_at: float | None = None  # of the present day
        self._simulated_until = now
        self._collected_at = now
        self._injected = 0  # number of arrivals so far
        self._waiting: dict[int, asyncio.Future[Completion]] = {}  # requests of users, by number
        self._pods: dict[str, tuple[web.AppRunner, str]] = {}
        self._runners: list[web.AppRunner] = []

    @property
    def replicas(self) -> list[SimulatedReplica]:
        """All pods, with draining ones."""
        return self.cluster.replicas

    @property
    def draining(self) -> list[SimulatedReplica]:
        return self.cluster.draining

    def pod_targets(self) -> list[tuple[str, str]]:
        """(pod, URL of its metrics page) of every ready pod."""
        return [
            (pod.name, f"{self._pods[pod.name][1]}/metrics") for pod in self.cluster.ready if pod.name in self._pods
        ]

    def replica_count(self) -> tuple[int, int]:
        """(wanted, ready)."""
        return self.cluster.wanted, len(self.cluster.ready)

    def scale(self, replicas: int, now: float) -> None:
        """Sets the replicas of the Deployment."""
        now = self._advance(now)
        self._deliver(self.cluster.scale(replicas, now))

    async def complete(self, prompt_tokens: int, output_tokens: int) -> Completion:
        """Sends a request of a user and waits for its completion."""
        now = self._advance(self._clock.now())
        request = Request(self.cluster.tally.sent, now, prompt_tokens, output_tokens)
        answer: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._waiting[request.number] = answer
        self._deliver(self.cluster.submit(request, now))
        return await answer

    async def run(self, *, forever: bool = False) -> None:
        """Runs the day, and then until every request is answered, at most GRACE_S. forever: further days follow, each
        with the next seed.
        """
        self._begun_at = self._first_begun_at = self._clock.now()
        while True:
            now = self._advance(self._clock.now())
            await self._open_and_close_pods()
            end = self._begun_at + self.duration_s
            if now >= end and forever:
                self._seed += 1
                self._begun_at, self._injected = end, 0
                self._arrivals = shape(self.duration_s, self._seed)
            elif now >= end and (self.cluster.in_system == 0 or now >= end + GRACE_S):
                return
            await self._clock.sleep(TICK_S)

    async def run_on(self) -> None:
        """Serves the requests of users after the day until it is cancelled."""
        while True:
            self._advance(self._clock.now())
            await self._open_and_close_pods()
            await self._clock.sleep(TICK_S)

    def frame(self, speed: float) -> ScreenFrame:
        """The frame without the fields of Tidegate and the stand-in."""
        cluster, now = self.cluster, self._simulated_until
        since_s = 0.0 if self._begun_at is None else now - self._begun_at
        recent = np.searchsorted(self._arrivals.at_s, [since_s - _RATE_WINDOW_S, since_s], side="right")
        tally = cluster.tally
        return ScreenFrame(
            at_s=since_s,
            duration_s=self.duration_s,
            speed=speed,
            arrivals_per_s=float(recent[1] - recent[0]) / _RATE_WINDOW_S,
            held=len(cluster.held),
            waiting=sum(pod.engine.waiting for pod in cluster.replicas),
            running=sum(pod.engine.running for pod in cluster.replicas),
            gpu_active=tuple(self._gpus.readings[pod.gpu].engine_active for pod in cluster.ready),
            wanted=cluster.wanted,
            ready=len(cluster.ready),
            loading=len(cluster.loading),
            draining=len(cluster.draining),
            sent=tally.sent,
            answered=tally.answered,
            slo_met_ratio=attainment(tally, self.duration_s),
            gpu_hours=cluster.gpu_seconds() / 3600.0,
        )

    def summary(self) -> Summary:
        elapsed_s = 0.0 if self._first_begun_at is None else self._simulated_until - self._first_begun_at
        return summarise(self.cluster, self.duration_s, elapsed_s)

    async def start(self) -> None:
        """Starts the servers of the gateway and the nodes."""
        cluster, gpus = self.cluster, self._gpus
        gateway = gateway_app(lambda: gateway_page(MODEL, WORKLOAD, cluster), MODEL, self.complete)
        self.gateway_url = await self._serve(gateway)
        urls = []
        for node in gpus.nodes:

            def page(node: str = node) -> str:
                return dcgm_page(gpus.of_node(node), NAMESPACE, {pod.gpu: pod for pod in cluster.replicas})

            urls.append(f"{await self._serve(page_app(page))}/metrics")
        self.dcgm_urls = tuple(urls)

    async def close(self) -> None:
        for answer in self._waiting.values():
            answer.cancel()
        for runner in [*self._runners, *(runner for runner, _ in self._pods.values())]:
            await runner.cleanup()

    async def _serve(self, app: web.Application) -> str:
        runner, url = await listen(app)
        self._runners.append(runner)
        return url

    def _advance(self, now: float) -> float:
        """Simulates all events until `now`, in order; returns the present time."""
        now = max(now, self._simulated_until)
        while self._begun_at is not None and self._injected < len(self._arrivals):
            at = self._begun_at + float(self._arrivals.at_s[self._injected])
            if at > now:
                break
            self._collect_until(at)
            prompt_tokens = int(self._arrivals.prompt_tokens[self._injected])
            output_tokens = int(self._arrivals.output_tokens[self._injected])
            request = Request(self.cluster.tally.sent, at, prompt_tokens, output_tokens)
            self._deliver(self.cluster.submit(request, at))
            self._injected += 1
        self._collect_until(now)
        self._deliver(self.cluster.advance(now))
        self._simulated_until = now
        return now

    def _collect_until(self, until: float) -> None:
        while self._collected_at + COLLECT_INTERVAL_S <= until:
            self._collected_at += COLLECT_INTERVAL_S
            self._deliver(self.cluster.advance(self._collected_at))
            self._gpus.collect(self.cluster.replicas, self._collected_at)

    def _deliver(self, answers: list[Completion]) -> None:
        for answer in answers:
            waiting = self._waiting.pop(answer.request.number, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(answer)

    async def _open_and_close_pods(self) -> None:
        """A pod listens from ready until it is removed: a draining pod still answers."""
        for pod in self.cluster.ready:
            if pod.name not in self._pods:
                self._pods[pod.name] = await listen(page_app(_page_of(pod)))
        alive = {pod.name for pod in self.cluster.replicas}
        for name in [name for name in self._pods if name not in alive]:
            runner, _ = self._pods.pop(name)
            await runner.cleanup()


def _page_of(pod: SimulatedReplica) -> Callable[[], str]:
    return lambda: vllm_page(MODEL, pod)


@asynccontextmanager
async def open_world(clock: Clock, *, seed: int, duration_s: float, startup_s: float = 75.0) -> AsyncIterator[World]:
    """A world with running servers; its day begins with `run`."""
    world = World(clock, duration_s, seed, startup_s)
    try:
        await world.start()
        yield world
    finally:
        await world.close()

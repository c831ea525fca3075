"""The demo's world, put together: a cluster, its load, its GPUs and their sockets, living on a clock.

Knows: what time it is, and lets the pure parts live up to it. Refuses to know: Tidegate. Whoever scales calls
`scale`; whoever watches reads `pod_targets`, `replica_count` and the pages.

Worked example:

    async with open_world(FastClock(20.0), seed=1, duration_s=1200.0) as world:
        world.gateway_url, world.dcgm_urls      # "http://127.0.0.1:40001", ("http://127.0.0.1:40002", …)
        await world.run()                       # a minute later: the day is over and everything is answered
        world.summary()
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import numpy as np
from aiohttp import web

from exporter.clock import Clock

from .cluster import SimulatedCluster, SimulatedReplica
from .engine import Completion, Request
from .frame import ScreenFrame
from .gpus import SimulatedGpus
from .load import shape
from .pages import MODEL, dcgm_page, gateway_page, vllm_page
from .servers import gateway_app, listen, page_app
from .summary import Summary, summarise

NAMESPACE = "demo"
WORKLOAD = "chat"
TICK_S = 0.5  # simulated; 25 ms of the wall at 20 times its speed
COLLECT_INTERVAL_S = 10.0  # dcgm-exporter's --collect-interval; its default is 30
GRACE_S = 600.0  # after the day, for what is still in the system
_RATE_WINDOW_S = 10.0


class World:
    """Build it with `open_world`."""

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
        self._begun_at: float | None = None  # the day's; None before `run`
        self._lived_until = now
        self._collected_at = now
        self._injected = 0  # of the arrivals
        self._waiting: dict[int, asyncio.Future[Completion]] = {}  # people's own requests, by number
        self._pods: dict[str, tuple[web.AppRunner, str]] = {}
        self._fixtures: list[web.AppRunner] = []

    def pod_targets(self) -> list[tuple[str, str]]:
        """(pod, URL of its metrics page) of every ready pod now."""
        return [
            (pod.name, f"{self._pods[pod.name][1]}/metrics") for pod in self.cluster.ready if pod.name in self._pods
        ]

    def replica_count(self) -> tuple[int, int]:
        """(wanted, ready)."""
        return self.cluster.wanted, len(self.cluster.ready)

    def scale(self, replicas: int, now: float) -> None:
        """Set the Deployment's replicas."""
        now = self._live(now)
        self._deliver(self.cluster.scale(replicas, now))

    async def complete(self, prompt_tokens: int, output_tokens: int) -> Completion:
        """Send a request of one's own and wait for its answer."""
        now = self._live(self._clock.now())
        request = Request(self.cluster.tally.sent, now, prompt_tokens, output_tokens)
        answer: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._waiting[request.number] = answer
        self._deliver(self.cluster.submit(request, now))
        return await answer

    async def run(self, *, forever: bool = False) -> None:
        """Live the day on the clock; then until every request is answered, but no longer than the grace.

        forever: after each day comes another, of the next seed.
        """
        self._begun_at = self._clock.now()
        while True:
            now = self._live(self._clock.now())
            await self._open_and_close_pods()
            end = self._begun_at + self.duration_s
            if now >= end and forever:
                self._seed += 1
                self._begun_at, self._injected = end, 0
                self._arrivals = shape(self.duration_s, self._seed)
            elif now >= end and (self.cluster.in_system == 0 or now >= end + GRACE_S):
                return
            await self._clock.sleep(TICK_S)

    def frame(self, speed: float) -> ScreenFrame:
        """What is to be seen of the world; what Tidegate thinks of it is for others to add."""
        cluster, now = self.cluster, self._lived_until
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
            slo_met_ratio=tally.met / tally.answered if tally.answered else None,
            gpu_hours=cluster.gpu_seconds() / 3600.0,
        )

    def summary(self) -> Summary:
        return summarise(self.cluster)

    async def start(self) -> None:
        """Open what is there whether pods are or not: the gateway and the nodes."""
        cluster, gpus = self.cluster, self._gpus
        gateway = gateway_app(lambda: gateway_page(MODEL, WORKLOAD, cluster), MODEL, self.complete)
        self.gateway_url = await self._keep(gateway)
        urls = []
        for node in gpus.nodes:

            def page(node: str = node) -> str:
                return dcgm_page(gpus.of_node(node), NAMESPACE, {pod.gpu: pod for pod in cluster.replicas})

            urls.append(f"{await self._keep(page_app(page))}/metrics")
        self.dcgm_urls = tuple(urls)

    async def close(self) -> None:
        for answer in self._waiting.values():
            answer.cancel()
        for runner in [*self._fixtures, *(runner for runner, _ in self._pods.values())]:
            await runner.cleanup()

    async def _keep(self, app: web.Application) -> str:
        runner, url = await listen(app)
        self._fixtures.append(runner)
        return url

    def _live(self, now: float) -> float:
        """Let everything happen that happens until `now`, in order; returns the time it is then."""
        now = max(now, self._lived_until)
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
        self._lived_until = now
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
        """A pod listens from when it is ready until it is gone: while it drains it still answers."""
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
    """A world whose gateway and nodes answer; its day begins with `run`."""
    world = World(clock, duration_s, seed, startup_s)
    try:
        await world.start()
        yield world
    finally:
        await world.close()

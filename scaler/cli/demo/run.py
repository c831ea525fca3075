"""The demo, played: a simulated world, the real daemon, and the stand-in for KEDA + HPA between them.

Everything speaks over loopback as it would in a cluster: the daemon scrapes pages over HTTP, the stand-in asks over
gRPC. Two things only are told rather than asked, as Kubernetes will tell them: which pods are ready, and how many
replicas there are.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from importlib import import_module

import click
from rich.console import Console

from exporter.clock import Clock, FastClock
from exporter.discovery import Discovery, Listing
from exporter.discovery.dns import StaticTargets
from exporter.model import ReplicaCount, Role, Target, WorkloadKey
from scaler.config import Config, parse
from scaler.daemon import Daemon, Ports
from scaler.explain.rows import row
from scaler.explain.summary import REASONS
from scaler.logs import configure
from scaler.model import Decision

from .autoscaler import DemoScaledObject, StandIn
from .frame import ScreenFrame
from .screen import open_screen
from .summary import Summary, problems
from .world import NAMESPACE, WORKLOAD, World, open_world

CHAT = WorkloadKey(NAMESPACE, WORKLOAD)

# What a user would write for this cluster, but for the two addresses, which the world chooses.
CONFIG = """
listen: {{http: "127.0.0.1:{port}", grpc: "127.0.0.1:0"}}
scrape: {{interval: 2s}}
gpus:
  - dns: dcgm-exporter.monitoring.svc
workloads:
  - namespace: demo
    name: chat
    engine: vllm
    pods: {{dns: chat.demo.svc}}
    gateway: {{url: "{gateway}"}}
    replicas: {{min: 0, max: 8}}
    keep_warm: 2m
    hpa_tolerance: 0  # as its HPA has it
"""

FRAMES_PER_S = 8.0  # of the wall
DAY_S = 1200.0  # of an endless demo, simulated: a morning, a burst, an evening and a night, again and again


@dataclass(frozen=True, slots=True)
class DemoRequest:
    """duration_s: seconds of the wall, 0 until Ctrl-C. speed: simulated seconds per second. port: 0 is any free."""

    duration_s: float
    speed: float
    seed: int
    port: int
    as_json: bool


@dataclass(frozen=True, slots=True)
class ReadyPods:
    """The pods' pages, as a watch on the cluster would list them."""

    world: World
    owner: WorkloadKey | None = CHAT

    def listing(self) -> Listing | None:
        return Listing(tuple(Target(url, "vllm", Role.PODS, CHAT) for _, url in self.world.pod_targets()))

    async def refresh(self, now: float) -> None:
        """The world is always up to date."""


@dataclass(frozen=True, slots=True)
class DeploymentReplicas:
    """The Deployment's own count."""

    world: World
    now: Callable[[], float]

    def count(self, workload: WorkloadKey, now: float) -> ReplicaCount | None:
        if workload != CHAT:
            return None
        cluster = self.world.cluster
        pods, leaving = len(cluster.replicas), len(cluster.draining)
        wanted, ready = self.world.replica_count()
        return ReplicaCount(wanted, ready, now, gpus=pods, existing=pods - leaving, leaving=leaving)  # a GPU each


def play(wishes: DemoRequest) -> tuple[str, ...]:
    """Play the demo; returns what went wrong, in sentences. Ctrl-C ends it early and judges nothing."""
    configure("console", "error")
    with Console(stderr=True).status("compiling the kernels: some seconds, the first time"):
        import_module("scaler.engine.loop")  # before the clock starts to run fast
    try:
        return asyncio.run(_play(wishes))
    except KeyboardInterrupt:
        return ()


async def _play(wishes: DemoRequest) -> tuple[str, ...]:
    clock = FastClock(wishes.speed)
    endless = wishes.duration_s == 0
    day_s = DAY_S if endless else wishes.duration_s * wishes.speed
    async with open_world(clock, seed=wishes.seed, duration_s=day_s) as world:
        daemon = Daemon(
            _config(world, wishes.port),
            clock,
            replicas=DeploymentReplicas(world, clock.now),
            discoveries=lambda _: _discoveries(world),
        )
        stop, listening = asyncio.Event(), asyncio.get_running_loop().create_future()
        over = False
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(daemon.run(stop, listening.set_result), name="daemon")
                ports: Ports = await listening
                stand_in = StandIn(clock, f"127.0.0.1:{ports.grpc}", DemoScaledObject(NAMESPACE, WORKLOAD, {}), world)
                scaling = tasks.create_task(stand_in.run(), name="stand-in for KEDA + HPA")
                showing = tasks.create_task(_show(world, daemon, stand_in, wishes, clock), name="screen")
                try:
                    await world.run(forever=endless)
                    over = True
                finally:
                    scaling.cancel()
                    showing.cancel()
                    stop.set()
        finally:
            _conclude(world.summary(), wishes, over=over)
        return problems(world.summary(), day_s)


def _config(world: World, port: int) -> Config:
    return parse(CONFIG.format(port=port, gateway=f"{world.gateway_url}/metrics"), "demo.yaml")[0]


def _discoveries(world: World) -> list[Discovery]:
    gateway = Target(f"{world.gateway_url}/metrics", "epp", Role.GATEWAY, CHAT)
    return [
        ReadyPods(world),
        StaticTargets([gateway]),
        StaticTargets(Target(url, "dcgm", Role.GPUS) for url in world.dcgm_urls),
    ]


async def _show(world: World, daemon: Daemon, stand_in: StandIn, wishes: DemoRequest, clock: Clock) -> None:
    with nullcontext(lambda _: None) if wishes.as_json else open_screen(Console()) as show:
        while True:
            show(_frame(world, daemon.publisher.get(CHAT), stand_in.said, wishes.speed, clock.now()))
            await asyncio.sleep(1.0 / FRAMES_PER_S)


def _frame(world: World, decision: Decision | None, said: str, speed: float, now: float) -> ScreenFrame:
    frame = replace(world.frame(speed), autoscaler=said)
    if decision is None:
        return frame
    seen = row(decision, now)
    return replace(frame, demand=seen.demand, state=seen.state, word=REASONS[seen.reason].word, reason=seen.why)


def _conclude(summary: Summary, wishes: DemoRequest, *, over: bool) -> None:
    """`over`: the day has ended by itself; else what is unanswered is under way, not lost."""
    under_way = 0 if over else summary.lost
    summary = replace(summary, lost=summary.lost - under_way)
    if wishes.as_json:
        sys.stdout.write(json.dumps(summary.to_document()) + "\n")
        return
    lines = [
        f"{summary.answered} of {summary.sent} requests answered, {summary.lost} lost"
        + (f", {under_way} under way" if under_way else "")
        + (f"; {summary.slo_met_ratio:.1%} within their objective" if summary.slo_met_ratio is not None else ""),
        f"up to {summary.max_replicas} replicas in {summary.changes} changes, {summary.final_replicas} at the end",
        f"{summary.gpu_hours:.2f} GPU-hours",
    ]
    if summary.woke_after_s is not None:
        asleep = "; put to sleep again" if summary.slept else ""
        lines.append(f"woken {summary.woke_after_s:.1f} s after the first request was held at zero{asleep}")
    click.echo("\n".join(lines))

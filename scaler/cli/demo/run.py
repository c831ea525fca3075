"""Runs the demo: a simulated world, the real daemon, and the stand-in for KEDA and the HPA.

All communicate over loopback as in a cluster: the daemon scrapes over HTTP, the stand-in calls gRPC. Two things are
passed in directly, which Kubernetes provides in a cluster: the ready pods and the replica count.
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
from .screen import open_screen
from .summary import Summary, problems
from .world import NAMESPACE, WORKLOAD, ScreenFrame, World, open_world

CHAT = WorkloadKey(NAMESPACE, WORKLOAD)

# The configuration of a user for this cluster, except for the two addresses, which the world chooses.
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
    hpa_tolerance: 0  # as in its HPA
"""

FRAMES_PER_S = 8.0  # real time
DAY_S = 3600.0  # of an endless demo, simulated


@dataclass(frozen=True, slots=True)
class DemoRequest:
    """duration_s: real time; 0 until Ctrl-C. speed: simulated seconds per second. port: 0 for any free port."""

    duration_s: float
    speed: float
    seed: int
    port: int
    as_json: bool


@dataclass(frozen=True, slots=True)
class ReadyPods:
    """Targets of the ready pods, as a watch on a cluster provides them."""

    world: World
    owner: WorkloadKey | None = CHAT

    def listing(self) -> Listing | None:
        return Listing(tuple(Target(url, "vllm", Role.PODS, CHAT) for _, url in self.world.pod_targets()))

    async def refresh(self, now: float) -> None:
        """The world is up to date."""


@dataclass(frozen=True, slots=True)
class DeploymentReplicas:
    """Replica counts of the Deployment."""

    world: World
    now: Callable[[], float]

    def count(self, workload: WorkloadKey, now: float) -> ReplicaCount | None:
        if workload != CHAT:
            return None
        cluster = self.world.cluster
        pods, leaving = len(cluster.replicas), len(cluster.draining)
        wanted, ready = self.world.replica_count()
        return ReplicaCount(wanted, ready, now, gpus=pods, existing=pods - leaving, leaving=leaving)  # a GPU each


def play(request: DemoRequest) -> tuple[str, ...]:
    """Runs the demo; returns its problems as sentences. Ctrl-C stops it without a verdict."""
    configure("console", "error")
    with Console(stderr=True).status("compiling kernels: some seconds, only the first time"):
        import_module("scaler.engine.loop")  # before the fast clock starts
    try:
        return asyncio.run(_play(request))
    except KeyboardInterrupt:
        return ()


async def _play(request: DemoRequest) -> tuple[str, ...]:
    clock = FastClock(request.speed)
    endless = request.duration_s == 0
    day_s = DAY_S if endless else request.duration_s * request.speed
    async with open_world(clock, seed=request.seed, duration_s=day_s) as world:
        daemon = Daemon(
            _config(world, request.port),
            clock,
            replicas=DeploymentReplicas(world, clock.now),
            discoveries=lambda _: _discoveries(world),
        )
        stop, listening = asyncio.Event(), asyncio.get_running_loop().create_future()
        is_over = False
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(daemon.run(stop, listening.set_result), name="daemon")
                ports: Ports = await listening
                stand_in = StandIn(clock, f"127.0.0.1:{ports.grpc}", DemoScaledObject(NAMESPACE, WORKLOAD, {}), world)
                scaling = tasks.create_task(stand_in.run(), name="stand-in for KEDA + HPA")
                showing = tasks.create_task(_show(world, daemon, stand_in, request, clock), name="screen")
                try:
                    await world.run(forever=endless)
                    is_over = True
                finally:
                    scaling.cancel()
                    showing.cancel()
                    stop.set()
        finally:
            _conclude(world.summary(), request, is_over=is_over)
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


async def _show(world: World, daemon: Daemon, stand_in: StandIn, request: DemoRequest, clock: Clock) -> None:
    with nullcontext(lambda _: None) if request.as_json else open_screen(Console()) as show:
        while True:
            show(_frame(world, daemon.publisher.get(CHAT), stand_in.last_action, request.speed, clock.now()))
            await asyncio.sleep(1.0 / FRAMES_PER_S)


def _frame(world: World, decision: Decision | None, last_action: str, speed: float, now: float) -> ScreenFrame:
    frame = replace(world.frame(speed), autoscaler=last_action)
    if decision is None:
        return frame
    shown = row(decision, now)
    return replace(frame, demand=shown.demand, state=shown.state, word=REASONS[shown.reason].word, reason=shown.why)


def _conclude(summary: Summary, request: DemoRequest, *, is_over: bool) -> None:
    """is_over: the day ended by itself; else unanswered requests are in progress, not lost."""
    in_progress = 0 if is_over else summary.lost
    summary = replace(summary, lost=summary.lost - in_progress)
    if request.as_json:
        sys.stdout.write(json.dumps(summary.to_document()) + "\n")
        return
    lines = [
        f"{summary.answered} of {summary.sent} requests answered, {summary.lost} lost"
        + (f", {in_progress} in progress" if in_progress else "")
        + (f"; {summary.slo_met_ratio:.1%} within the SLO" if summary.slo_met_ratio is not None else ""),
        f"up to {summary.max_replicas} replicas in {summary.changes} changes, {summary.final_replicas} at the end",
        f"{summary.gpu_hours:.2f} GPU-hours",
    ]
    if summary.woke_after_s is not None:
        asleep = "; put to sleep again" if summary.slept else ""
        lines.append(f"woken {summary.woke_after_s:.1f} s after the first request was held at zero{asleep}")
    click.echo("\n".join(lines))

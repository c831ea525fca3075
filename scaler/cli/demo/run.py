"""Runs the demo: a simulated world, the real daemon, and the stand-in for KEDA and the HPA.

All communicate over loopback as in a cluster: the daemon scrapes over HTTP, the stand-in calls gRPC. Two things are
passed in directly, which Kubernetes provides in a cluster: the ready pods and the replica count.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from shutil import get_terminal_size
from textwrap import fill
from typing import Protocol, TypeAlias

import click
from rich.console import Console

from exporter.clock import Clock, FastClock
from exporter.discovery import Discovery, Listing
from exporter.discovery.dns import StaticTargets
from exporter.model import ReplicaCount, Role, Target, WorkloadKey
from scaler.config import Config, parse
from scaler.config.model import Prices
from scaler.daemon import Daemon, Ports
from scaler.explain.rows import row
from scaler.logs import configure

from .autoscaler import DEMO_KEDA, DemoScaledObject, StandIn
from .load import shape
from .screen import DEFAULT_PORT, DemoLinks, open_screen
from .summary import AlwaysOn, Summary, conclusion, problems, simulate_always_on, slowness
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
    replicas: {{min: 0, max: {most}}}
    keep_warm: 2m
    hpa_tolerance: 0  # as in its HPA
"""

HOST = "127.0.0.1"
OTHER_PORTS = 20  # tried if the default one is in use
MAX_REPLICAS = DEMO_KEDA.max_replicas
DURATION_S, SPEED = 60.0, 60.0  # by default
FRAMES_PER_S = 8.0  # real time
DAY_S = 3600.0  # of an endless demo, simulated
BEGIN = datetime(2000, 1, 1, tzinfo=UTC).timestamp()  # so that no simulated time passes for the present


# How frames are shown, such as `open_screen`.
OpenScreen: TypeAlias = AbstractContextManager[Callable[[ScreenFrame], None]]
Screen: TypeAlias = Callable[[Console, DemoLinks], OpenScreen]


class PortInUse(Exception):  # noqa: N818 - named for what happened
    """The message names the ports."""


@dataclass(frozen=True, slots=True)
class DemoRequest:
    """duration_s: real time; 0 until Ctrl-C. speed: simulated seconds per second. port: 0 for any free port, None for
    the default one or the next that is free. program: how this command was called.
    """

    duration_s: float
    speed: float
    seed: int
    port: int | None
    as_json: bool
    program: str = "tidegate"


class Pods(Protocol):
    """The pods of a Deployment. replicas: with draining ones."""

    @property
    def replicas(self) -> Sequence[object]: ...

    @property
    def draining(self) -> Sequence[object]: ...

    def pod_targets(self) -> Sequence[tuple[str, str]]:
        """(name, URL of its metrics) of every ready pod."""

    def replica_count(self) -> tuple[int, int]:
        """(wanted, ready)."""


@dataclass(frozen=True, slots=True)
class ReadyPods:
    """Targets of the ready pods, as a watch on a cluster provides them. kind: of the engine."""

    pods: Pods
    kind: str = "vllm"
    owner: WorkloadKey | None = CHAT

    def listing(self) -> Listing | None:
        return Listing(tuple(Target(url, self.kind, Role.PODS, self.owner) for _, url in self.pods.pod_targets()))

    async def refresh(self, now: float) -> None:
        """The world is up to date."""


@dataclass(frozen=True, slots=True)
class DeploymentReplicas:
    """Replica counts of the Deployment."""

    deployment: Pods
    now: Callable[[], float]
    owner: WorkloadKey = CHAT

    def count(self, workload: WorkloadKey, now: float) -> ReplicaCount | None:
        if workload != self.owner:
            return None
        pods, leaving = len(self.deployment.replicas), len(self.deployment.draining)
        wanted, ready = self.deployment.replica_count()
        return ReplicaCount(wanted, ready, now, gpus=pods, existing=pods - leaving, leaving=leaving)  # a GPU each


def play(request: DemoRequest, screen: Screen = open_screen) -> tuple[str, ...]:
    """Runs the demo; returns its problems as sentences. Ctrl-C stops it without a verdict. Raises PortInUse."""
    configure("console", "error")
    port = choose_port(request.port)
    with Console(stderr=True).status("compiling kernels: some seconds, only the first time"):
        import_module("scaler.engine.loop")  # before the fast clock starts
    return asyncio.run(_play(replace(request, port=port), screen))


def choose_port(wanted: int | None) -> int:
    """A free port: `wanted`, or, for None, the default one or the next that is free. Raises PortInUse."""
    last = DEFAULT_PORT + OTHER_PORTS
    for port in [wanted] if wanted is not None else range(DEFAULT_PORT, last + 1):
        with suppress(OSError), socket.create_server((HOST, port)):
            return port
    raise PortInUse(f"ports {DEFAULT_PORT} to {last} are in use" if wanted is None else f"port {wanted} is in use")


async def _play(request: DemoRequest, screen: Screen) -> tuple[str, ...]:
    """Ends with the day; on a terminal with Ctrl-C, so that the page can be read."""
    clock = FastClock(request.speed, BEGIN)
    endless = request.duration_s == 0
    day_s = DAY_S if endless else request.duration_s * request.speed
    interrupted = asyncio.Event()
    begun_at = time.monotonic()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, interrupted.set)
    async with open_world(clock, seed=request.seed, duration_s=day_s) as world:
        daemon = Daemon(
            _config(world, request.port),
            clock,
            replicas=DeploymentReplicas(world, clock.now),
            discoveries=lambda _: _discoveries(world),
        )
        stop, listening = asyncio.Event(), asyncio.get_running_loop().create_future()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(daemon.run(stop, listening.set_result), name="daemon")
            ports: Ports = await listening
            links = DemoLinks(ports.http, request.program)
            scaled_object = DemoScaledObject(NAMESPACE, WORKLOAD, {})
            stand_in = StandIn(clock, f"127.0.0.1:{ports.grpc}", scaled_object, world, clock.hold)
            scaling = tasks.create_task(stand_in.run(), name="stand-in for KEDA + HPA")
            frames = partial(_frame_of, world, daemon, stand_in, request.speed, clock)
            shown = nullcontext(lambda _: None) if request.as_json else screen(Console(), links)
            showing = tasks.create_task(_show(frames, shown), name="screen")
            day = tasks.create_task(world.run(forever=endless), name="day")
            interruption = tasks.create_task(interrupted.wait(), name="Ctrl-C")
            await asyncio.wait([day, interruption], return_when=asyncio.FIRST_COMPLETED)
            is_over = day.done()
            showing.cancel()
            await asyncio.wait([showing])
            summary = world.summary()
            _conclude(summary, request, day_s, time.monotonic() - begun_at, is_over=is_over)
            if is_over and not request.as_json and sys.stdout.isatty():
                click.echo(links.next_steps())
                day = tasks.create_task(world.run_on(), name="after the day")
                await interrupted.wait()
            for task in (scaling, day, interruption):
                task.cancel()
            stop.set()
    return problems(summary, day_s) if is_over else ()


def _config(world: World, port: int | None) -> Config:
    return parse(CONFIG.format(port=port, most=MAX_REPLICAS, gateway=f"{world.gateway_url}/metrics"), "demo.yaml")[0]


def _discoveries(world: World) -> list[Discovery]:
    gateway = Target(f"{world.gateway_url}/metrics", "epp", Role.GATEWAY, CHAT)
    return [
        ReadyPods(world),
        StaticTargets([gateway]),
        StaticTargets(Target(url, "dcgm", Role.GPUS) for url in world.dcgm_urls),
    ]


async def _show(frames: Callable[[], Awaitable[ScreenFrame]], screen: OpenScreen) -> None:
    with screen as show:
        while True:
            show(await frames())
            await asyncio.sleep(1.0 / FRAMES_PER_S)


async def _frame_of(world: World, daemon: Daemon, stand_in: StandIn, speed: float, clock: Clock) -> ScreenFrame:
    await daemon.publisher.renew()
    frame = replace(world.frame(speed), autoscaler=stand_in.last_action)
    decision = daemon.publisher.get(CHAT)
    if decision is None:
        return frame
    shown = row(decision, clock.now())
    return replace(frame, demand=shown.demand, state=shown.state, reason=shown.why)


def _conclude(summary: Summary, request: DemoRequest, day_s: float, took_s: float, *, is_over: bool) -> None:
    """took_s: real time. is_over: the day ended by itself; else unanswered requests are in progress, not lost."""
    in_progress = 0 if is_over else summary.lost
    summary = replace(summary, lost=summary.lost - in_progress)
    always_on = AlwaysOn(MAX_REPLICAS, MAX_REPLICAS * summary.simulated_s / 3600.0)
    if is_over:
        always_on = simulate_always_on(shape(day_s, request.seed), MAX_REPLICAS, day_s, summary.simulated_s)
    if request.as_json:
        sys.stdout.write(json.dumps(summary.to_document(always_on)) + "\n")
        return
    width = get_terminal_size().columns
    sentences = conclusion(summary, in_progress, always_on, Prices().gpu_hour)
    for sentence in [*sentences, *slowness(summary, request.speed, took_s)]:
        click.echo(fill(sentence, width, break_long_words=False, break_on_hyphens=False))

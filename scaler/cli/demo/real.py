"""Runs the demo with llama.cpp servers as replicas, in real time: the real daemon, real engines, a real gateway queue.

KEDA, the HPA and the pods are stand-ins, as in the simulated demo; there are no GPUs. A day is a minute or two: no
client, one, then more than one replica serves in time, two, and none. A client sends a request, waits for the whole
answer, and sends the next one, so the load is the same on a fast and on a slow machine.

Worked example: `tidegate demo --engine llama.cpp` wakes the first replica within 2 s of the first request, runs two
while seven clients send, and none at the end.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import click
from rich.console import Console

from exporter.clock import WallClock
from exporter.discovery import Discovery
from exporter.discovery.dns import StaticTargets
from exporter.model import Role, Target
from scaler.config import parse
from scaler.daemon import Daemon
from scaler.explain.rows import row
from scaler.logs import configure

from . import llamacpp
from .autoscaler import DEMO_KEDA, DemoScaledObject, StandIn
from .processes import ProcessCluster, open_processes
from .run import CHAT, FRAMES_PER_S, DemoRequest, DeploymentReplicas, ReadyPods, choose_port
from .screen import PLAIN_HEAD, DemoLinks, plain_printer
from .world import ScreenFrame

DURATION_S = 75.0
MAX_REPLICAS = 2  # each computes on one core
SLOTS = 4  # as many as `work` of llama.cpp in the catalog
SLEEPS_FROM_S = 60.0  # the night of 30 % holds keep-warm, KEDA's cooldown, its poll and the last answers
GRACE_S = 60.0  # after the day, for unanswered requests
_TOKENS = (200, 900)
_RATE_WINDOW_S = 5.0
_PLAIN_INTERVAL_S = 5.0

# Times are those of a cluster, shortened: a day has only a minute.
CONFIG = """
listen: {{http: "127.0.0.1:{port}", grpc: "127.0.0.1:0"}}
scrape: {{interval: 1s}}
workloads:
  - namespace: demo
    name: chat
    engine: llamacpp
    pods: {{dns: chat.demo.svc}}
    gateway: {{url: "{gateway}"}}
    replicas: {{min: 0, max: {most}}}
    keep_warm: 5s
    smoothing: {{up: 2s, down: 5s}}
    hpa_tolerance: 0  # as in its HPA
"""
KEDA = replace(DEMO_KEDA, max_replicas=MAX_REPLICAS, polling_interval_s=2.0, cooldown_s=5.0)

# (share of the day at which it begins, clients)
_DAY = ((0.0, 0), (0.06, 1), (0.15, 7), (0.60, 2), (0.70, 0))


def clients_at(share: float) -> int:
    """Clients at a share of the day."""
    return next(clients for begin, clients in reversed(_DAY) if share >= begin)


@dataclass(slots=True)
class RealLoad:
    """The clients of one day. begun_at, sent_at: by `time.time()`."""

    url: str
    duration_s: float
    seed: int
    begun_at: float = 0.0
    sent_at: list[float] = field(default_factory=list)
    answered: int = 0
    tokens: int = 0

    async def run(self) -> None:
        """Returns when the day is over and every request has its answer, or after GRACE_S more."""
        self.begun_at = time.time()
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session:
            clients = [asyncio.create_task(self._client(number, session)) for number in range(max(n for _, n in _DAY))]
            await asyncio.wait(clients, timeout=self.duration_s + GRACE_S)
            for client in clients:
                client.cancel()
            for ended in await asyncio.gather(*clients, return_exceptions=True):
                if isinstance(ended, Exception):
                    raise ended

    async def _client(self, number: int, session: aiohttp.ClientSession) -> None:
        generator = random.Random(f"{self.seed} {number}")  # noqa: S311 - no secret
        while (share := (time.time() - self.begun_at) / self.duration_s) < 1.0:
            if number >= clients_at(share):
                await asyncio.sleep(0.1)
                continue
            wanted = generator.randint(*_TOKENS)
            self.sent_at.append(time.time())
            body = {"prompt": "Why is the sea salty?", "max_tokens": wanted, "ignore_eos": True}
            try:
                async with session.post(f"{self.url}/v1/completions", json=body) as response:
                    generated = (await response.json())["usage"]["completion_tokens"] if response.ok else 0
            except (aiohttp.ClientError, KeyError):
                generated = 0
            self.answered += generated == wanted
            self.tokens += generated


def play(request: DemoRequest) -> tuple[str, ...]:
    """Runs one day; returns its problems as sentences. Ctrl-C stops it without a verdict.

    Raises MissingEngine, PortInUse.
    """
    llamacpp.require()
    configure("console", "error")
    port = choose_port(request.port)
    with TemporaryDirectory(prefix="tidegate-demo-") as folder:
        model = Path(folder) / "random.gguf"
        llamacpp.write_model(model, seed=request.seed)
        return asyncio.run(_play(replace(request, port=port), model))


async def _play(request: DemoRequest, model: Path) -> tuple[str, ...]:
    clock, interrupted = WallClock(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, interrupted.set)
    async with open_processes(model, llamacpp.ServerOptions(slots=SLOTS)) as cluster:
        daemon = Daemon(
            parse(
                CONFIG.format(port=request.port, gateway=f"{cluster.gateway_url}/metrics", most=MAX_REPLICAS), "demo"
            )[0],
            clock,
            replicas=DeploymentReplicas(cluster, clock.now),
            discoveries=lambda _: _discoveries(cluster),
        )
        load = RealLoad(cluster.gateway_url, request.duration_s, request.seed)
        stop, listening = asyncio.Event(), asyncio.get_running_loop().create_future()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(daemon.run(stop, listening.set_result), name="daemon")
            ports = await listening
            scaled_object = DemoScaledObject(CHAT.namespace, CHAT.name, {}, KEDA)
            stand_in = StandIn(clock, f"127.0.0.1:{ports.grpc}", scaled_object, cluster)
            scaling = tasks.create_task(stand_in.run(), name="stand-in for KEDA + HPA")
            frames = partial(_frame, cluster, load, daemon, stand_in)
            showing = None
            if not request.as_json:
                _print_head(DemoLinks(ports.http, request.program))
                showing = tasks.create_task(_show(frames), name="screen")
            day = tasks.create_task(load.run(), name="day")
            interruption = tasks.create_task(interrupted.wait(), name="Ctrl-C")
            await asyncio.wait([day, interruption], return_when=asyncio.FIRST_COMPLETED)
            is_over = day.done()
            result = _result(cluster, load)
            for task in (scaling, day, interruption, *([showing] if showing else [])):
                task.cancel()
            stop.set()
    _print(result, as_json=request.as_json)
    return problems(result, request.duration_s) if is_over else ()


def _discoveries(cluster: ProcessCluster) -> list[Discovery]:
    gateway = Target(f"{cluster.gateway_url}/metrics", "epp", Role.GATEWAY, CHAT)
    return [ReadyPods(cluster, "llamacpp"), StaticTargets([gateway])]


def _print_head(links: DemoLinks) -> None:
    for line in (
        f"live page: {links.page}",
        f"in another terminal: {links.command('top')}",
        f"Each replica is a llama.cpp server with a random model, {SLOTS} slots and one thread. Times are real.",
        PLAIN_HEAD,
    ):
        click.echo(line)


async def _show(frames: Callable[[], Awaitable[ScreenFrame]]) -> None:
    show = plain_printer(Console(), _PLAIN_INTERVAL_S)
    while True:
        show(await frames())
        await asyncio.sleep(1.0 / FRAMES_PER_S)


async def _frame(cluster: ProcessCluster, load: RealLoad, daemon: Daemon, stand_in: StandIn) -> ScreenFrame:
    await daemon.publisher.renew()
    now, state = time.time(), cluster.state()
    decision = daemon.publisher.get(CHAT)
    shown = None if decision is None else row(decision, now)
    return ScreenFrame(
        at_s=max(0.0, now - load.begun_at) if load.begun_at else 0.0,
        duration_s=load.duration_s,
        speed=1.0,
        arrivals_per_s=sum(at > now - _RATE_WINDOW_S for at in load.sent_at) / _RATE_WINDOW_S,
        held=len(cluster.held),
        waiting=round(state.waiting * state.ready),
        running=round(state.running * state.ready),
        gpu_active=(),
        wanted=cluster.wanted,
        ready=len(cluster.ready),
        loading=len(cluster.loading),
        draining=len(cluster.draining),
        sent=len(load.sent_at),
        answered=load.answered,
        slo_met_ratio=None,
        gpu_hours=0.0,
        demand=None if shown is None else shown.demand,
        state=None if shown is None else shown.state,
        reason="" if shown is None else shown.why,
        autoscaler=stand_in.last_action,
    )


def _result(cluster: ProcessCluster, load: RealLoad) -> dict[str, Any]:
    tally = cluster.tally
    woke_after_s = None
    if tally.held_at_zero_at is not None and tally.woken_at is not None:
        woke_after_s = round(tally.woken_at - tally.held_at_zero_at, 2)
    sent = len(load.sent_at)
    return {
        "engine": "llama.cpp",
        "requests": {"sent": sent, "answered": load.answered, "lost": sent - load.answered},
        "tokens": load.tokens,
        "replicas": {"max": tally.most_wanted, "final": cluster.wanted, "changes": tally.changes},
        "seconds": round(time.time() - load.begun_at, 1),
        "replica_seconds": round(cluster.gpu_seconds(), 1),
        "woke_after_s": woke_after_s,
        "slept": tally.slept,
    }


def _print(result: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(result) + "\n")
        return
    requests, replicas = result["requests"], result["replicas"]
    click.echo(
        f"{requests['answered']} of {requests['sent']} requests answered, {requests['lost']} lost, "
        f"{result['tokens']:,} tokens, in {result['seconds']:.0f} s."
    )
    click.echo(f"Up to {replicas['max']} replicas in {replicas['changes']} changes, {replicas['final']} at the end.")
    if result["woke_after_s"] is not None:
        asleep = ", and put to sleep again" if result["slept"] else ""
        click.echo(f"Woken {result['woke_after_s']:.1f} s after the gateway held the first request{asleep}.")
    always_s = MAX_REPLICAS * result["seconds"]
    click.echo(f"{result['replica_seconds']:.0f} replica-seconds; always-on takes {always_s:.0f}.")


def problems(result: dict[str, Any], duration_s: float) -> tuple[str, ...]:
    """Reasons to exit with status 1."""
    reasons = []
    requests = result["requests"]
    if requests["lost"]:
        reasons.append(f"{requests['lost']} of {requests['sent']} requests were not answered")
    if requests["sent"] and result["woke_after_s"] is None:
        reasons.append("the workload was not woken for a request held at zero replicas")
    if duration_s >= SLEEPS_FROM_S and not result["slept"]:
        reasons.append("the workload was not put to sleep again")
    return tuple(reasons)

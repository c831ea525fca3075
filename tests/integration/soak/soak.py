"""A week of three workloads with faults. Clients, pods, KEDA and the HPA are simulated; the control loop is real.

Each minute a fault may begin: a target is lost or hostile, the process is killed and restored from its checkpoint, the
configuration is reloaded, the leader changes, a pod is deleted. Each second every answer is judged, see `_judge`.

Worked example: `run(soak(days=7.0, seed=1))` returns a Report whose `unlawful` is empty.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from math import exp, sin, tau
from random import Random
from resource import RUSAGE_SELF, getrusage

from exporter.discovery import Listing
from exporter.model import PodKey, ReplicaCount, Role, Target, WorkloadKey
from scaler.config import parse
from tests.integration.storyboards.clockwork import DAY_S, HOUR_S, MINUTE_S, MONDAY, Clock
from tests.integration.storyboards.control import Control
from tests.integration.storyboards.world import Model, Node

from .faults import FAULTS, HARMLESS, Fault
from .process import Process
from .simulated_time import SimulatedClock

INTERVAL_S, TICK_S = 15.0, 5.0
MOST = 8  # replicas, also of the ScaledObject in `Control`
FRESH_S = 3.0 * INTERVAL_S + TICK_S + 2.0  # a reading is fresh for three intervals
SHOWN_S = 2.0 * INTERVAL_S + TICK_S + 2.0  # until a request is in a decision
SETTLED_S = 90.0  # after a fault, until every answer has to be the usual one
LATENCY_S = 0.02  # of a response

# Requests per hour at an hour of the day 0..24, and seconds that one takes.
LOADS = {
    "chat": (lambda hour: 120.0 * max(0.0, sin(tau * (hour - 7.0) / 24.0)), 20.0),
    "nightly": (lambda hour: 400.0 if 1.0 <= hour < 2.0 else 0.0, 60.0),
    "rare": (lambda hour: 0.5, 10.0),
}
CONFIG = """
scrape: {{interval: 15s, timeout: 5s, wake_interval: 5s}}
tick: 5s
explain: {{memory: 64KiB}}
workloads:
"""
WORKLOAD = """
  - namespace: ai
    name: {name}
    engine: vllm
    pods: {{dns: {name}.ai.svc}}
    gateway: {{url: "http://{name}-epp.ai.svc:9090/metrics"}}
    replicas: {{min: 0, max: {most}}}
    keep_warm: {keep_warm}
"""


def config_of(keep_warm):
    text = CONFIG.format() + "".join(WORKLOAD.format(name=name, most=MOST, keep_warm=keep_warm) for name in LOADS)
    return parse(text, "config.yaml")[0]


@dataclass(frozen=True)
class Resources:
    """What the process holds, after a full collection. resident: bytes. blocks: of Python's allocator."""

    day: float
    resident: int
    blocks: int
    descriptors: int
    tasks: int
    checkpoint: int
    metrics: int

    @classmethod
    def of(cls, day, checkpoint, metrics):
        gc.collect()
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - a descriptor less
            resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        descriptors = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - the same
        return cls(day, resident, sys.getallocatedblocks(), descriptors, len(asyncio.all_tasks()), checkpoint, metrics)


@dataclass
class Report:
    """unlawful: a sentence for each answer that breaks an invariant. failures: exceptions that Tidegate contained."""

    unlawful: list = field(default_factory=list)
    days: list = field(default_factory=list)
    answers: Counter = field(default_factory=Counter)
    events: Counter = field(default_factory=Counter)
    failures: float = 0.0
    requests: int = 0
    cpu_s: float = 0.0


class Pods:
    """The discovery of a workload's pods."""

    def __init__(self, owner, model):
        self.owner, self._model = owner, model

    def target(self, pod):
        return Target(f"http://{pod.name}:8000/metrics", "vllm", Role.PODS, self.owner, pod=PodKey("ai", pod.name))

    def listing(self):
        served = {self.target(pod): pod.leaving_at is not None for pod in self._model.pods if pod.ready_at is not None}
        return Listing(tuple(served), frozenset(target for target, leaves in served.items() if leaves))

    async def refresh(self, now):
        pass


class Fixed:
    """A target that is always there."""

    owner = None

    def __init__(self, target):
        self._listing = Listing((target,))

    def listing(self):
        return self._listing

    async def refresh(self, now):
        pass


class Scaled:
    """One workload: its model, KEDA and the HPA, and what the judge remembers of it."""

    def __init__(self, soak, name):
        self.key, self.model = WorkloadKey("ai", name), Model(soak.world, name, start_s=60.0)
        self.pods = Pods(self.key, self.model)
        self.last = None  # the last answer that was no error
        self.disturbed_until = soak.world.now + SETTLED_S
        gate = _Answers(soak, self.key)
        self.control = Control(soak.world, gate, self.model)
        self.gateway = Target(f"http://{name}-epp:9090/metrics", "epp", Role.GATEWAY, self.key)


class _Answers:
    """What `Control` reads, in place of the storyboards' Gate."""

    def __init__(self, soak, key):
        self._soak, self._key = soak, key

    @property
    def alive(self):
        return self._soak.process.alive

    def answer(self, model):
        return self._soak.process.publisher.get(self._key) if self.alive else None


class Soak:
    def __init__(self, seed, begin):
        self.chance, self.begin = Random(seed), begin
        self.clock, self.world = SimulatedClock(begin), Clock(begin)
        self.report, self.faults = Report(), []
        self.process = Process(self.clock, self, self, self._discoveries, self._pushed)
        self.scaled = {name: Scaled(self, name) for name in LOADS}
        self.node = Node(self.world, [each.model for each in self.scaled.values()])
        self.read_at = {}  # URL: POSIX seconds of its last response without a fault
        self._by_key = {each.key: each for each in self.scaled.values()}
        self._revived_at = None
        self._following_until = None
        self._config = config_of("5m")

    async def run(self, days):
        began, cpu = self.clock.now(), _cpu_s()
        self.process.start(self._config)
        for name in LOADS:
            self._come_later(name)
        end = began + days * DAY_S
        while (now := self.clock.now()) < end:
            await asyncio.sleep(1.0)
            self.world.run_until(self.clock.now())
            minute, second = divmod(round(now - began), MINUTE_S)
            if second == 0.0:
                await self._minute(int(minute))
            self._second()
        if days < 1.0 and self.process.alive:
            await self._measure(days)
        if self.process.alive:
            self.report.failures += self.process.failures()
            await self.process.kill()
        self.report.cpu_s = _cpu_s() - cpu
        return self.report

    # What Tidegate reads.

    async def fetch(self, url, access):
        await asyncio.sleep(LATENCY_S)
        place, text = self._page(url)
        if text is None:
            return FAULTS["refused"]("", self.chance)
        kinds = [fault.kind for fault in self.faults if fault.place == place]
        if not HARMLESS.issuperset(kinds):
            return FAULTS[kinds[0]](text, self.chance)
        self.read_at[url] = self.clock.now()
        return FAULTS[kinds[0]](text, self.chance) if kinds else text.encode()

    def _page(self, url):
        """The place of a fault, and the text of the target; None without one."""
        if url.startswith("http://node"):
            return ("node",), self.node.page()
        host = url.removeprefix("http://").partition(":")[0]
        each = self.scaled[host.partition("-")[0]]
        if host.endswith("-epp"):
            return (each.model.name, "gateway"), each.model.gateway_page()
        pod = next((pod for pod in each.model.pods if pod.name == host), None)
        return (each.model.name, "pods"), None if pod is None else each.model.engine_page(pod)

    def count(self, workload, now):
        model = self._by_key[workload].model
        staying = [pod for pod in model.pods if pod.leaving_at is None]
        return ReplicaCount(
            model.wanted,
            sum(pod.ready for pod in staying),
            now,
            pending=sum(not pod.scheduled for pod in staying),
            existing=len(staying),
        )

    def _discoveries(self, config):
        node = Target("http://node-0:9400/metrics", "dcgm", Role.GPUS)
        return [
            *(each.pods for each in self.scaled.values()),
            *(Fixed(target) for target in (node, *(each.gateway for each in self.scaled.values()))),
        ]

    def _pushed(self, workload):
        decision = self.process.publisher.get(workload)
        if decision is not None:
            self._by_key[workload].control.pushed(decision)

    # Clients.

    def _come_later(self, name):
        """The next look at a workload's load, once a minute."""
        per_hour, service_s = LOADS[name]
        hour = (self.world.now - MONDAY) % DAY_S / HOUR_S
        for _ in range(self._poisson(per_hour(hour) / 60.0)):
            self.report.requests += 1
            self.scaled[name].model.ask_at(self.world.now + self.chance.uniform(0.0, 60.0), service_s)
        self.world.after(MINUTE_S, partial(self._come_later, name))

    def _poisson(self, mean):
        count, product, limit = 0, self.chance.random(), exp(-mean)
        while product > limit:
            count, product = count + 1, product * self.chance.random()
        return count

    # Faults.

    async def _minute(self, minute):
        now = self.clock.now()
        self.faults = [fault for fault in self.faults if fault.until > now]
        if self._revived_at is not None and now >= self._revived_at:
            self._revived_at = None
            self.process.start(self._config)
            self._disturb(self.scaled.values(), now)
        if not self.process.alive:
            return
        if minute % 1440 == 1439:
            await self._measure((minute + 1) / 1440)
        if minute % 60 == 59:
            await self.process.read_metrics()
            self._forget_the_past()
        await self.process.checkpoint()
        if self._following_until is not None and now >= self._following_until:
            self._following_until = None
            self.process.follow(leads=True)
        draw = self.chance.random()
        if draw < 0.04:
            self._lose_a_target(now)
        elif draw < 0.05:
            await self._kill(now)
        elif draw < 0.06:
            self.report.events["reload"] += 1
            self._config = config_of(self.chance.choice(["5m", "6m", "10m"]))
            await self.process.reload(self._config)
        elif draw < 0.07 and self._following_until is None:
            self.report.events["follow"] += 1
            self._following_until = now + self.chance.uniform(60.0, 600.0)
            self.process.follow(leads=False)
        elif draw < 0.09:
            self._delete_a_pod(now)

    def _lose_a_target(self, now):
        each = self.chance.choice(list(self.scaled.values()))
        place = self.chance.choice([(each.model.name, "gateway"), (each.model.name, "pods"), ("node",)])
        if any(fault.place == place for fault in self.faults):
            return
        kind, until = self.chance.choice(list(FAULTS)), now + self.chance.choice([20.0, 120.0, 900.0])
        self.report.events[kind] += 1
        self.faults.append(Fault(place, kind, until))
        self._disturb(self.scaled.values() if place == ("node",) else [each], until + MINUTE_S)

    async def _kill(self, now):
        self.report.events["kill"] += 1
        self.report.failures += self.process.failures()
        await self.process.kill()
        self._following_until, self.process.leads = None, True
        self._revived_at = now + self.chance.choice([1.0, 60.0, 120.0])
        for each in self.scaled.values():
            each.control.stream_broke(self._revived_at - now)
        self._disturb(self.scaled.values(), self._revived_at + MINUTE_S)

    def _delete_a_pod(self, now):
        each = self.chance.choice(list(self.scaled.values()))
        staying = [pod for pod in each.model.pods if pod.leaving_at is None]
        if staying:
            self.report.events["pod deleted"] += 1
            each.model._let_go(self.chance.choice(staying))
            each.model.scale(each.model.wanted)  # its ReplicaSet makes another one
            self._disturb([each], now)

    @staticmethod
    def _disturb(scaled, until):
        for each in scaled:
            each.disturbed_until = max(each.disturbed_until, until + SETTLED_S)

    def _forget_the_past(self):
        """The simulation itself must not grow."""
        gpus = {pod.gpu for each in self.scaled.values() for pod in each.model.pods}
        self.node._joules = {gpu: value for gpu, value in self.node._joules.items() if gpu in gpus}
        names = {each.pods.target(pod).url for each in self.scaled.values() for pod in each.model.pods}
        self.read_at = {url: at for url, at in self.read_at.items() if "-epp:" in url or "node" in url or url in names}
        for each in self.scaled.values():
            each.model.requests[:] = [request for request in each.model.requests if not request.over]

    async def _measure(self, day):
        checkpoint, metrics = await self.process.checkpoint(), len(await self.process.read_metrics())
        self.report.days.append(Resources.of(day, checkpoint, metrics))

    # The judge.

    def _second(self):
        if self.process.alive:
            for each in self.scaled.values():
                answer = self.process.answer(each.key)
                self.report.answers["error" if answer is None else "active" if answer.active else "inactive"] += 1
                for broken in self._judge(each, answer):
                    at, decision = self.clock.now() - self.begin, self.process.publisher.get(each.key)
                    reason = None if decision is None else decision.reason
                    self.report.unlawful.append(f"{at:.0f} s: {each.key}: {broken}: {answer}, {reason}")
                each.last = answer or each.last

    def _judge(self, each, answer):
        """Which invariants an answer breaks."""
        now, model = self.clock.now(), each.model
        calm = now > each.disturbed_until
        if answer is None:
            if calm:
                yield "an error without a fault"
            return
        if not 0 <= answer.replicas <= MOST:
            yield "out of bounds"
        if (answer.replicas > 0) != answer.active:
            yield "active and replicas disagree"
        waiting = [request.at for request in model.in_hand() if now - request.at > SHOWN_S]
        fell = each.last is not None and each.last.active and not answer.active
        if fell and waiting:
            yield f"zero while busy: {len(waiting)} requests"
        if fell and (model.wanted or model.pods) and (stale := self._stale(each, now)):
            yield f"zero while unknown: {stale}"
        if calm and not answer.active and waiting:
            yield f"asleep while {len(waiting)} requests wait"

    def _stale(self, each, now):
        """The targets of a workload without a sound response for so long that they are unknown."""
        urls = [each.gateway.url]
        urls += [each.pods.target(pod).url for pod in each.model.pods if pod.ready and now - pod.ready_at > FRESH_S]
        return [url for url in urls if now - self.read_at.get(url, 0.0) > FRESH_S]


def _cpu_s():
    usage = getrusage(RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def soak(days, seed, begin=MONDAY):
    """begin: POSIX seconds."""
    return await Soak(seed, begin).run(days)

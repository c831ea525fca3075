"""Tidegate in the world: the real reading of pages and the real Decider, on the shipped configuration.

What `scaler.engine.loop` does with sockets and tasks is done here by the clock: pages are asked each at its own
phase, a page
that lands is decided on at once, a sweep follows every tick, the cluster is known half a second late. `kill` and
`start` are the end and the beginning of the process.

Worked example: `Gate(clock, "workloads: [...]", [model])` asks the gateway of `ai/chat` every 5 s, and each of its pods
once it is ready; `answer(model)` is the Decision that stands on the Board, None where there is none.
"""

from __future__ import annotations

from functools import partial
from random import Random

from exporter.catalog import Reader
from exporter.kubernetes.objects import Pod
from exporter.model import Failure, PodKey, ReplicaCount, Role, Target, WorkloadKey
from exporter.scrape.request import read
from exporter.textformat import Scanner
from scaler.config import parse
from scaler.engine.checkpoint_format import pack, unpack
from scaler.engine.decider import Decider
from scaler.policy.constraints import HourlyPrices
from scaler.workloads import ordered, take, targets

from .world import SCHEDULED_S

CHECKPOINT_S = 10.0
WATCH_S = 0.5  # until what changes in the cluster is known here
SETTLED_S = 30.0  # nothing has moved for so long: every page and every tick has seen it

CHAT = """
workloads:
  - namespace: ai
    name: chat
    engine: vllm
    pods: {dns: chat.ai.svc}
    gateway: {url: "http://chat-epp.ai.svc:9090/metrics"}
    replicas: {min: 0, max: 8}
"""
CONSTANT = CHAT + "    keep_warm: 5m\n"  # where a story is not of what is learned


def key_of(model):
    return WorkloadKey("ai", model.name)


class Gate:
    """config: the text of a configuration file. nodes: whose GPUs are shown. seed: of the phases of its scrapes.
    gateways: is there a page that lives at zero? snapshots: is there something left of a process that was killed?

    answered: told (model, decision) of each answer that has changed, as KEDA's stream is.
    """

    def __init__(self, clock, config, models, nodes=(), *, gateways=True, seed=1, tick_s=None, snapshots=False):
        self.clock, self.models, self.nodes = clock, {key_of(model): model for model in models}, tuple(nodes)
        self.config, _ = parse(config, "config.yaml")
        self.interval_s, self.tick_s = self.config.scrape.interval, tick_s or self.config.tick
        self._wake_s = min(self.interval_s, self.config.scrape.wake_interval)
        self.answered = lambda model, decision: None
        self.alive = False
        self.silent = {}  # role: (from, until): pages that do not answer
        self.heard_at = {}  # target: POSIX seconds of the last page that landed
        self._gateways, self._checkpoints, self._chance = gateways, snapshots, Random(seed)
        self._views = {key: self._view(model) for key, model in self.models.items()}
        self.board = {}
        self._moved_at = clock.now
        self.kept = None  # what the last process left behind
        for key, model in self.models.items():
            model.changed = partial(self._changed, key, model)
        self.start()

    # The process.

    def start(self):
        """A process begins, with what the last one has left, if it has."""
        census = take(self.config, (), (), ())
        self._decider = Decider(
            targets.plans(self.config, census.workloads, ordered(census)),
            interval_s=self.interval_s,
            fresh_intervals=self.config.freshness.intervals,
            prices=HourlyPrices(self.config.prices.gpu_hour, self.config.prices.waiting_hour),
        )
        if self.kept is not None:
            self._decider.restore(unpack(self.kept), self.clock.now)
        self._pages, self._asked, self._readers = {}, {}, {}
        self._rounds, self._wakes = {}, []
        self.alive = True
        for number, node in enumerate(self.nodes):
            self._ask(Target(f"http://node-{number}:9400/metrics", "dcgm", Role.GPUS), node.page)
        if self._gateways:
            for key, model in self.models.items():
                url = f"http://{model.name}-epp:9090/metrics"
                self._ask(Target(url, "epp", Role.GATEWAY, key), model.gateway_page)
        for key in self.models:
            self.clock.after(WATCH_S, partial(self._look, key, self._views[key], self._decider))
        self._ticks = self.clock.every(self.tick_s, self._tick, first_s=self.tick_s)
        if self._checkpoints:
            self._keeps = self.clock.every(CHECKPOINT_S, self._keep, first_s=CHECKPOINT_S)

    def _keep(self):
        self.kept = pack(self._decider.state(self.clock.now))

    def kill(self):
        self.alive = False
        self.board = {}
        self._ticks.stop()
        if self._checkpoints:
            self._keeps.stop()
        for beat in (*self._rounds.values(), *self._wakes):
            beat.stop()
        self._asked, self._rounds, self._wakes = {}, {}, []

    def answer(self, model):
        return self.board.get(key_of(model))

    def rests(self):
        """Is everything at zero, known to be, and the same from page to page?"""
        return (
            self.alive
            and len(self.board) == len(self.models)
            and not self.silent
            and all(not decision.active and str(decision.reason) != "held" for decision in self.board.values())
            and all(view.count.existing == 0 and not view.pods for view in self._views.values())
            and self.clock.now - self._moved_at > SETTLED_S
        )

    def catch_up(self):
        """After a rest: every page is asked, then it is decided."""
        for key in list(self._rounds):
            self._scrape([target for target in self._asked if key in (target, target.owner)])
        self._tick()

    # The cluster.

    def _view(self, model):
        staying = [pod for pod in model.pods if pod.leaving_at is None]
        count = ReplicaCount(
            model.wanted,
            sum(pod.ready for pod in staying),
            self.clock.now,
            pending=sum(not pod.scheduled for pod in staying),
            existing=len(staying),
        )
        served = [(pod, pod.leaving_at is not None) for pod in model.pods if pod.ready_at is not None]
        return _View(count, served, tuple(self._record(pod) for pod in model.pods))

    def _record(self, pod):
        """A pod as the API server tells of it."""
        waits = not pod.scheduled and self.clock.now >= pod.created_at + SCHEDULED_S
        return Pod(
            PodKey("ai", pod.name),
            uid=pod.name,
            phase="Running" if pod.scheduled else "Pending",
            ready=pod.ready,
            was_ready=pod.ready_at is not None,
            leaving=pod.leaving_at is not None,
            created_at=pod.created_at,
            scheduled_at=pod.scheduled_at,
            unscheduled_since=pod.created_at + SCHEDULED_S if waits else None,
            ready_at=pod.ready_at if pod.ready else None,
        )

    def _changed(self, key, model):
        self.clock.after(WATCH_S, partial(self._look, key, self._view(model), None))

    def _look(self, key, view, decider):
        """What the watches say now. decider: the one that was begun with it, where that is why it is told."""
        self._views[key], self._moved_at = view, self.clock.now
        if not self.alive or (decider is not None and decider is not self._decider):
            return
        self._decider.counted(key, view.count)
        self._decider.started(key, view.records, self.clock.now)
        listed = {self._engine(key, pod): (pod, leaving) for pod, leaving in view.pods}
        for target, (pod, _) in listed.items():
            if target not in self._asked:
                self._ask(target, partial(self.models[key].engine_page, pod))
        for target in [each for each in self._asked if each.role is Role.PODS and each.owner == key]:
            if target not in listed:
                del self._asked[target]
                self._readers.pop(target, None)
                self._decider.retire(target)
        leaving = frozenset(target for target, (_, goes) in listed.items() if goes)
        if self.config.workloads[0].pods is not None:
            self._decider.listed(key, len(listed) - len(leaving), leaving)

    @staticmethod
    def _engine(key, pod):
        return Target(f"http://{pod.name}:8000/metrics", "vllm", Role.PODS, key, pod=PodKey("ai", pod.name))

    # The pages.

    def _ask(self, target, page):
        """As `exporter.scrape.loop.loop`: in rounds, which all targets of a workload share; a new pod causes one
        more."""
        self._decider.expect(target)
        self._pages[target] = page
        key = target.owner or target
        if key not in self._rounds:
            first_s = self._chance.uniform(0.0, self.interval_s)
            self._rounds[key] = self.clock.every(self.interval_s, partial(self._scrape_round, key), first_s)
        elif target.role is Role.PODS:
            self.clock.after(0.0, partial(self._scrape_round, key))
        self._asked[target] = self._rounds[key]
        if target.role is Role.GATEWAY:
            first_s = self._chance.uniform(0.0, self._wake_s)
            self._wakes.append(self.clock.every(self._wake_s, partial(self._scrape_wake_source, target), first_s))

    def _at_zero(self, key):
        decision = self.board.get(key)
        known = decision is not None and decision.known
        return known and not decision.active and not decision.evidence.replicas_wanted

    def _scrape_round(self, key):
        targets = [target for target in self._asked if key in (target, target.owner)]
        self._scrape([t for t in targets if t.role is not Role.GATEWAY or not self._at_zero(key)])

    def _scrape_wake_source(self, target):
        if self._at_zero(target.owner):
            self._scrape([target])

    def _scrape(self, targets):
        now, landings = self.clock.now, []
        for target in self._chance.sample(targets, len(targets)):  # responses come in any order
            since, until = self.silent.get(target.role, (now, now))
            reader, scanner = self._readers.setdefault(target, (Reader(target.kind), Scanner()))
            silent = since <= now < until
            outcome = None if silent else read(self._pages[target]().encode(), reader, scanner, now)
            if outcome is None or isinstance(outcome, Failure):
                self._decider.missed(target)
            else:
                self.heard_at[target] = now
                landings.append((target, outcome, now))
        if landings:
            self._publish(self._decider.land_together(landings, now))

    def _tick(self):
        for key, view in self._views.items():
            self._decider.counted(key, view.count)
        self._publish(self._decider.sweep(self.clock.now))

    def _publish(self, changed):
        for decision in changed:
            self.board[decision.workload] = decision
            self.answered(self.models[decision.workload], decision)

    def seen_at(self, model, pod=None):
        """POSIX seconds of the last page of a model's gateway, or of one of its pods; -inf if there was none."""
        for target, at in self.heard_at.items():
            if target.owner == key_of(model) and (
                target.role is Role.GATEWAY if pod is None else target.pod == PodKey("ai", pod.name)
            ):
                return at
        return float("-inf")


class _View:
    """What the cluster says of a model: its count, its pods that have been ready with whether they are leaving, and all
    of its pods as the API server tells of them.
    """

    def __init__(self, count, pods, records):
        self.count, self.pods, self.records = count, pods, records

"""Tidegate in the simulation: the real parsers and the real Decider, on the shipped configuration.

The clock replaces the sockets and tasks of `scaler.engine.loop`. Each target is scraped at its own phase, each landing
is decided at once, a sweep follows every tick, and changes of the cluster arrive half a second late. `kill` and `start`
end and start the process.

Worked example: `Gate(clock, "workloads: [...]", [model])` scrapes the gateway of `ai/chat` every 5 s, and each of its
pods once it is ready; `answer(model)` is the Decision on the Board, or None.
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
WATCH_S = 0.5  # delay of a change in the cluster until the watch delivers it
SETTLED_S = 30.0  # after this time without a change every scrape and every tick has followed it

CHAT = """
workloads:
  - namespace: ai
    name: chat
    engine: vllm
    pods: {dns: chat.ai.svc}
    gateway: {url: "http://chat-epp.ai.svc:9090/metrics"}
    replicas: {min: 0, max: 8}
"""
CONSTANT = CHAT + "    keep_warm: 5m\n"  # for scenarios without a learned keep-warm time


def key_of(model):
    return WorkloadKey("ai", model.name)


class Gate:
    """config: the text of a configuration file. nodes: their GPUs are exposed. seed: of the phases of its scrapes.
    gateways: whether a target exists at zero replicas. snapshots: whether a killed process leaves a checkpoint.

    answered: called with (model, decision) for each changed decision, like KEDA's stream.
    """

    def __init__(self, clock, config, models, nodes=(), *, gateways=True, seed=1, tick_s=None, checkpoints=False):
        self.clock, self.models, self.nodes = clock, {key_of(model): model for model in models}, tuple(nodes)
        self.config, _ = parse(config, "config.yaml")
        self.interval_s, self.tick_s = self.config.scrape.interval, tick_s or self.config.tick
        self._wake_s = min(self.interval_s, self.config.scrape.wake_interval)
        self.answered = lambda model, decision: None
        self.alive = False
        self.silent = {}  # role: (from, until): targets that do not respond
        self.scraped_at = {}  # target: POSIX seconds of its last successful scrape
        self._gateways, self._checkpoints, self._chance = gateways, checkpoints, Random(seed)
        self._views = {key: self._view(model) for key, model in self.models.items()}
        self.board = {}
        self._moved_at = clock.now
        self.kept = None  # the checkpoint of the last process
        for key, model in self.models.items():
            model.changed = partial(self._changed, key, model)
        self.start()

    # The process.

    def start(self):
        """Start a process, with the checkpoint of the last one if there is one."""
        registry = take(self.config, (), (), ())
        self._decider = Decider(
            targets.Plans(self.config).take(registry.workloads, ordered(registry)),
            interval_s=self.interval_s,
            fresh_intervals=self.config.freshness.intervals,
            prices=HourlyPrices(self.config.prices.gpu_hour, self.config.prices.waiting_hour),
        )
        if self.kept is not None:
            self._decider.restore(unpack(self.kept), self.clock.now)
        self._pages, self._scraped, self._readers = {}, {}, {}
        self._rounds, self._wakes = {}, []
        self.alive = True
        for number, node in enumerate(self.nodes):
            self._add_target(Target(f"http://node-{number}:9400/metrics", "dcgm", Role.GPUS), node.page)
        if self._gateways:
            for key, model in self.models.items():
                url = f"http://{model.name}-epp:9090/metrics"
                self._add_target(Target(url, "epp", Role.GATEWAY, key), model.gateway_page)
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
        self._scraped, self._rounds, self._wakes = {}, {}, []

    def answer(self, model):
        return self.board.get(key_of(model))

    def rests(self):
        """Whether every workload is at zero, counted as such, and unchanged between scrapes."""
        return (
            self.alive
            and len(self.board) == len(self.models)
            and not self.silent
            and all(not decision.active and str(decision.reason) != "held" for decision in self.board.values())
            and all(view.count.existing == 0 and not view.pods for view in self._views.values())
            and self.clock.now - self._moved_at > SETTLED_S
        )

    def catch_up(self):
        """After a rest: scrape every target, then decide."""
        for key in list(self._rounds):
            self._scrape([target for target in self._scraped if key in (target, target.owner)])
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
        """A pod as the API server reports it."""
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
        """Apply a change of the watches. decider: the decider that was started with it, if the start caused the
        call.
        """
        self._views[key], self._moved_at = view, self.clock.now
        if not self.alive or (decider is not None and decider is not self._decider):
            return
        self._decider.counted(key, view.count)
        self._decider.started(key, view.records, self.clock.now)
        listed = {self._engine(key, pod): (pod, leaving) for pod, leaving in view.pods}
        for target, (pod, _) in listed.items():
            if target not in self._scraped:
                self._add_target(target, partial(self.models[key].engine_page, pod))
        for target in [each for each in self._scraped if each.role is Role.PODS and each.owner == key]:
            if target not in listed:
                del self._scraped[target]
                self._readers.pop(target, None)
                self._decider.retire(target)
        leaving = frozenset(target for target, (_, goes) in listed.items() if goes)
        if self.config.workloads[0].pods is not None:
            self._decider.listed(key, len(listed) - len(leaving), leaving)

    @staticmethod
    def _engine(key, pod):
        return Target(f"http://{pod.name}:8000/metrics", "vllm", Role.PODS, key, pod=PodKey("ai", pod.name))

    # The targets.

    def _add_target(self, target, page):
        """As `exporter.scrape.loop.loop`: in rounds shared by all targets of a workload; a new pod causes one more
        round.
        """
        self._decider.expect(target)
        self._pages[target] = page
        key = target.owner or target
        if key not in self._rounds:
            first_s = self._chance.uniform(0.0, self.interval_s)
            self._rounds[key] = self.clock.every(self.interval_s, partial(self._scrape_round, key), first_s)
        elif target.role is Role.PODS:
            self.clock.after(0.0, partial(self._scrape_round, key))
        self._scraped[target] = self._rounds[key]
        if target.role is Role.GATEWAY:
            first_s = self._chance.uniform(0.0, self._wake_s)
            self._wakes.append(self.clock.every(self._wake_s, partial(self._scrape_wake_source, target), first_s))

    def _at_zero(self, key):
        decision = self.board.get(key)
        decided = decision is not None and decision.replicas is not None
        return decided and not decision.active and not decision.evidence.replicas_wanted

    def _scrape_round(self, key):
        targets = [target for target in self._scraped if key in (target, target.owner)]
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
                self.scraped_at[target] = now
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

    def last_scrape_at(self, model, pod=None):
        """POSIX seconds of the last scrape of a model's gateway, or of one of its pods; -inf if there was none."""
        for target, at in self.scraped_at.items():
            if target.owner == key_of(model) and (
                target.role is Role.GATEWAY if pod is None else target.pod == PodKey("ai", pod.name)
            ):
                return at
        return float("-inf")


class _View:
    """The cluster's view of a model: its count, its pods that have been ready (each with whether it is leaving), and
    all of its pods as the API server reports them.
    """

    def __init__(self, count, pods, records):
        self.count, self.pods, self.records = count, pods, records

"""A decider in a scene: targets as vendors expose them, and a clock that the test moves."""

from __future__ import annotations

import json

import pytest

from exporter.catalog import Reader
from exporter.model import Failure, ReplicaCount, Role, Target, WorkloadKey
from exporter.scrape.request import read
from exporter.textformat import Scanner
from scaler.engine.decider import Decider
from scaler.explain.document import inputs
from scaler.policy.columns import Signal, Spec
from scaler.signals.smoothing import HalfLives
from scaler.workloads.spec import WorkloadSpec
from tests.scaler.explain.recompute import differences, read_inputs

CHAT = WorkloadKey("ai", "chat")
INTERVAL_S, INTERVALS = 5.0, 3.0  # so a reading is fresh for 15 s
LOG = 2**22  # bytes: some hundred entries each


def plan(
    name="chat",
    *,
    work=16.0,
    kv=None,
    gpu=None,
    slo=None,
    up=0.0,
    down=0.0,
    queue=None,
    pattern=None,
    about=None,
    **spec,
):
    """16 requests a replica, 0 to 8, both half-lives 0: readings apply at once. about: more fields of WorkloadSpec.

    slo: (ttft, itl) in seconds; without `falls_back=False` it replaces the other objectives.
    """
    wished = ((Signal.WORK, work), (Signal.KV_CACHE, kv), (Signal.GPU_ENGINE, gpu), (Signal.SLO, slo and 1.0))
    targets = tuple((signal, target) for signal, target in wished if target is not None)
    latency = {} if slo is None else {"ttft": slo[0], "itl": slo[1], "falls_back": True}
    bounds = {"minimum": 0, "maximum": 8, **latency, **spec}
    key, spec_of_workload = WorkloadKey("ai", name), Spec(targets=targets, **bounds)
    return WorkloadSpec(key, spec_of_workload, HalfLives(up, down), queue, pattern, **(about or {}))


class Scene:
    """Lands scrapes as text, sweeps, and keeps the last published decisions. Times are seconds of its clock."""

    def __init__(self, *plans, gpu_hours=None):
        self.now = 1000.0
        self.decider = Decider(
            plans or (plan(),), interval_s=INTERVAL_S, fresh_intervals=INTERVALS, log_bytes=LOG, gpu_hours=gpu_hours
        )
        self.decisions, self.renewed = {}, []
        self._readers = {}

    def has(self, pods=None, gateway=None, wanted=None, ready=None, name="chat", leaving=()):
        """Sets the targets of this workload, as discovery would, and the replica counts of the cluster.

        pods: if None, the pods are not listed. leaving: those of them that terminate.
        """
        for target in [*(pods or ()), *([gateway] if gateway else [])]:
            self.decider.expect(target)
        if pods is not None:
            self.decider.listed(WorkloadKey("ai", name), len(set(pods) - set(leaving)), leaving)
        self.counted(wanted, ready, name)

    def counted(self, wanted, ready=None, name="chat"):
        count = None if wanted is None else ReplicaCount(wanted, wanted if ready is None else ready, self.now)
        self.decider.counted(WorkloadKey("ai", name), count)

    def land(self, target, text, at=None):
        """A scrape arrives; returns the decisions that changed. `at`: its time of receipt, by default now."""
        reader, scanner = self._readers.setdefault(target, (Reader(target.kind), Scanner()))
        at = self.now if at is None else at
        outcome = read(text.encode(), reader, scanner, at)
        if isinstance(outcome, Failure):
            self.decider.missed(target)
            return []
        return self._record(self.decider.land(target, outcome, at, self.now))

    def land_together(self, pages):
        """The responses of one scrape round arrive, in this order. None: that scrape failed."""
        landings = []
        for target, text in pages.items():
            reader, scanner = self._readers.setdefault(target, (Reader(target.kind), Scanner()))
            outcome = None if text is None else read(text.encode(), reader, scanner, self.now)
            if outcome is None or isinstance(outcome, Failure):
                self.decider.missed(target)
            else:
                landings.append((target, outcome, self.now))
        return self._record(self.decider.land_together(landings, self.now)) if landings else []

    def sweep(self, after=0.0):
        """Returns the decisions that changed. `renewed` are those with new evidence alone."""
        self.now += after
        changed = self._record(self.decider.sweep(self.now))
        self.renewed = self._record(self.decider.renew(len(self.decider.plans)))
        return changed

    def round(self, pages, after=INTERVAL_S):
        """One scrape interval: the scrapes arrive together (None: that scrape failed), then the tick."""
        self.now += after
        self.land_together(pages)
        self.sweep()
        return self.outcome()

    def rounds(self, seconds, pages):
        """Rounds until so many seconds have passed; returns every outcome that differs from the one before."""
        outcomes = []
        for _ in range(round(seconds / INTERVAL_S)):
            outcome = self.round(pages)
            if not outcomes or outcomes[-1] != outcome:
                outcomes.append(outcome)
        return outcomes

    def outcome(self, name="chat"):
        decision = self.decision(name)
        return decision.replicas, decision.active, str(decision.reason)

    def decision(self, name="chat"):
        return self.decisions[WorkloadKey("ai", name)]

    def decide_again(self):
        """Decides every entry of the log again, directly and from its JSON; returns the number of entries."""
        count = 0
        for each in self.decider.plans:
            past = self.decider.past(each.workload)
            for index in range(len(past)):
                entry = past.entry(index)
                assert differences(entry) == []
                document = json.loads(json.dumps(inputs(entry), allow_nan=False))
                filed = read_inputs(document, each.workload)
                assert (inputs(filed), differences(filed)) == (inputs(entry), [])
                count += 1
        return count

    def _record(self, changed):
        self.decisions.update({decision.workload: decision for decision in changed})
        return changed


@pytest.fixture
def scene():
    """`scene(*plans, gpu_hours=None)`. At the end of the test, every entry of its decision log is decided again and
    must be equal: every storyboard checks invariant 11.
    """
    scenes = []

    def make(*plans, gpu_hours=None):
        scenes.append(Scene(*plans, gpu_hours=gpu_hours))
        return scenes[-1]

    yield make
    for scene in scenes:
        scene.decide_again()


@pytest.fixture(name="plan")
def plan_fixture():
    return plan


@pytest.fixture
def pod():
    """`pod(0)`: the target of an engine of `chat`."""

    def target(number=0, name="chat", kind="vllm"):
        return Target(f"http://10.0.0.{number}:8000/metrics", kind, Role.PODS, WorkloadKey("ai", name))

    return target


@pytest.fixture
def gateway():
    def target(kind="epp", name="chat", url="http://gateway:9090/metrics"):
        return Target(url, kind, Role.GATEWAY, WorkloadKey("ai", name))

    return target


@pytest.fixture
def node():
    def target(number=0):
        return Target(f"http://node-{number}:9400/metrics", "dcgm", Role.GPUS)

    return target

"""Tests a workload whose queue must start each job within five minutes: the list of its gateway sizes it."""

from __future__ import annotations

import numpy as np
import pytest

from exporter.model import Role, Target, WorkloadKey
from scaler.config import Config, Endpoint, Kubernetes, Workload
from scaler.config.workload import Slo
from scaler.engine.checkpoint_format import pack, unpack
from scaler.engine.decider import Decider
from scaler.explain.document import DecisionExplainer
from scaler.model import Board
from scaler.policy.batch import JobEstimate
from scaler.policy.columns import Signal
from scaler.workloads import targets

FRONT = Target("http://redis:9121/metrics", "redis_exporter", Role.GATEWAY, WorkloadKey("ai", "chat"))


def plan_of(jobs=frozenset(), **keys):
    page = Endpoint(url="http://redis:9121/metrics", kind="redis_exporter")
    replicas = {"min": 0, "max": 50}
    workload = Workload(
        namespace="ai", name="chat", model="jobs", gateway=page, slo=Slo(start_within=300.0), replicas=replicas, **keys
    )
    config = Config(kubernetes=Kubernetes(), workloads=(workload,))
    (plan,) = targets.Plans(config).take(config.workloads, jobs=jobs)
    return plan


class Workers:
    """A list, and workers that take jobs of 10 s from it; `busy`: the ends of their jobs."""

    def __init__(self, stage):
        self.stage, self.jobs, self.busy, self.wanted = stage, 0, [], 0

    def round(self):
        """Five seconds: starts take no time here, which the decider does not know."""
        stage = self.stage
        self.busy = [at for at in self.busy if at > stage.now]
        taken = min(self.wanted - len(self.busy), self.jobs) if self.wanted > len(self.busy) else 0
        self.jobs, self.busy = self.jobs - taken, self.busy + [stage.now + 10.0] * taken
        stage.has(gateway=FRONT, wanted=self.wanted)
        outcome = stage.round({FRONT: f'redis_key_size{{db="db0",key="jobs"}} {self.jobs}\n'})
        self.wanted = outcome[0]
        return outcome

    def rounds(self, seconds):
        return [self.round() for _ in range(round(seconds / 5.0))]

    def estimate(self, column):
        return float(self.stage.decider.columns()["sizing.jobs"][0, column])


@pytest.fixture
def workers(scene):
    stage = scene(plan_of())
    stage.has(gateway=FRONT, wanted=0)
    return Workers(stage)


@pytest.fixture
def learned(workers):
    workers.jobs = 30
    workers.rounds(120)
    assert workers.estimate(JobEstimate.SERVICE) == pytest.approx(0.1, rel=0.5)
    return workers


def test_backlog_gets_the_replicas_that_start_it_in_time_and_no_more(learned):
    learned.jobs = 200
    most = max(replicas for replicas, *_ in learned.rounds(240))
    assert learned.jobs == 0
    assert 8 <= most <= 24  # 200 jobs of 10 s in 240 s are 8.3; at one job per replica it would be 50


def test_unknown_service_rate_is_explained_and_orders_a_replica_for_two_jobs(workers):
    workers.jobs = 30
    assert workers.round()[0] == 15
    assert "is not known yet" in workers.stage.decision().evidence.slo


def test_explanation_states_the_service_rate_and_what_starts_each_job_in_time(learned):
    learned.jobs = 200
    learned.rounds(10)
    stage = learned.stage
    board = Board(1, stage.now, stage.decisions)
    key = WorkloadKey("ai", "chat")
    story = str(DecisionExplainer(stage.decider).explain(key, board, stage.now, None, None, None)())
    assert "a busy replica finishes" in story
    assert "would start each job in time now" in story


def test_restart_keeps_the_service_rate_and_the_size(learned):
    learned.jobs = 200
    before = learned.rounds(10)[-1]
    stage = learned.stage
    state = unpack(pack(stage.decider.state(stage.now)))
    stage.decider = Decider([plan_of()], interval_s=5.0, fresh_intervals=3.0)
    stage.decider.restore(state, stage.now)
    assert learned.round()[0] >= before[0] - 1
    assert not np.isnan(learned.estimate(JobEstimate.SERVICE))


def test_silent_queue_holds_the_decision(learned):
    learned.jobs = 200
    learned.rounds(10)
    learned.stage.rounds(20, {FRONT: None})  # a reading is fresh for 15 s
    outcomes = learned.stage.rounds(60, {FRONT: None})
    assert {active for _, active, _ in outcomes} == {True}
    assert len({replicas for replicas, *_ in outcomes}) == 1


def test_scaled_job_ignores_it():
    spec = plan_of(jobs=frozenset({WorkloadKey("ai", "chat")})).spec
    assert spec.start_within is None
    assert Signal.SLO not in dict(spec.targets)

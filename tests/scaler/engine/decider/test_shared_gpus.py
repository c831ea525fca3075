"""Workloads that want more GPUs than there are: priority decides, nothing active falls below one, and idle ones sleep
first. Two workloads, `chat` and `batch`, with one GPU each per replica, 16 requests a replica and up to 8 replicas.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.model import Role, Target, WorkloadKey
from scaler.config.workload import GpuShare
from scaler.policy.constraints import KeepWarmConfig
from scaler.policy.groups import Membership
from scaler.policy.overrides import WorkloadOverrides, read_brake
from scaler.policy.sharing import NONE
from scaler.workloads.gpu_supply import GpuSupply
from tests.scaler.engine.decider.conftest import Scene, plan

SHORTEST_S, KEEP_WARM_S = 60.0, 600.0


def supply(free, held, *, growth=0, gpus=(1, 1), quota=(), requested=None):
    """One kind of GPU. free: that no pod uses. held: GPUs of each workload's pods."""
    rows = len(held)
    return GpuSupply(
        room=np.array([free]),
        growth=np.array([growth]),
        resource=np.array([0]),
        open=np.array([False]),
        quotas=np.array(quota, dtype=np.int64),
        gpus=np.array(gpus[:rows]),
        kinds=np.zeros((rows, 1), dtype=np.int64),
        held=np.array(held).reshape(-1, 1),
        staying=np.array(held).reshape(-1, 1),
        quota=np.full((rows, 2), [0 if quota else NONE, NONE]),
        requested=np.array([[each, 0] for each in (held if requested is None else requested)]),
    )


def shared(priority=0, weight=1.0, **more):
    return {"share": GpuShare(priority=priority, weight=weight), "teaching": KeepWarmConfig(False, SHORTEST_S), **more}


class Stage:
    """The two workloads, with an engine and a gateway each, and their GPUs."""

    def __init__(self, scene, page, pod, gateway):
        self.scene, self.page = scene, page
        self.engines = {"chat": pod(0, "chat"), "batch": pod(1, "batch")}
        self.gateways = {name: gateway(name=name, url=f"http://{name}:9090/metrics") for name in self.engines}
        self.held = {"chat": 1, "batch": 1}
        for name, engine in self.engines.items():
            scene.has(pods=[engine], gateway=self.gateways[name], wanted=1, name=name)

    def has_gpus(self, total, **more):
        """total: of the cluster; the rest is free."""
        held = list(self.held.values())
        self.scene.decider.set_gpu_supply(supply(total - sum(held), held, **more))

    def holds(self, **held):
        """So many replicas run and hold a GPU each."""
        self.held |= held
        for name, many in held.items():
            self.scene.counted(many, name=name)

    def land(self, chat=0, batch=0):
        """Requests in hand arrive in one round."""
        for name, running in (("chat", chat), ("batch", batch)):
            self.scene.land(self.engines[name], self.page.vllm(waiting=0, running=running))
            self.scene.land(self.gateways[name], self.page.epp(held=0, ready=1))

    def queue(self, held):
        """One round with requests that the gateway of both holds; returns the shares that each counts."""
        self.scene.now += 5.0
        for name, engine in self.engines.items():
            self.scene.land(engine, self.page.vllm(waiting=0, running=0))
            self.scene.land(self.gateways[name], self.page.epp(held=held, ready=1))
        self.scene.sweep()
        return [self.scene.decision(name).evidence.held_by_gateway for name in self.engines]

    def round(self, chat=0, batch=0, after=5.0):
        """The decisions of both after one round and a sweep."""
        self.scene.now += after
        self.land(chat, batch)
        self.scene.sweep()
        return self.scene.outcome("chat"), self.scene.outcome("batch")


@pytest.fixture
def stage(scene, page, pod, gateway):
    def make(chat=None, batch=None, **spec):
        rows = {"chat": chat or shared(10), "batch": batch or shared()}
        plans = [plan(name, gateway=True, keep_warm=KEEP_WARM_S, about=about, **spec) for name, about in rows.items()]
        return Stage(scene(*plans), page, pod, gateway)

    return make


def test_priority_decides_and_a_new_node_lifts_the_limit(stage):
    both = stage()
    both.has_gpus(8)
    assert both.round(chat=96, batch=80) == ((6, True, "serving"), (2, True, "capacity_limited"))
    assert both.scene.decision("batch").evidence.gpu_share_replicas == 2
    both.holds(chat=6, batch=2)
    both.has_gpus(16)
    assert both.round(chat=96, batch=80) == ((6, True, "serving"), (5, True, "serving"))


def test_higher_priority_takes_ready_replicas_and_an_equal_one_does_not(stage):
    both = stage()
    both.holds(batch=7)
    both.has_gpus(8)
    assert both.round(chat=96, batch=112) == ((6, True, "serving"), (2, True, "capacity_limited"))
    equal = stage(chat=shared())
    equal.holds(batch=7)
    equal.has_gpus(8)
    assert equal.round(chat=96, batch=112) == ((1, True, "capacity_limited"), (7, True, "serving"))


def test_active_workload_keeps_one_replica_and_its_minimum_without_any_gpu(stage):
    both = stage(minimum=2)
    both.held = {"chat": 0, "batch": 0}
    both.has_gpus(0)
    assert both.round(chat=96, batch=8) == ((2, True, "capacity_limited"), (2, True, "serving"))


def test_published_number_does_not_pass_the_limit_for_the_tolerance_of_an_hpa(stage):
    both = stage(batch=shared(tolerance=0.5))
    both.holds(chat=1, batch=4)
    both.has_gpus(6)
    assert both.round(chat=16, batch=112)[1] == (5, True, "capacity_limited")
    assert both.scene.decision("batch").published == 5


def test_wake_is_never_delayed_and_a_raise_between_sweeps_stays_within_what_is_left(stage):
    both = stage()
    both.holds(chat=0, batch=5)
    both.scene.has(pods=[], gateway=both.gateways["chat"], wanted=0, name="chat")
    both.scene.decider.retire(both.engines["chat"])
    both.has_gpus(7)
    both.scene.now += 5.0
    both.scene.land(both.gateways["chat"], both.page.epp(held=0, ready=0))
    both.scene.land(both.engines["batch"], both.page.vllm(waiting=0, running=80))
    both.scene.land(both.gateways["batch"], both.page.epp(held=0, ready=5))
    both.scene.sweep()
    assert (both.scene.outcome("chat")[0], both.scene.outcome("batch")[0]) == (0, 5)
    # 7 GPUs, 5 are in use. Between sweeps batch takes one of the 2 that are left, and then chat wants 4.
    both.scene.land(both.engines["batch"], both.page.vllm(waiting=0, running=96))
    assert both.scene.outcome("batch") == (6, True, "serving")
    both.scene.land(both.gateways["chat"], both.page.epp(held=60, ready=0))
    assert both.scene.outcome("chat") == (1, True, "capacity_limited")
    # The next sweep has priorities: 4 for chat.
    both.scene.sweep(after=1.0)
    assert both.scene.outcome("chat")[0] == 4
    assert both.scene.outcome("batch") == (3, True, "capacity_limited")


def test_wake_without_any_free_gpu_is_one_replica_at_once(stage):
    both = stage(chat=shared(-10))
    both.holds(chat=0, batch=5)
    both.scene.has(pods=[], gateway=both.gateways["chat"], wanted=0, name="chat")
    both.scene.decider.retire(both.engines["chat"])
    both.has_gpus(5)
    both.scene.now += 5.0
    both.scene.land(both.gateways["chat"], both.page.epp(held=0, ready=0))
    both.scene.land(both.engines["batch"], both.page.vllm(waiting=0, running=80))
    both.scene.land(both.gateways["batch"], both.page.epp(held=0, ready=5))
    both.scene.sweep()
    both.scene.land(both.gateways["chat"], both.page.epp(held=60, ready=0))
    assert both.scene.outcome("chat")[:2] == (1, True)
    both.scene.sweep(after=1.0)
    assert both.scene.outcome("chat")[:2] == (1, True)
    assert both.scene.outcome("batch") == (5, True, "serving")


def test_idle_workload_sleeps_early_only_if_another_wants_its_gpu_and_never_before_the_shortest_time(stage):
    both = stage(chat=shared(10), batch=shared())
    both.holds(chat=1, batch=1)
    both.has_gpus(8)
    for _ in range(4):
        assert both.round(chat=0, batch=16)[0] == (1, True, "warm")
    both.has_gpus(2)
    seconds = 20.0
    while both.round(chat=0, batch=32)[0] == (1, True, "warm"):
        seconds += 5.0
        assert both.scene.outcome("batch") == (1, True, "capacity_limited")  # its GPU is not promised twice
        assert seconds < KEEP_WARM_S
    assert seconds >= SHORTEST_S - 5.0
    assert both.scene.outcome("chat") == (0, False, "asleep")
    assert both.scene.outcome("batch") == (2, True, "serving")


def test_idle_workload_that_may_not_sleep_keeps_its_replica_and_its_gpu_is_not_promised(stage):
    both = stage(chat=shared(), batch=shared(10), minimum=1)
    both.has_gpus(2)
    for _ in range(40):
        assert both.round(chat=0, batch=32) == ((1, True, "warm"), (1, True, "capacity_limited"))


def test_idle_workload_without_a_fresh_wake_source_keeps_its_replica_for_all_that_others_want(stage):
    both = stage()
    both.has_gpus(2)
    for _ in range(40):
        both.scene.now += 5.0
        for name, running in (("chat", 0), ("batch", 32)):
            both.scene.land(both.engines[name], both.page.vllm(waiting=0, running=running))
        both.scene.decider.missed(both.gateways["chat"])
        both.scene.land(both.gateways["batch"], both.page.epp(held=0, ready=1))
        both.scene.sweep()
        assert both.scene.outcome("chat")[0] == 1
    assert both.scene.outcome("batch") == (1, True, "capacity_limited")


def test_idle_workload_that_nothing_would_wake_keeps_its_replica_and_its_gpu_is_not_promised(scene, page, pod):
    plans = [plan(name, keep_warm=KEEP_WARM_S, about=shared(rank)) for name, rank in (("chat", 0), ("batch", 10))]
    both, engines = scene(*plans), {"chat": pod(0, "chat"), "batch": pod(1, "batch")}
    for name, engine in engines.items():
        both.has(pods=[engine], wanted=1, name=name)
    both.decider.set_gpu_supply(supply(0, [1, 1]))
    for _ in range(40):
        both.now += 5.0
        for name, running in (("chat", 0), ("batch", 32)):
            both.land(engines[name], page.vllm(waiting=0, running=running))
        both.sweep()
        assert both.outcome("chat")[:2] == (1, True)
        assert both.outcome("batch") == (1, True, "capacity_limited")


def test_queue_spills_over_to_the_member_of_a_group_whose_gpus_are_free(stage):
    """The variant of the larger weight comes first, up to the GPUs that it can have."""

    def variant(weight):
        return shared(member=Membership("ai", "llm", weight=weight))

    both = stage(variant(9.0), variant(1.0), maximum=20)
    kinds = np.array([[0, NONE], [1, NONE]])
    two = np.array([[1, 0], [0, 1]])
    given = supply(0, [1, 1])._replace(
        room=np.array([2, 9]), growth=np.zeros(2, np.int64), resource=np.zeros(2, np.int64), open=np.zeros(2, bool),
        kinds=kinds, held=two, staying=two,
    )  # fmt: skip
    both.scene.decider.set_gpu_supply(given)
    shown = [both.queue(held=160) for _ in range(3)]
    assert shown[0] == pytest.approx([144.0, 16.0])  # nothing is divided before the first sweep
    assert shown[2] == pytest.approx([48.0, 112.0])  # 3 replicas at 16
    assert [both.scene.outcome(name)[0] for name in ("chat", "batch")] == [3, 7]
    both.scene.decider.set_gpu_supply(given._replace(room=np.array([8, 9])))
    for _ in range(8):
        shown = both.queue(held=160)
    assert shown == pytest.approx([144.0, 16.0])


def test_held_workload_takes_no_part_and_its_gpus_count_as_used(stage):
    both = stage()
    both.holds(chat=4, batch=1)
    both.has_gpus(6)
    assert both.round(chat=64, batch=96)[0] == (4, True, "serving")
    for _ in range(5):  # chat's engine does not answer
        both.scene.now += 5.0
        both.scene.decider.missed(both.engines["chat"])
        both.scene.land(both.engines["batch"], both.page.vllm(waiting=0, running=96))
        for name in both.gateways:
            both.scene.land(both.gateways[name], both.page.epp(held=0, ready=1))
        both.scene.sweep()
    assert both.scene.outcome("chat") == (4, True, "held")
    assert both.scene.decision("chat").evidence.gpu_share_replicas is None
    assert both.scene.outcome("batch") == (2, True, "capacity_limited")


def test_frozen_and_observed_workloads_are_not_limited(stage):
    freeze = WorkloadOverrides(brakes=(read_brake("freeze", "test"),))
    both = stage(batch=shared(ordered=freeze))
    both.holds(chat=1, batch=3)
    both.has_gpus(4)
    assert both.round(chat=96, batch=96) == ((1, True, "capacity_limited"), (3, True, "frozen"))
    watched = stage(batch=shared(observed=True))
    watched.holds(chat=1, batch=3)
    watched.has_gpus(4)
    assert watched.round(chat=96, batch=96) == ((1, True, "capacity_limited"), (6, True, "serving"))


def test_quota_of_a_namespace_limits_although_gpus_are_free(stage):
    both = stage()
    both.has_gpus(100, quota=(2,))  # 2 beside the 2 that its pods request
    assert both.round(chat=32, batch=80) == ((2, True, "serving"), (2, True, "capacity_limited"))


def test_pods_for_so_many_gpus_are_let_through_where_nodes_are_added(stage):
    both = stage()
    both.has_gpus(2, growth=3)
    assert both.round(chat=16, batch=96) == ((1, True, "serving"), (4, True, "capacity_limited"))


def test_unknown_supply_limits_nothing(stage):
    both = stage()
    both.has_gpus(2)
    assert both.round(chat=96, batch=96)[1] == (1, True, "capacity_limited")
    both.scene.decider.set_gpu_supply(None)
    assert both.round(chat=96, batch=96) == ((6, True, "serving"), (6, True, "serving"))


@settings(max_examples=40, deadline=None)
@given(
    total=st.integers(0, 20),
    load=st.lists(st.integers(0, 200), min_size=3, max_size=3),
    priorities=st.lists(st.integers(0, 2), min_size=3, max_size=3),
    held=st.lists(st.integers(0, 6), min_size=3, max_size=3),
    enough=st.booleans(),
)
def test_no_more_gpus_than_there_are_and_more_gpus_are_never_worse(page, total, load, priorities, held, enough):
    names = ("a", "b", "c")
    total = 1000 if enough else max(total, sum(held))

    def decided(total):
        scene = Scene(
            *(plan(name, minimum=1, about=shared(rank)) for name, rank in zip(names, priorities, strict=True))
        )
        for number, (name, running) in enumerate(zip(names, load, strict=True)):
            engine = Target(f"http://10.0.0.{number}:8000/metrics", "vllm", Role.PODS, WorkloadKey("ai", name))
            scene.has(pods=[engine], wanted=held[number], name=name)
            scene.land(engine, page.vllm(waiting=0, running=running))
        if total is not None:
            scene.decider.set_gpu_supply(supply(total - sum(held), held, gpus=(1, 1, 1)))
        scene.decisions.clear()
        scene.decider.forget_answers()
        scene.sweep()
        scene.decide_again()
        return [scene.decisions[WorkloadKey("ai", name)] for name in names]

    free, limited, more = decided(None), decided(total), decided(total + 3)
    if enough:
        assert [(each.replicas, each.reason) for each in limited] == [(each.replicas, each.reason) for each in free]
    waiting = sum(not has for has in held)  # one replica of an active workload, whether there is a GPU or not
    assert sum(each.replicas for each in limited) <= total + waiting
    for alone, mine, better in zip(free, limited, more, strict=True):
        assert 1 <= mine.replicas <= better.replicas <= alone.replicas
        assert (mine.reason == "capacity_limited") == (mine.replicas < alone.replicas)

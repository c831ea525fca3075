"""State belongs to a workload and its scale target: a new scale target starts from its current replicas."""

from dataclasses import replace

import numpy as np
import pytest

from exporter.model import WorkloadKey
from scaler.engine.checkpoint_format import pack, unpack
from scaler.engine.decider import Decider

KEY = WorkloadKey("ai", "chat")
# The windows fill within a minute; half-lives of 0, so readings apply at once.
SPEC = {"maximum": 40, "young": 60.0, "hold": 60.0, "keep_warm": 30.0}


def decider_of(*plans):
    return Decider(plans, interval_s=5.0, fresh_intervals=3.0)


def re_registered(stage, *plans):
    """The list of workloads has changed while the daemon runs."""
    after = decider_of(*plans)
    after.take_over(stage.decider)
    return after


def reloaded(stage, *plans):
    """The configuration has changed."""
    after = decider_of(*plans)
    after.adopt(stage.decider)
    return after


def restarted(stage, *plans):
    """The process has restarted from its checkpoint."""
    after = decider_of(*plans)
    after.restore(unpack(pack(stage.decider.state(stage.now))), stage.now)
    return after


def replicated(stage, *plans):
    """Another replica leads."""
    after = decider_of(*plans)
    after.follow_state(unpack(pack(stage.decider.share(None, stage.now))), stage.now)
    return after


@pytest.fixture(params=[re_registered, reloaded, restarted, replicated], ids=lambda way: way.__name__)
def carried(request):
    """`carried(stage, plan)`: the stage continues with a decider that received its state in this way."""

    def carry(stage, *plans):
        stage.decider = request.param(stage, *plans)
        stage.decisions = {}
        return stage

    return carry


@pytest.fixture
def to(plan):
    """`to("Deployment/small")`: the plan of `chat` with this scale target."""
    return lambda target, **more: plan(**SPEC, **more, about={"target": target})


def under_load(scene, plan, pod, page):
    """3 replicas of `small` serve 48 requests for two minutes."""
    stage, engines = scene(plan), [pod(number) for number in range(3)]
    stage.has(pods=engines, wanted=3)
    assert stage.rounds(120, {each: page.vllm(waiting=0, running=16) for each in engines})[-1] == (3, True, "serving")
    return stage


def pages_of_large(pod, page):
    return {pod(100 + number): page.vllm(waiting=0, running=5) for number in range(20)}


def test_new_scale_target_never_has_fewer_replicas_until_its_windows_are_filled(scene, to, pod, page, carried):
    stage, large = under_load(scene, to("Deployment/small"), pod, page), pages_of_large(pod, page)
    carried(stage, to("Deployment/large"))
    for number in range(3):
        stage.decider.retire(pod(number))
    stage.has(pods=large, wanted=20)
    stage.sweep(after=1)
    assert stage.outcome() == (20, True, "held"), "before any of its pods is scraped"
    assert {outcome[0] for outcome in stage.rounds(60, large)} == {20}
    # 100 requests at 16 a replica: 6.25.
    assert stage.round(large) == (7, True, "serving")


def test_same_scale_target_keeps_its_state(scene, to, pod, page, carried):
    stage = under_load(scene, to("Deployment/small"), pod, page)
    carried(stage, to("Deployment/small", band=0.1))
    stage.has(pods=[pod(number) for number in range(3)], wanted=9)
    stage.sweep(after=20)
    assert stage.outcome()[0] == 3, "the kept state, and not the 9 that were set by hand"


def test_unknown_scale_target_keeps_the_state_of_the_last_one(scene, to, pod, page, carried):
    stage = under_load(scene, to("Deployment/small"), pod, page)
    for target, replicas in (("", 3), ("Deployment/small", 3), ("", 3), ("Deployment/large", 9)):
        carried(stage, to(target))
        stage.has(pods=[pod(number) for number in range(3)], wanted=9)
        stage.sweep(after=1)
        assert stage.outcome()[0] == replicas, target


def test_checkpoint_without_scale_targets_applies_to_the_current_one(scene, to, pod, page):
    stage = under_load(scene, to("Deployment/small"), pod, page)
    older = replace(unpack(pack(stage.decider.state(stage.now))), targets=())
    stage.decider = decider_of(to("Deployment/large"))
    stage.decider.restore(unpack(pack(older)), stage.now)
    stage.counted(wanted=20)
    stage.sweep(after=1)
    assert stage.outcome() == (3, True, "held")


def test_idle_time_of_one_scale_target_puts_no_other_to_sleep(scene, to, pod, gateway, page, carried):
    sleepy = {"gateway": True}
    stage, engine, front = scene(to("Deployment/small", **sleepy)), pod(0), gateway()
    idle = {engine: page.vllm(waiting=0, running=0), front: page.epp(held=0, ready=1)}
    stage.has(pods=[engine], gateway=front, wanted=1)
    stage.rounds(90, idle)
    assert stage.outcome() == (0, False, "asleep")
    carried(stage, to("Deployment/large", **sleepy))
    stage.decider.retire(engine)
    other = pod(1)
    stage.has(pods=[other], gateway=front, wanted=4)
    idle = {other: idle[engine], front: idle[front]}
    # Idle since its own first readings, and for a minute never below its current replicas.
    assert stage.rounds(60, idle) == [(4, True, "warm")]
    assert stage.round(idle) == (0, False, "asleep")


def test_learned_state_of_one_scale_target_does_not_apply_to_another(scene, to, pod, page, carried):
    stage = under_load(scene, to("Deployment/small"), pod, page)
    carried(stage, to("Deployment/large"))
    blank = decider_of(to("Deployment/large")).columns()
    for name, column in stage.decider.columns().items():
        np.testing.assert_array_equal(column, blank[name], err_msg=name)
    state = stage.decider.state(stage.now)
    assert state.identities == ((KEY, "Deployment/large"),)
    assert [len(table["row"]) for table in state.tables.values()] == [0, 0]


def test_scraped_targets_are_kept_after_the_scale_target_has_changed(scene, to, pod, gateway, page):
    stage, front = scene(to("Deployment/small", gateway=True)), gateway()
    stage.has(pods=[pod(0)], gateway=front, wanted=1)
    stage.round({pod(0): page.vllm(waiting=0, running=1), front: page.epp(held=0, ready=1)})
    stage.decider = re_registered(stage, to("Deployment/large", gateway=True))
    stage.sweep(after=1)
    assert set(stage.decision().evidence.stale) == {pod(0).url, front.url}, "no scrape of this scale target yet"
    stage.round({front: page.epp(held=0, ready=1)})
    assert stage.decision().evidence.stale == (pod(0).url,)


def test_only_the_retargeted_workload_begins_again(scene, plan, to, pod, page, carried):
    stage = under_load(scene, to("Deployment/small"), pod, page)
    stage.decider = decider_of(to("Deployment/small"), replace(plan("other", **SPEC), target="Deployment/other"))
    other = {pod(50, "other"): page.vllm(waiting=0, running=32)}
    stage.has(pods=[pod(0)], wanted=3)
    stage.has(pods=list(other), wanted=2, name="other")
    stage.rounds(70, {pod(0): page.vllm(waiting=0, running=48), **other})
    before = stage.decider
    carried(stage, replace(plan("other", **SPEC), target="Deployment/other"), to("Deployment/large"))
    assert stage.decider.without_state_in(before) == [KEY]
    stage.has(pods=[], wanted=20)
    stage.has(pods=list(other), wanted=9, name="other")
    stage.sweep(after=1)
    assert (stage.outcome()[0], stage.outcome("other")[0]) == (20, 2)


def test_workload_without_state_is_not_decided_before_its_replicas_are_counted(scene, to, pod, gateway, page):
    stage, engine, front = scene(to("Deployment/large", gateway=True)), pod(0), gateway()
    busy = {engine: page.vllm(waiting=0, running=40), front: page.epp(held=0, ready=20)}
    stage.has(pods=[engine], gateway=front)
    stage.decider.await_count(KEY)
    # 40 requests at 16 a replica would be 3 of the 20 that are there.
    assert stage.rounds(30, busy) == [(None, True, "unknown")]
    assert "how many replicas it has is not known yet" in " ".join(stage.decision().evidence.notes)
    stage.counted(wanted=20)
    assert {outcome[0] for outcome in stage.rounds(60, busy)} == {20}
    assert stage.round(busy) == (3, True, "serving")


def test_workload_without_a_replica_count_is_decided_when_its_windows_are_filled(scene, to, pod, page):
    stage, engine = scene(to("Deployment/large")), pod(0)
    stage.has(pods=[engine])
    stage.decider.await_count(KEY)
    busy = {engine: page.vllm(waiting=0, running=40)}
    assert stage.rounds(60, busy) == [(None, True, "unknown")]
    assert stage.round(busy) == (3, True, "serving")


def test_workload_whose_replicas_cannot_be_counted_is_decided_at_once(scene, to, pod, page):
    stage, engine = scene(to("Deployment/large")), pod(0)
    stage.has(pods=[engine])
    stage.decider.await_count(KEY)
    busy = {engine: page.vllm(waiting=0, running=40)}
    assert stage.round(busy) == (None, True, "unknown")
    stage.counted(wanted=None)  # the list is complete, and it is not in it
    assert stage.round(busy) == (3, True, "serving")


def test_workload_with_state_is_decided_while_its_replicas_are_not_counted(scene, to, pod, page, carried):
    stage = under_load(scene, to("Deployment/small"), pod, page)
    carried(stage, to("Deployment/small"))
    engines = [pod(number) for number in range(3)]
    stage.has(pods=engines)
    stage.decider.await_count(KEY)
    assert stage.round({each: page.vllm(waiting=0, running=16) for each in engines}) == (3, True, "serving")


def test_time_without_a_count_continues_when_other_workloads_are_added(scene, plan, to, pod, page):
    stage, engine = scene(to("Deployment/large")), pod(0)
    stage.has(pods=[engine])
    stage.decider.await_count(KEY)
    busy = {engine: page.vllm(waiting=0, running=40)}
    assert stage.rounds(30, busy) == [(None, True, "unknown")]
    stage.decider = re_registered(stage, plan("other", **SPEC), to("Deployment/large"))
    assert stage.rounds(30, busy) == [(None, True, "unknown")]
    assert stage.round(busy) == (3, True, "serving")

"""Tests the ledger through the decider: through a day, a reload, a restart and a new list of workloads."""

import pytest

from exporter.model import ReplicaCount, WorkloadKey
from scaler.engine.accounting import STATES
from scaler.engine.checkpoint_format import pack, unpack
from scaler.engine.decider import Decider

CHAT = WorkloadKey("ai", "chat")


def count(stage, wanted, ready, gpus=8, **more):
    """Sets the replica counts of the cluster; each running replica has 8 GPUs."""
    existing = more.get("existing", max(wanted, ready))
    held = gpus * (existing - more.get("pending", 0) + more.get("leaving", 0))
    counted = ReplicaCount(
        wanted, ready, stage.now, gpus=held, existing=existing, **{k: more[k] for k in more if k != "existing"}
    )
    stage.decider.counted(CHAT, counted)


def books(stage, name="chat"):
    return stage.decider.books, stage.decider.workloads.index(WorkloadKey("ai", name))


def seconds(stage, of="gpu_seconds", sums="kept"):
    """The seconds of each state that has any."""
    kept, row = books(stage)
    values = getattr(getattr(kept, sums), of)[row].tolist()
    return {str(state): value for state, value in zip(STATES, values, strict=True) if value > 0.0}


def total(stage, of, sums="kept"):
    kept, row = books(stage)
    return float(getattr(getattr(kept, sums), of)[row])


@pytest.fixture
def at_work(scene, plan, pod, page):
    """Two replicas of 8 GPUs and one request; swept at 1005, 1010 … 1035."""
    stage, stage_pod = scene(), pod()
    stage.engine, stage.busy = stage_pod, {stage_pod: page.vllm(waiting=0, running=1, finished=100)}
    stage.has(pods=[stage_pod])
    count(stage, 2, 2)
    stage.rounds(35, stage.busy)
    return stage


def test_day_from_work_to_sleep_and_back_is_accounted(scene, plan, pod, gateway, page):
    stage, engine, front = scene(plan(gateway=True, keep_warm=20.0)), pod(), gateway()
    stage.has(pods=[engine], gateway=front)
    count(stage, 1, 1)
    stage.rounds(10, {engine: page.vllm(waiting=0, running=1), front: page.epp(held=0, ready=1)})
    stage.rounds(25, {engine: page.vllm(waiting=0, running=0), front: page.epp(held=0, ready=1)})
    assert stage.outcome() == (0, False, "asleep")
    stage.decider.retire(engine)
    stage.decider.listed(CHAT, 0)
    count(stage, 0, 0)
    stage.rounds(20, {front: page.epp(held=0, ready=0)})
    count(stage, 1, 0, pending=1)
    stage.rounds(10, {front: page.epp(held=1, ready=0)})
    count(stage, 1, 0)
    stage.rounds(15, {front: page.epp(held=1, ready=0)})
    stage.sweep(after=1.0)
    # The state of each sweep lasts until the next: the first is at 1005, and the last second loads.
    assert seconds(stage, "state_seconds") == {
        "serving": 10.0, "idle_warm": 25.0, "asleep": 20.0, "pending": 10.0, "loading": 11.0,
    }  # fmt: skip
    assert seconds(stage) == {"serving": 80.0, "idle_warm": 200.0, "asleep": 160.0, "pending": 80.0, "loading": 88.0}
    assert (total(stage, "wakes"), total(stage, "sleeps")) == (1.0, 1.0)


def test_short_request_between_two_scrapes_is_work(at_work, page):
    stage = at_work
    for finished in (101, 102, 103):
        stage.round({stage.engine: page.vllm(waiting=0, running=0, finished=finished)})
    stage.round({stage.engine: page.vllm(waiting=0, running=0, finished=103)})
    assert seconds(stage, "state_seconds") == {"serving": 50.0}
    stage.round({stage.engine: page.vllm(waiting=0, running=0, finished=103)})
    assert seconds(stage, "state_seconds") == {"serving": 50.0, "idle_warm": 5.0}


def test_terminating_pod_holds_its_gpus_and_changes_no_gpus_per_replica(at_work):
    stage = at_work
    count(stage, 1, 1, existing=1, leaving=1)
    stage.round(stage.busy)
    before = seconds(stage)["serving"]
    count(stage, 0, 0, existing=0)
    stage.sweep(after=5.0)
    assert seconds(stage)["serving"] - before == 16 * 5
    stage.sweep(after=5.0)
    assert seconds(stage)["asleep"] == 8 * 5


def test_requests_and_tokens_are_counted_across_engine_restarts(at_work, page):
    stage = at_work
    assert total(stage, "requests") == 0.0, "requests finished before the first scrape are not counted"
    stage.round({stage.engine: page.vllm(waiting=0, running=1, finished=110, tokens=500)})
    stage.round({stage.engine: page.vllm(waiting=0, running=1, finished=4, tokens=700)})
    assert (total(stage, "requests"), total(stage, "generated")) == (14.0, 200.0)


def test_request_counted_by_gateway_and_engine_is_counted_once(scene, plan, pod, gateway, page):
    stage, engine, front = scene(plan(gateway=True)), pod(), gateway(kind="envoy")
    stage.has(pods=[engine], gateway=front)
    for finished in (10, 20):
        passed = f'envoy_cluster_upstream_rq_completed{{envoy_cluster_name="chat"}} {finished}\n'
        stage.round({engine: page.vllm(waiting=0, running=1, finished=finished), front: passed})
    assert total(stage, "requests") == 10.0
    assert stage.decision().evidence.requests_per_second == pytest.approx(10.0 / 5.0)


def test_late_sweep_leaves_an_unknown_time(at_work):
    at_work.sweep(after=600.0)
    assert seconds(at_work, "state_seconds") == {"serving": 30.0, "unknown": 600.0}
    assert seconds(at_work) == {"serving": 480.0, "unknown": 9600.0}


def after(stage, *plans, transfer):
    """Returns the same stage on a new decider; `transfer(decider, stage)` hands it the state of the old one."""
    decider = Decider(plans, interval_s=5.0, fresh_intervals=3.0)
    transfer(decider, stage)
    stage.decider = decider
    stage.has(pods=[stage.engine])
    count(stage, 2, 2)
    return stage


@pytest.mark.parametrize("way", ["adopt", "take_over"])
def test_ledger_survives_a_reload_and_a_new_list_of_workloads(at_work, plan, way):
    def transfer(decider, stage):
        getattr(decider, way)(stage.decider)

    stage = after(at_work, plan("new"), plan(), transfer=transfer)
    stage.rounds(10, stage.busy)
    for sums in ("kept", "shown"):
        assert sum(seconds(stage, "state_seconds", sums).values()) == 40.0
        assert sum(seconds(stage, sums=sums).values()) == 40.0 * 16
    assert seconds(stage)["serving"] >= 35.0 * 16


def restart(decider, stage):
    """115 s pass between the checkpoint and its restoration."""
    state = unpack(pack(stage.decider.state(stage.now)))
    stage.now += 115.0
    decider.restore(state, stage.now)


def test_ledger_survives_a_restart_and_the_gap_is_unknown(at_work, plan):
    stage = after(at_work, plan(), transfer=restart)
    stage.rounds(10, stage.busy)
    assert seconds(stage, "state_seconds") == {"serving": 35.0, "unknown": 120.0}
    assert seconds(stage) == {"serving": 35.0 * 16, "unknown": 120.0 * 16}
    assert seconds(stage, "state_seconds", "shown") == {"unknown": 120.0, "serving": 5.0}


def test_requests_finished_during_a_restart_are_counted(at_work, plan, page):
    stage = after(at_work, plan(), transfer=restart)
    stage.round({stage.engine: page.vllm(waiting=0, running=1, finished=130)})
    assert total(stage, "requests") == 30.0


def test_leader_exports_and_follower_only_keeps(at_work):
    stage = at_work
    stage.decider.sweep(stage.now + 5.0, leads=False)
    assert sum(seconds(stage, "state_seconds").values()) == 35.0
    assert sum(seconds(stage, "state_seconds", "shown").values()) == 30.0


def test_samples_between_the_last_sweep_and_a_reload_are_counted(at_work, plan, page):
    stage = at_work
    stage.now += 1.0
    stage.land(stage.engine, page.vllm(waiting=0, running=1, finished=107))
    stage = after(stage, plan(), transfer=lambda decider, stage: decider.adopt(stage.decider))
    stage.round({stage.engine: page.vllm(waiting=0, running=1, finished=110)})
    assert total(stage, "requests") == 10.0

"""Invariant 5: a restart changes nothing. Each state is packed and unpacked."""

import numpy as np
import pytest

from scaler.columns import State, translated
from scaler.engine.checkpoint_format import pack, unpack
from scaler.engine.decider import Decider
from scaler.model import Reason
from scaler.policy.columns import REASONS


@pytest.fixture
def restarted():
    """`restarted(stage, plan, gone_s=10)`: killed and restarted after `gone_s`, with the state at the kill.

    changed: applied to the state in between.
    """

    def restart(stage, *plans, gone_s=10.0, changed=lambda state: state):
        state = unpack(pack(changed(stage.decider.state(stage.now))))
        stage.now += gone_s
        stage.decider = Decider(plans, interval_s=5.0, fresh_intervals=3.0)
        stage.decider.restore(state, stage.now)
        stage.decisions = {}
        return stage

    return restart


IDLE = {"waiting": 0, "running": 0}


def test_decision_under_load_keeps_its_time_until_the_next_scrape(scene, plan, pod, page, restarted):
    settled = plan("chat", hold=60.0, settle=15.0)
    stage, engine = scene(settled), pod()
    stage.has(pods=[engine])
    assert stage.round({engine: page.vllm(waiting=0, running=100)}) == (7, True, "serving")
    before = stage.decision()
    stage = restarted(stage, plan("new"), settled)
    stage.has(pods=[engine])
    stage.sweep()
    assert (stage.outcome(), stage.outcome("new")) == ((7, True, "serving"), (None, True, "unknown"))
    assert stage.decision().decided_at == before.decided_at
    assert stage.round({engine: page.vllm(waiting=0, running=100)}) == (7, True, "serving")
    assert stage.decision().decided_at == before.decided_at


def test_decision_is_held_and_then_an_error_if_the_sources_are_gone_as_well(scene, plan, pod, page, restarted):
    stage, engine = scene(plan(hold=60.0)), pod()
    stage.has(pods=[engine])
    stage.round({engine: page.vllm(waiting=0, running=100)})
    stage.sweep(after=30.0)
    held_since = stage.decision().held_since
    stage = restarted(stage, plan(hold=60.0))
    stage.has(pods=[engine])
    stage.sweep()
    assert stage.outcome() == (7, True, "held")
    assert stage.decision().held_since == held_since, "the restart does not shorten the outage"
    stage.sweep(after=51.0)
    assert stage.outcome() == (None, True, "unknown")


def test_smoothing_continues_after_a_restart(scene, plan, pod, page, restarted):
    slow = plan(down=60.0)
    stage, engine = scene(slow), pod()
    stage.has(pods=[engine])
    stage.rounds(10, {engine: page.vllm(waiting=0, running=100)})
    stage = restarted(stage, slow, gone_s=5.0)
    stage.has(pods=[engine])
    assert stage.round({engine: page.vllm(**IDLE)})[0] == 7
    # A minute after the scrape with 0: 50 of 100 are left, 50/16 = 3.1.
    stage.rounds(60, {engine: page.vllm(**IDLE)})
    assert stage.outcome()[0] == 4


def test_request_rate_continues_and_counts_requests_finished_meanwhile(scene, plan, pod, page, restarted):
    stage, engine = scene(), pod()
    stage.has(pods=[engine])
    for turn in range(12):
        stage.round({engine: page.vllm(waiting=0, running=1, finished=100 * turn)})
    stage = restarted(stage, plan(), gone_s=0.0)
    stage.has(pods=[engine])
    for turn in range(12, 20):
        stage.round({engine: page.vllm(waiting=0, running=1, finished=100 * turn)})
        assert stage.decision().evidence.requests_per_second == pytest.approx(20.0)


def test_sleeping_workload_stays_asleep_before_and_after_the_first_scrape_of_its_gateway(
    scene, plan, gateway, pod, page, restarted
):
    sleepy = plan(gateway=True, keep_warm=30.0)
    stage, engine, front = scene(sleepy), pod(), gateway()
    stage.has(pods=[engine], gateway=front, wanted=1)
    stage.rounds(45, {engine: page.vllm(**IDLE), front: page.epp(held=0, ready=1)})
    stage.has(pods=[], gateway=front, wanted=0)
    stage.decider.retire(engine)
    assert stage.round({front: page.epp(held=0, ready=0)}) == (0, False, "asleep")
    stage = restarted(stage, sleepy)
    stage.decider.expect(front)
    stage.sweep()
    assert stage.outcome() == (0, False, "held"), "before the cluster is listed"
    stage.has(pods=[], gateway=front, wanted=0)
    assert stage.round({front: page.epp(held=0, ready=0)}) == (0, False, "asleep")
    assert stage.round({front: page.epp(held=1, ready=0)}) == (1, True, "queued")


class Sleepy:
    """A workload that is idle for 20 s of its 60 s when Tidegate is killed; Tidegate is away for 10 s."""

    def __init__(self, scene, plan, pod, gateway, page, restarted):
        self.plan, self.page = plan(gateway=True, keep_warm=60.0, hold=60.0), page
        self.stage, self.engines, self.front = scene(self.plan), [pod(0), pod(1)], gateway()
        self.stage.has(pods=self.engines, gateway=self.front)
        self.stage.round(self.pages(39, 7))
        self.busy_until = self.stage.now + 5.0
        self.stage.rounds(25, self.pages(40, 7))
        self.restarted = restarted

    def pages(self, *finished):
        page = self.page
        engines = {
            each: page.vllm(waiting=0, running=0, finished=n) for each, n in zip(self.engines, finished, strict=True)
        }
        return engines | {self.front: page.epp(held=0, ready=2)}

    def restart(self, **how):
        self.stage = self.restarted(self.stage, self.plan, **{"gone_s": 10.0, **how})
        self.stage.has(pods=self.engines, gateway=self.front)
        self.back_at = self.stage.now
        self.stage.sweep()

    def falls_asleep_at(self, *finished):
        """Seconds from the last request before the kill until it falls asleep."""
        for _ in range(60):
            if self.stage.round(self.pages(*finished)) == (0, False, "asleep"):
                return self.stage.now - self.busy_until
        return None


@pytest.fixture
def sleepy(scene, plan, pod, gateway, page, restarted):
    return Sleepy(scene, plan, pod, gateway, page, restarted)


def test_workload_sleeps_after_its_keep_warm_time_without_a_restart(sleepy):
    assert sleepy.falls_asleep_at(40, 7) == 60.0


def test_keep_warm_time_continues_if_no_counter_has_moved(sleepy):
    sleepy.restart()
    assert sleepy.falls_asleep_at(40, 7) == 60.0


def test_keep_warm_time_restarts_if_a_request_was_finished_meanwhile(sleepy):
    sleepy.restart()
    # Killed at 20 s, back at 30 s, scraped again at 35 s: 60 s from then.
    assert sleepy.falls_asleep_at(40, 8) == 95.0


@pytest.mark.parametrize(("first", "second"), [(0, 7), (39, 7)])
def test_keep_warm_time_restarts_if_an_engine_restarted(sleepy, first, second):
    sleepy.restart()
    assert sleepy.falls_asleep_at(first, second) == 95.0


def test_keep_warm_time_restarts_if_a_counting_target_does_not_return(sleepy):
    sleepy.engines = sleepy.engines[:1]
    sleepy.restart()
    assert sleepy.falls_asleep_at(40) == 95.0


@pytest.mark.parametrize(("finished", "expected"), [(0, 60.0), (1, 95.0)])
def test_new_pod_must_have_counted_no_request(sleepy, pod, finished, expected):
    sleepy.engines = [*sleepy.engines, pod(2)]
    sleepy.restart()
    assert sleepy.falls_asleep_at(40, 7, finished) == expected


def test_keep_warm_time_restarts_after_a_gap_longer_than_the_hold(sleepy):
    sleepy.restart(gone_s=60.5)
    # Killed at 20 s, back at 80.5 s, scraped at 85.5 s: 60 s from then.
    assert sleepy.falls_asleep_at(40, 7) == 145.5


def test_keep_warm_time_restarts_without_request_counters(sleepy):
    """No counter shows what happened meanwhile."""

    def uncounted(state):
        pages = dict(state.tables["pages"])
        pages["counters"] = np.full_like(pages["counters"], np.nan)
        return State(state.at, state.workloads, state.columns, {"pages": pages})

    sleepy.restart(changed=uncounted)
    assert sleepy.falls_asleep_at(40, 7) == 95.0


class Trains:
    """A workload with a GPU of its own, and requests. Its GPU was busy until 20 s before the kill."""

    def __init__(self, scene, plan, pod, gateway, node, page, restarted):
        self.plan, self.page = plan(gateway=True, keep_warm=60.0, hold=60.0), page
        self.stage, self.engine, self.front, self.node = scene(self.plan), pod(), gateway(), node()
        self.stage.has(pods=[self.engine], gateway=self.front)
        self.stage.round(self.pages(0.9))
        self.busy_until = self.stage.now + 5.0
        self.stage.rounds(25, self.pages(0.0))
        self.restarted = restarted

    def pages(self, activity, gpus=("chat-7d9f8b6c5d-x2k9q",)):
        node = None if activity is None else self.page.gpu("GPU-1", gpus, engine=activity)
        return {
            self.engine: self.page.vllm(waiting=0, running=0, finished=40),
            self.front: self.page.epp(held=0, ready=1),
            self.node: node,
        }

    def restart(self):
        self.stage = self.restarted(self.stage, self.plan)
        self.stage.has(pods=[self.engine], gateway=self.front)
        self.stage.decider.expect(self.node)
        self.stage.sweep()

    def falls_asleep_at(self, pages, seconds=300):
        """Seconds from the last GPU activity until it falls asleep."""
        while self.stage.now < self.busy_until + seconds:
            if self.stage.round(pages) == (0, False, "asleep"):
                return self.stage.now - self.busy_until
        return None


@pytest.fixture
def trains(scene, plan, pod, gateway, node, page, restarted):
    return Trains(scene, plan, pod, gateway, node, page, restarted)


def test_keep_warm_time_continues_if_the_gpu_is_quiet_after_a_restart(trains):
    trains.restart()
    assert trains.falls_asleep_at(trains.pages(0.0)) == 60.0


def test_keep_warm_time_continues_if_the_gpu_is_visible_a_little_later(trains):
    trains.restart()
    trains.stage.round(trains.pages(None))
    assert trains.falls_asleep_at(trains.pages(0.0)) == 60.0


def test_gpu_with_activity_before_and_none_after_a_restart_is_not_quiet(trains):
    silent = trains.pages(0.0)
    silent[trains.node] = trains.page.gpu("GPU-1", ["chat-7d9f8b6c5d-x2k9q"])
    trains.restart()
    assert trains.falls_asleep_at(silent) is None


def test_gpu_missing_after_a_restart_is_awaited_for_the_hold(trains):
    trains.restart()
    # Killed at 20 s with a hold of 60 s: until 80 s its GPU may be busy; 60 s from the next scrape.
    assert trains.falls_asleep_at(trains.pages(None)) == 140.0


def test_gpu_with_activity_is_remembered_through_a_reload(trains):
    silent = trains.pages(0.0)
    silent[trains.node] = trains.page.gpu("GPU-1", ["chat-7d9f8b6c5d-x2k9q"])
    after = Decider([trains.plan], interval_s=5.0, fresh_intervals=3.0)
    after.adopt(trains.stage.decider)
    trains.stage.decider = after
    trains.stage.has(pods=[trains.engine], gateway=trains.front)
    assert trains.falls_asleep_at(silent) is None


def test_idle_time_is_not_restored_before_its_proof_even_if_a_scrape_comes_first(scene, plan, pod, page, restarted):
    stage, engine = scene(plan()), pod()
    stage.has(pods=[engine])
    stage.rounds(20, {engine: page.vllm(**IDLE)})
    stage = restarted(stage, plan())
    stage.has(pods=[engine])
    stage.land(engine, page.vllm(**IDLE))  # no counter of requests, and no tick before this scrape
    stage.sweep()
    assert stage.decision().idle_since == stage.now


def test_first_sweep_after_a_restart_publishes_every_decision(scene, plan, pod, page, restarted):
    settled = plan(settle=15.0)
    stage, engine = scene(settled), pod()
    stage.has(pods=[engine])
    stage.round({engine: page.vllm(waiting=0, running=100)})
    stage = restarted(stage, settled)
    assert [decision.replicas for decision in stage.sweep()] == [7]
    assert stage.sweep() == []


def test_keep_warm_time_continues_if_the_list_of_workloads_changes_before_the_first_scrape(sleepy, plan):
    sleepy.restart()
    after = Decider([plan("new"), sleepy.plan], interval_s=5.0, fresh_intervals=3.0)
    after.take_over(sleepy.stage.decider)
    sleepy.stage.decider = after
    assert sleepy.falls_asleep_at(40, 7) == 60.0


def test_keep_warm_time_continues_through_a_reload(sleepy, plan):
    after = Decider([plan("new"), sleepy.plan], interval_s=5.0, fresh_intervals=3.0)
    after.adopt(sleepy.stage.decider)
    sleepy.stage.decider = after
    sleepy.stage.has(pods=sleepy.engines, gateway=sleepy.front)
    sleepy.stage.sweep()
    assert sleepy.falls_asleep_at(40, 7) == 60.0


@pytest.mark.parametrize(("gone_s", "outcome"), [(60.0, (7, True, "held")), (60.5, (None, True, "unknown"))])
def test_restored_decision_is_kept_for_its_hold(scene, plan, pod, page, restarted, gone_s, outcome):
    stage, engine = scene(plan(hold=60.0)), pod()
    stage.has(pods=[engine])
    stage.round({engine: page.vllm(waiting=0, running=100)})
    stage = restarted(stage, plan(hold=60.0), gone_s=gone_s)
    stage.has(pods=[engine])
    stage.sweep()
    assert stage.outcome() == outcome


@pytest.mark.parametrize(("ahead_s", "expected"), [(50.0, 60.0), (61.0, 95.0)])
def test_state_from_the_future_is_moved_to_now_and_is_as_old_as_it_is_ahead(sleepy, ahead_s, expected):
    """The clock was set back by more than Tidegate was away, or belongs to another machine."""
    sleepy.restart(changed=lambda state: translated(state, 10.0 + ahead_s))
    falls = sleepy.falls_asleep_at(40, 7)
    # Moved to the time of reading, 10 s after the kill: its 20 s of idleness are 20 s, so it sleeps 10 s later.
    assert falls == (expected + 10.0 if expected == 60.0 else expected)
    newest = np.nanmax(sleepy.stage.decider.columns()["windows.times"])
    assert newest <= sleepy.stage.now


def test_state_of_a_newer_version_is_held_or_unknown_and_never_wrong(scene, plan, pod, page, restarted):
    stage, engine = scene(plan("a", settle=15.0), plan("b"), plan("c")), pod()
    stage.has(pods=[engine], name="a")

    def from_tomorrow(state):
        columns = dict(state.columns)
        columns["memory.replicas"] = np.array([3.0, 0.0, -2.0])
        columns["memory.active"] = np.array([True, True, True])
        columns["memory.reason"] = np.array([len(REASONS), 0, -7])
        columns["memory.from_tomorrow"] = np.ones((3, 5))
        columns["memory.held_since"] = np.zeros(3, np.int64)
        return State(state.at, state.workloads, columns, {"from_tomorrow": {"row": np.array([0])}})

    stage = restarted(stage, plan("a", settle=15.0), plan("b"), plan("c"), changed=from_tomorrow)
    stage.sweep()
    outcomes = [stage.outcome(name) for name in "abc"]
    assert outcomes == [(3, True, "held"), (None, True, "unknown"), (None, True, "unknown")]


def test_codes_of_reasons_are_stored_in_checkpoints_so_new_ones_come_last():
    assert REASONS[:12] == (
        *(Reason.SERVING, Reason.QUEUED, Reason.GPU_BUSY, Reason.LOADING, Reason.WARM, Reason.ASLEEP),
        *(Reason.HELD, Reason.UNKNOWN, Reason.NO_WAKE_SOURCE, Reason.SCHEDULED, Reason.FROZEN, Reason.CAPPED),
    )


def test_state_is_a_copy_that_later_scrapes_do_not_change(scene, plan, pod, page):
    stage, engine = scene(plan()), pod()
    stage.has(pods=[engine])
    stage.round({engine: page.vllm(waiting=0, running=100, finished=5)})
    state = stage.decider.state(stage.now)
    before = pack(state)
    stage.rounds(30, {engine: page.vllm(waiting=0, running=1, finished=50)})
    assert pack(state) == before


def test_empty_fleet_has_a_state(scene, plan):
    stage = scene()
    empty = Decider([], interval_s=5.0, fresh_intervals=3.0)
    stage.decider.restore(unpack(pack(empty.state(1000.0))), 1000.0)
    empty.restore(stage.decider.state(1000.0), 1000.0)
    assert empty.sweep(1000.0) == []

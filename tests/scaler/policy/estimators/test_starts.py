"""Cold starts are measured from the states of pods, without the time that no node has capacity."""

import numpy as np
import pytest

from exporter.kubernetes.objects import Pod
from exporter.model import PodKey
from scaler.policy.estimators.cold_start import FIRST_TOKEN_S, OLD_S, Starts

ROW = np.array([0])
KEY = PodKey("ai", "chat-a")


def pod(name="chat-a", uid=None, **more):
    """From created at 0: `ready_at=70` is ready; without a `scheduled_at` it has no node."""
    ready = more.get("ready_at") is not None
    parts = {"created_at": 0.0, "ready": ready, "was_ready": ready, **more}
    if parts.get("scheduled_at") is not None:
        parts.setdefault("node", "node-1")
    return Pod(PodKey("ai", name), uid or f"uid-{name}", **parts)


class Observed:
    """One workload's starts."""

    def __init__(self):
        self.starts = Starts(1)

    def __call__(self, *pods, now=0.0, waiting=False):
        self.starts.observe(0, pods, waiting=waiting, now=now)
        return self

    @property
    def count(self):
        return round(float(self.starts._further.weights[0].sum() + self.starts._zero.weights[0].sum()), 1)


@pytest.fixture
def observed():
    return Observed()


def about(seconds):
    return pytest.approx(seconds, rel=0.05, abs=1.0)


def test_worked_example_of_the_module(observed):
    observed(pod())
    observed(pod(unscheduled_since=1.0), now=2)
    observed(pod(scheduled_at=240.0), now=240)
    observed(pod(scheduled_at=240.0, ready_at=310.0), now=310, waiting=True)
    assert observed.starts.awaits(KEY)
    observed.starts.served(KEY, 313.0)
    assert observed.count == 1
    assert observed.starts.times.p50.tolist() == observed.starts.times.p90.tolist() == [about(75)]


def test_time_between_creation_and_a_node_counts_if_nodes_have_capacity(observed):
    observed(pod())
    observed(pod(scheduled_at=30.0, ready_at=100.0), now=100)
    assert observed.starts.times.p50.tolist() == [about(101)]


def test_before_a_start_is_observed_its_time_is_unknown(observed):
    observed(pod())
    observed(pod(scheduled_at=1.0), now=1)
    assert np.isnan(observed.starts.times.p50).all()
    assert observed.count == 0


def test_stock_out_of_a_day_is_no_slow_start(observed):
    for number in range(20):
        late = 86400.0 if number % 2 else 0.0
        name = f"chat-{number}"
        observed(pod(name))
        observed(pod(name, unscheduled_since=1.0), now=1)
        observed(pod(name, scheduled_at=1.0 + late), now=1 + late)
        observed(pod(name, scheduled_at=1.0 + late, ready_at=71.0 + late), now=71 + late)
    assert observed.starts.times.p90.tolist() == [about(72)]


def test_pod_that_had_a_node_when_first_observed_has_no_scheduling_time(observed):
    observed(pod(scheduled_at=500.0), now=500)
    observed(pod(scheduled_at=500.0, ready_at=570.0), now=570)
    assert observed.count == 1
    assert observed.starts.times.p50.tolist() == [about(71)]


def test_first_token_counts_only_if_a_request_waited(observed):
    observed(pod(scheduled_at=0.0), now=0)
    observed(pod(scheduled_at=0.0, ready_at=70.0), now=70, waiting=False)
    assert not observed.starts.awaits(KEY)
    observed.starts.served(KEY, 400.0)
    assert observed.count == 1
    assert observed.starts.times.p50.tolist() == [about(71)]


@pytest.mark.parametrize(("after", "seconds"), [(60.0, 130.0), (FIRST_TOKEN_S, 670.0), (FIRST_TOKEN_S + 1.0, 70.0)])
def test_time_to_the_first_token_counts_up_to_ten_minutes(observed, after, seconds):
    observed(pod(scheduled_at=0.0), now=0)
    observed(pod(scheduled_at=0.0, ready_at=70.0), now=70, waiting=True)
    observed.starts.served(KEY, 70.0 + after)
    assert observed.starts.times.p50.tolist() == [about(seconds)]


def test_without_a_token_in_ten_minutes_no_request_waited(observed):
    observed(pod(scheduled_at=0.0), now=0)
    observed(pod(scheduled_at=0.0, ready_at=70.0), now=70, waiting=True)
    observed.starts.passed(70 + FIRST_TOKEN_S)
    assert observed.count == 0
    observed.starts.passed(70 + FIRST_TOKEN_S + 1)
    assert observed.count == 1
    assert not observed.starts.awaits(KEY)


def test_pod_that_ends_before_its_first_token_counts_as_started(observed):
    observed(pod(scheduled_at=0.0), now=0)
    observed(pod(scheduled_at=0.0, ready_at=70.0), now=70, waiting=True)
    observed(now=80)
    assert observed.count == 1
    assert not observed.starts.awaits(KEY)


def test_pod_is_ready_only_with_the_condition_and_its_time(observed):
    observed(pod(scheduled_at=0.0), now=0)
    observed(pod(scheduled_at=0.0, ready_at=50.0, ready=False, was_ready=False), now=50)
    assert observed.count == 0
    observed(pod(scheduled_at=0.0, ready=True), now=70)
    assert observed.count == 0


def test_pod_that_ends_before_it_is_ready_counts_as_no_start(observed):
    observed(pod(scheduled_at=0.0), now=0)
    observed(pod(scheduled_at=0.0, leaving=True), now=50)
    observed(pod(scheduled_at=0.0, leaving=True, ready_at=51.0), now=51)
    observed(now=60)
    assert observed.count == 0


def test_restart_or_a_readiness_that_comes_and_goes_is_no_start(observed):
    observed(pod(scheduled_at=0.0), now=0)
    observed(pod(scheduled_at=0.0, ready_at=70.0), now=70)
    observed(pod(scheduled_at=0.0, was_ready=True), now=500)
    observed(pod(scheduled_at=0.0, ready_at=5000.0, restarted=True), now=5000)
    assert observed.count == 1


def test_next_pod_of_the_same_name_is_another_start(observed):
    for number, uid in enumerate(("one", "two")):
        observed(pod(uid=uid, scheduled_at=0.0), now=number)
        observed(pod(uid=uid, scheduled_at=0.0, ready_at=70.0), now=70)
    assert observed.count == 2


@pytest.mark.parametrize(("loading", "counts"), [(-1.0, 0), (0.0, 1), (OLD_S, 1), (OLD_S + 1.0, 0)])
def test_pod_found_ready_counts_if_it_loaded_for_no_time_to_an_hour(observed, loading, counts):
    observed(pod(scheduled_at=100.0, ready_at=100.0 + loading), now=5000)
    assert observed.count == counts


def test_pods_found_ready_count_once_by_their_own_times(observed):
    found = [
        pod("a", scheduled_at=0.0, ready_at=70.0),
        pod("b", scheduled_at=10.0, ready_at=80.0),
        pod("restarted", scheduled_at=0.0, ready_at=90.0, restarted=True),
        pod("flapped", scheduled_at=0.0, ready_at=OLD_S + 1),
        pod("no times", ready_at=95.0, node="n"),
        pod("was", scheduled_at=0.0, was_ready=True),
        pod("tomorrow", scheduled_at=9999.0, ready_at=9999.0),
    ]
    for _ in range(2):
        observed(*found, now=5000)
    assert observed.count == 2
    assert observed.starts.times.p90.tolist() == [about(71)]


def test_pods_found_ready_do_not_count_again_after_a_restart(observed):
    observed(pod("a", scheduled_at=0.0, ready_at=70.0), now=100)
    again = Observed()
    again.starts.take(observed.starts.columns(), ROW, ROW)
    assert again.starts.times.p50.tolist() == observed.starts.times.p50.tolist()
    # `b` became ready while we were away.
    again(pod("a", scheduled_at=0.0, ready_at=70.0), pod("b", scheduled_at=50.0, ready_at=350.0), now=400)
    assert again.count == 2
    assert again.starts.times.p90.tolist() == [about(301)]


def test_start_continues_with_a_new_list_of_workloads(observed):
    observed(pod(), now=0)
    observed(pod(unscheduled_since=1.0), now=1)
    new = Starts(2)
    new.take(observed.starts.columns(), np.array([1]), ROW)
    new.go_on(observed.starts, np.array([1]), ROW)
    new.observe(1, [pod(scheduled_at=240.0, ready_at=310.0)], waiting=True, now=310.0)
    last = Starts(1)
    last.take(new.columns(), ROW, np.array([1]))
    last.go_on(new, ROW, np.array([1]))
    assert last.awaits(KEY)
    last.served(KEY, 313.0)
    assert last.times.p50.tolist() == [about(75)]


def test_checkpoint_with_the_phases_of_earlier_versions_is_read(observed):
    observed(pod("a", scheduled_at=0.0, ready_at=70.0), now=100)
    columns = observed.starts.columns()
    for part in ("weights", "reference_at"):
        for phase in ("unscheduled", "scheduling", "loading", "first_token"):
            columns[f"coldstarts.{phase}.{part}"] = columns[f"coldstarts.whole.{part}"]
    restored = Starts(1)
    restored.take(columns, ROW, ROW)
    assert restored.times.p90.tolist() == [about(71)]


def test_node_clock_that_is_ahead_makes_no_long_start(observed):
    observed(pod(scheduled_at=0.0), now=0)
    observed(pod(scheduled_at=0.0, ready_at=1e6), now=70)
    assert observed.starts.times.p50.tolist() == [about(71)]


def test_one_slow_start_of_a_new_image_raises_the_90th_percentile(observed):
    for number in range(4):
        observed(pod(f"old-{number}", scheduled_at=0.0), now=0)
        observed(pod(f"old-{number}", scheduled_at=0.0, ready_at=70.0), now=70)
    observed(pod("new", scheduled_at=100.0), now=100)
    observed(pod("new", scheduled_at=100.0, ready_at=400.0), now=400)
    assert observed.starts.times.p50.tolist() == [about(71)]
    assert observed.starts.times.p90.tolist() == [about(301)]


def test_first_replica_after_zero_and_further_ones_are_measured_apart(observed):
    first, second = pod("a", scheduled_at=0.0), pod("b", scheduled_at=0.0)
    observed(first, second, now=0)
    restored = pod("a", scheduled_at=0.0, ready_at=4.0)
    observed(restored, second, now=4)
    observed(restored, pod("b", scheduled_at=0.0, ready_at=85.0), now=85)
    assert observed.starts.zero_times.p90.tolist() == [about(4)]
    assert observed.starts.times.p50.tolist() == [about(85)]
    # A roll-out: the new one is there before the old one goes.
    observed(restored, pod("c", scheduled_at=100.0), now=100)
    observed(restored, pod("c", scheduled_at=100.0, ready_at=200.0), now=200)
    assert observed.starts.zero_times.p90.tolist() == [about(4)]
    assert observed.starts.times.p90.tolist() == [about(100)]


def test_of_two_that_become_ready_together_the_earlier_is_the_first(observed):
    observed(pod("a", scheduled_at=0.0), pod("b", scheduled_at=0.0), now=0)
    observed(pod("a", scheduled_at=0.0, ready_at=30.0), pod("b", scheduled_at=0.0, ready_at=20.0), now=31)
    assert observed.starts.zero_times.p50.tolist() == [about(21)]
    assert observed.starts.times.p50.tolist() == [about(31)]


def test_replica_beside_one_that_is_ready_since_an_unknown_time_is_a_further_one(observed):
    there = pod("a", scheduled_at=0.0, ready=True, was_ready=True)
    observed(there, pod("b", scheduled_at=0.0), now=0)
    observed(there, pod("b", scheduled_at=0.0, ready_at=70.0), now=70)
    assert (observed.starts._zero.weights[0].sum(), observed.starts._further.weights[0].sum()) == (0.0, 1.0)


def test_replica_beside_one_that_terminates_is_the_first(observed):
    old = pod("old", scheduled_at=0.0, ready_at=70.0, leaving=True)
    observed(old, pod("new", scheduled_at=100.0), now=100)
    observed(old, pod("new", scheduled_at=100.0, ready_at=105.0), now=105)
    # The old one was ready when it was found: what was before it is not known, so it is a further one.
    assert observed.starts.zero_times.p50.tolist() == [about(5)]
    assert observed.starts.times.p50.tolist() == [about(71)]


@pytest.mark.parametrize("kind", ["first", "further"])
def test_kind_without_a_measured_start_has_the_times_of_the_other(observed, kind):
    beside = [] if kind == "first" else [pod("old", ready_at=0.0, node="n")]
    observed(*beside, pod(scheduled_at=0.0), now=0)
    observed(*beside, pod(scheduled_at=0.0, ready_at=70.0), now=70)
    assert observed.count == 1
    assert observed.starts.times.p50.tolist() == observed.starts.zero_times.p50.tolist() == [about(71)]
    again = Starts(1)
    again.take(observed.starts.columns(), ROW, ROW)
    np.testing.assert_equal(again.zero_times, observed.starts.zero_times)


def starts_of(observed, *seconds):
    """Starts from zero, one after the other."""
    for number, each in enumerate(seconds):
        begun = 1000.0 * number
        observed(pod(f"s{number}", created_at=begun, scheduled_at=begun), now=begun)
        observed(pod(f"s{number}", created_at=begun, scheduled_at=begun, ready_at=begun + each), now=begun + each)
        observed(now=begun + each + 1.0)
    return observed.starts.zero_times


def test_mean_of_restored_and_cold_starts_is_between_them(observed):
    times = starts_of(observed, 4.0, 4.0, 85.0, 4.0, 4.0)
    assert (times.p50.tolist(), times.p90.tolist(), times.mean.tolist()) == ([about(4)], [about(85)], [about(20.2)])


def test_one_start_of_many_that_took_a_day_leaves_the_mean(observed):
    assert starts_of(observed, *[70.0] * 12, 86400.0).mean.tolist() == [about(70)]

"""Knative's own scenarios (pkg/autoscaler/scaling/autoscaler_test.go, aggregation/bucketing_test.go), by value."""

from __future__ import annotations

import pytest

from scaler.replay.baselines.knative import Buckets, Knative, KnativeMemory, KnativeSpec, excess_burst, scale
from scaler.replay.run import run

TEN = KnativeSpec(target=10.0, up_rate=10.0, down_rate=10.0)
ONE = KnativeSpec(target=1.0, up_rate=10.0, down_rate=10.0)
NEW = KnativeMemory()


def wanted(spec, stable, panic, ready, memory=NEW, now=0.0):
    return scale(spec, memory, stable, panic, ready, now)[0]


@pytest.mark.parametrize(
    ("spec", "stable", "panic", "ready", "memory", "expected"),
    [
        (TEN, 0.0, 0.0, 1, NEW, 0),  # AutoscalerNoDataAtZeroNoAutoscale
        (KnativeSpec(target=181.0, up_rate=10.0, down_rate=10.0), 21.0, 26.0, 1, NEW, 1),  # StableModeUnlimitedTBC
        (TEN, 50.0, 49.0, 1, NEW, 5),  # Autoscaler0TBC
        (TEN, 50.0, 50.0, 1, NEW, 5),  # StableModeNoChange
        (ONE, 50.0, 30.0, 5, KnativeMemory(-5.0, 5), 50),  # PanicStableLargerThanPanic
        (ONE, 20.0, 30.0, 5, KnativeMemory(-5.0, 5), 30),  # PanicStableLessThanPanic
        (TEN, 50.0, 50.0, 5, NEW, 5),  # StableModeNoChangeAlreadyScaled
        (KnativeSpec(target=1.0, up_rate=1.1, down_rate=10.0), 3.0, 3.1, 2, NEW, 3),  # IncreaseWithSmallScaleUpRate
        (
            KnativeSpec(target=10.0, up_rate=10.0, down_rate=1.1),
            1.0,
            1.0,
            100,
            NEW,
            90,
        ),  # DecreaseWithSmallScaleDownRate
        (TEN, 50.0, 100.0, 1, NEW, 10),  # PanicModeDoublePodCount
        (TEN, 1000.0, 1001.0, 1, NEW, 10),  # RateLimitScaleUp
        (TEN, 1000.0, 1001.0, 10, NEW, 100),
        (TEN, 1.0, 1.0, 100, NEW, 10),  # RateLimitScaleDown
        (TEN, 1.0, 1.0, 10, NEW, 1),
        (TEN, 1000.0, 888.0, 0, NEW, 10),  # UseOnePodAsMinimumIfEndpointsNotFound
        (TEN, 1.0, 0.0, 1, NEW, 1),  # StableModeNoTrafficScaleToZero
        (TEN, 100.0, 100.0, 8, NEW, 10),  # StableModeDecrease
        (TEN, 50.0, 50.0, 8, NEW, 5),
    ],
)
def test_table_of_scales_equals_that_of_knative(spec, stable, panic, ready, memory, expected):
    assert expected == wanted(spec, stable, panic, ready, memory)


def test_panic_lasts_until_the_stable_window_has_passed():
    # TestAutoscalerPanicThenUnPanicScaleDown
    first, memory = scale(TEN, NEW, 100.0, 100.0, 1, 0.0)
    second, memory = scale(TEN, memory, 100.0, 1000.0, 10, 0.0)
    third, memory = scale(TEN, memory, 1.0, 1.0, 10, 30.0)
    fourth, memory = scale(TEN, memory, 1.0, 1.0, 10, 61.0)
    assert [first, second, third, fourth] == [10, 100, 100, 1]
    assert memory == NEW


def test_slow_increase_ends_the_panic():
    # TestAutoscalerUnpanicAfterSlowIncrease
    first, memory = scale(ONE, NEW, 11.0, 25.0, 10, 0.0)
    second, memory = scale(ONE, memory, 30.0, 41.0, 40, 30.0)
    assert memory.panic_at == 0.0
    third, memory = scale(ONE, memory, 50.0, 56.0, 55, 62.0)
    assert [first, second, third] == [25, 41, 50]
    assert memory.panic_at is None


def test_continuing_surge_extends_the_panic():
    # TestAutoscalerExtendPanicWindow
    _, memory = scale(ONE, NEW, 11.0, 25.0, 10, 0.0)
    pods, memory = scale(ONE, memory, 30.0, 80.0, 40, 30.0)
    assert (pods, memory.panic_at) == (80, 30.0)


def test_exponential_load_is_followed_and_then_constant():
    # TestAutoscalerPanicModeExponentialTrackAndStabilize
    memory, ready, observation = NEW, 1, []
    for second, load in enumerate((6.0, 36.0, 216.0, 1296.0, 1296.0)):
        ready, memory = scale(ONE, memory, load, load, ready, float(second))
        observation.append(ready)
    assert observation == [6, 36, 216, 1296, 1296]


def test_excess_burst_capacity_equals_that_of_knative():
    # expectedEBC with targetUtilization 0.75: floor(totCap/0.75*pods - tbc - concurrency)
    spec = KnativeSpec(target=10.0, total=10 / 0.75, burst=100.0)
    assert excess_burst(spec, 1, 50.0) == -137.0
    assert excess_burst(KnativeSpec(burst=-1.0), 9, 50.0) == -1.0
    assert excess_burst(KnativeSpec(burst=0.0), 9, 50.0) == 0.0


def test_mean_covers_only_the_elapsed_part_of_the_window():
    buckets = Buckets(60.0, 2.0)
    buckets.record(100.0, 10.0)
    assert buckets.mean(100.0) == 10.0
    buckets.record(104.0, 5.0)  # 102 is missing, which is 0
    assert buckets.mean(104.0) == 5.0


def test_window_without_samples_is_zero_and_restarts():
    buckets = Buckets(6.0, 2.0)
    for now in (0.0, 2.0, 4.0):
        buckets.record(now, 9.0)
    # What left the window is gone, and the buckets after the last write are not counted.
    assert buckets.mean(6.0) == 9.0
    assert buckets.mean(10.0) == 0.0
    buckets.record(20.0, 4.0)
    assert buckets.mean(20.0) == 4.0


def ticks(baseline, see, begin, end, **pages):
    """The scale changes during these seconds, applied at once; pods are ready at once."""
    wanted_now, changes, now = pages.pop("wanted"), [], begin
    while now <= end:
        replicas = baseline.step(see(now, wanted=wanted_now, **pages))
        if replicas is not None and replicas != wanted_now:
            changes.append((now, replicas))
            wanted_now = replicas
        now += 2.0
    return changes


def test_burst_on_one_pod_causes_a_panic_beyond_the_stable_window(see):
    baseline = Knative("knative", KnativeSpec())
    ticks(baseline, see, 0.0, 118.0, wanted=1, running=7.0)
    # 6 s of 150 are in the panic window, 150/70 = 3 pods, at three ticks.
    assert ticks(baseline, see, 120.0, 124.0, wanted=1, running=150.0)[-1] == (124.0, 3)


def test_last_pod_is_removed_a_stable_window_after_the_last_request(see):
    # One pod is less than the burst capacity, so the activator is in the path, and no grace period remains.
    baseline = Knative("knative", KnativeSpec())
    ticks(baseline, see, 0.0, 120.0, wanted=1, running=1.0)
    assert ticks(baseline, see, 122.0, 300.0, wanted=1) == [(180.0, 0)]


def test_grace_period_applies_without_the_activator_in_the_path(see):
    baseline = Knative("knative", KnativeSpec(burst=0.0))
    ticks(baseline, see, 0.0, 120.0, wanted=1, running=1.0)
    assert ticks(baseline, see, 122.0, 300.0, wanted=1) == [(210.0, 0)]


def test_retention_keeps_the_last_pod(see):
    baseline = Knative("knative", KnativeSpec(retention_s=60.0))
    ticks(baseline, see, 0.0, 120.0, wanted=1, running=1.0)
    assert ticks(baseline, see, 122.0, 300.0, wanted=1) == [(240.0, 0)]


def test_request_held_by_the_activator_wakes_within_a_tick(see):
    baseline = Knative("knative", KnativeSpec())
    assert ticks(baseline, see, 0.0, 98.0, wanted=0) == []
    assert ticks(baseline, see, 100.0, 100.0, wanted=0, held=1.0) == [(100.0, 1)]


def test_scale_down_delay_keeps_the_highest_of_its_window(see):
    baseline = Knative("knative", KnativeSpec(delay_s=300.0, target=10.0))
    ticks(baseline, see, 0.0, 100.0, wanted=4, running=40.0)
    changes = ticks(baseline, see, 102.0, 900.0, wanted=4, running=10.0)
    assert [replicas for _, replicas in changes] == [3, 2, 1]
    assert changes[0][0] >= 400.0  # 4 was last wanted soon after 100 s
    # With 4 pods the least is 2, half of them. With 3 it is 1, which 300 s later is the highest of its window.
    assert changes[2][0] == changes[0][0] + 300.0


def test_panic_lasts_while_the_stable_window_is_not_over():
    memory = KnativeMemory(0.0, 9)
    assert scale(TEN, memory, 10.0, 10.0, 9, 60.0)[0] == 9
    assert scale(TEN, memory, 10.0, 10.0, 9, 60.1)[0] == 1


def test_idle_time_at_zero_does_not_dilute_the_average(see):
    # Nothing is recorded at zero replicas, so the first value is a window by itself: 150/70.
    baseline = Knative("knative", KnativeSpec())
    ticks(baseline, see, 0.0, 298.0, wanted=0)
    assert ticks(baseline, see, 300.0, 300.0, wanted=0, held=150.0) == [(300.0, 3)]


def test_requests_that_come_and_go_between_two_ticks_keep_the_pod(load, profile):
    # Each takes 0.63 s from 0.5 s after a tick: at no tick there is any. The mean of a minute is 0.02.
    short = load([(20.5 + 30.0 * index, 600, 3) for index in range(20)])
    course = run(short, profile(start_s=75.0), Knative("knative", KnativeSpec()))
    assert (course.orders, course.cold) == ((), 0)


def test_mean_of_nothing_is_zero_after_sums_with_rests_of_rounding():
    buckets = Buckets(6.0, 2.0)
    for tick, value in enumerate((0.1, 0.2, 0.3, 0.0, 0.0, 0.0)):
        buckets.record(2.0 * tick, value)
    assert buckets.mean(10.0) == 0.0

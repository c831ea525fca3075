"""One more hour of keep-warm costs idle GPUs and saves cold starts, as many as the recorded pauses say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.policy.estimators.further_hour import FurtherHour, RecordedPauses, further_hour
from scaler.policy.estimators.histograms import EDGES, Histograms, decayed_time, middles
from scaler.policy.estimators.keep_warm import Stakes, cost, kept_warm

DAY_S, HALF_LIFE_S = 86400.0, 7 * 86400.0
WAITING = 30.0 / 3600.0
EIGHT, THREE = np.array([8.0]), np.array([3.0])


def pauses(
    weights, edges, keep_warm, *, per_day=np.nan, starts_again=np.nan, start=75.0, waiting=WAITING
):  # fmt: skip
    numbers = (per_day, keep_warm, starts_again, start, waiting)
    per_day, keep_warm, starts_again, start, waiting = (np.array([float(number)]) for number in numbers)
    weights = np.array([weights], dtype=np.float32)
    total = weights.sum(axis=1, dtype=np.float64)
    return RecordedPauses(weights, np.asarray(edges), total, per_day, keep_warm, starts_again, start, waiting)


# Buckets with the middles 10 min, 40 min and 2 h; the last one begins at 3 h.
THREE_A_DAY = pauses([1.0, 1.0, 0.0, 1.0], [0.0, 1200.0, 3600.0, 10800.0], 900.0, per_day=3.0)


def test_worked_example_of_the_module():
    # 25 and 60 min on 8 GPUs at 3; the one start of 75 s costs 75 * (8 * 3 + 30) / 3600.
    found = FurtherHour(*(column.item() for column in further_hour(THREE_A_DAY, EIGHT, THREE)))
    assert found == pytest.approx((3.0, 8 * 85 * 60.0, 34.0, 1.0, 75.0, 75 * 54 / 3600))


def test_pause_that_ends_with_the_hour_needs_no_start_and_a_longer_one_does():
    for keep_warm, starts in ((7200.0, 1.0), (7199.0, 0.0)):
        found = further_hour(THREE_A_DAY._replace(keep_warm=np.array([keep_warm])), EIGHT, THREE)
        assert found.cold_starts.tolist() == [pytest.approx(starts)]


def test_without_a_price_the_money_is_unknown_and_the_gpu_hours_are_not():
    found = further_hour(THREE_A_DAY, EIGHT, np.array([np.nan]))
    assert np.isnan([found.cost, found.saved]).all()
    assert (found.gpu_seconds.item(), found.cold_starts.item()) == pytest.approx((8 * 85 * 60.0, 1.0))


@pytest.mark.parametrize("change", [{"weights": np.zeros((1, 4), dtype=np.float32)}, {"per_day": np.array([np.nan])}])
def test_without_a_recorded_pause_or_for_a_workload_that_never_sleeps_everything_is_unknown(change):
    assert np.isnan(further_hour(THREE_A_DAY._replace(**change), EIGHT, THREE)).all()


def test_hour_in_which_a_start_in_advance_begins_is_unknown():
    found = [further_hour(THREE_A_DAY._replace(starts_again=np.array([at])), EIGHT, THREE) for at in (4499.0, 4500.0)]
    assert [np.isnan(each).all() for each in found] == [True, False]


@given(
    st.lists(st.floats(0.0, 1e6), min_size=1, max_size=40),
    st.floats(0.0, 14400.0),
    st.floats(0.1, 100.0),
    st.floats(1.0, 3600.0),
    st.floats(0.0, 1.0),
    st.floats(0.01, 16.0),
)
def test_cost_less_saving_is_the_difference_of_the_costs_by_which_a_keep_warm_time_is_chosen(
    lengths, keep_warm, per_day, start, waiting, gpus
):
    histograms = Histograms(1, EDGES, HALF_LIFE_S)
    for length in lengths:
        histograms.add(np.zeros(1, dtype=np.int64), np.array([length]), 0.0)
    given = pauses(histograms.weights[0], EDGES, keep_warm, per_day=per_day, start=start, waiting=waiting)
    found = further_hour(given, np.array([gpus]), THREE)

    idle = gpus * 3.0 / 3600.0
    stakes = Stakes(*(np.array([number]) for number in (start, start, idle, waiting)))
    stands_for = middles(EDGES)[np.searchsorted(EDGES, lengths, side="right") - 1]
    by = [cost(stands_for, kept_warm(np.array([time])), stakes).mean() for time in (keep_warm, keep_warm + 3600.0)]
    assert (found.cost - found.saved).item() == pytest.approx((by[1] - by[0]) * per_day, rel=1e-4, abs=1e-6)
    assert 0.0 <= found.gpu_seconds.item() <= 3600.0 * gpus * per_day * (1.0 + 1e-6)
    assert 0.0 <= found.cold_starts.item() <= per_day * (1.0 + 1e-6)


@pytest.mark.parametrize("days", [0.1, 7.0, 60.0])
def test_steady_rate_is_its_decayed_sum_over_the_decayed_time(days):
    times = np.arange(0.0, days * DAY_S, 3600.0)
    weight = (2.0 ** -((days * DAY_S - times) / HALF_LIFE_S)).sum()
    assert weight / decayed_time(days * DAY_S, HALF_LIFE_S) * DAY_S == pytest.approx(24.0, rel=0.3 / days**0.5)

"""Usage histograms decay as VPA's do, add nothing for unknown values, and agree with direct arithmetic."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.signals.usage import (
    BATCHES,
    BUCKETED,
    BUCKETS,
    EDGES,
    GROWTH,
    HALF_LIFE_S,
    LEAST_POINT_S,
    PEAK_S,
    POINT_USAGE,
    SCALES,
    Moment,
    Usage,
    UsageHistograms,
    bucket_of,
    busy_of,
    distribution,
    point_means,
    queued_full,
)

P50, P95 = 2, 4


def row(**known):
    values = np.full((1, len(Usage)), np.nan)
    for name, value in known.items():
        values[0, Usage[name]] = value
    return values


def fed(*spells, begin=0.0, step=5.0, usage=None):
    """Histograms after spells of (seconds, busy, values)."""
    usage = usage or UsageHistograms(1)
    now = begin
    usage.add(row(), np.array([np.nan]), now, 15.0)
    for seconds, busy, values in spells:
        for _ in range(round(seconds / step)):
            now += step
            usage.add(row(**values), np.array([busy]), now, 15.0)
    return usage


def test_worked_example_of_the_module():
    usage = fed((60, 1.0, {"ENGINE": 0.5}), (60, 1.0, {"ENGINE": 0.9}), (120, 0.0, {"ENGINE": 0.0}))
    engine = distribution(usage, 0, Usage.ENGINE)
    assert engine.mean == pytest.approx(0.35, rel=1e-3)
    assert engine.busy_mean == pytest.approx(0.7, rel=1e-3)
    assert engine.peak == 0.9
    assert engine.seconds == pytest.approx(240.0, rel=2e-3)
    assert (engine.quantiles[P50], engine.quantiles[P95]) == (0.0, 0.9)


def test_unknown_value_adds_nothing():
    usage = fed((60, 1.0, {"ENGINE": 0.5}), (600, np.nan, {}))
    assert distribution(usage, 0, Usage.ENGINE).mean == pytest.approx(0.5)
    assert distribution(usage, 0, Usage.SM).seconds == 0.0
    assert np.isnan(distribution(usage, 0, Usage.SM).mean)


def test_time_of_a_gap_is_not_measured():
    usage = fed((60, 1.0, {"ENGINE": 0.5}))
    usage.add(row(ENGINE=1.0), np.array([1.0]), 60.0 + 3600.0, 15.0)
    # 60 s of 0.5, decayed by an hour, and 15 s of 1.
    before = 60.0 * 2 ** (-3600.0 / HALF_LIFE_S)
    found = distribution(usage, 0, Usage.ENGINE)
    assert found.seconds == pytest.approx(before + 15.0, rel=1e-3)
    assert found.mean == pytest.approx((before * 0.5 + 15.0) / (before + 15.0), rel=1e-3)


def test_value_of_a_day_ago_weighs_half():
    usage = fed((600, 1.0, {"ENGINE": 0.0}))
    usage = fed((600, 1.0, {"ENGINE": 0.9}), begin=HALF_LIFE_S, usage=usage)
    assert distribution(usage, 0, Usage.ENGINE).mean == pytest.approx(0.9 * 2 / 3, rel=1e-2)


def test_reference_moves_before_weights_overflow():
    usage = fed((60, 1.0, {"ENGINE": 0.5}))
    usage = fed((60, 1.0, {"ENGINE": 0.7}), begin=200 * HALF_LIFE_S, usage=usage)
    assert np.isfinite(usage.weights).all()
    assert distribution(usage, 0, Usage.ENGINE).mean == pytest.approx(0.7)


def test_clock_that_is_set_back_loses_no_later_value():
    usage = fed((60, 1.0, {"ENGINE": 0.2}), begin=10 * HALF_LIFE_S)
    usage = fed((60, 1.0, {"ENGINE": 0.8}), begin=0.0, usage=usage)
    assert distribution(usage, 0, Usage.ENGINE).mean == pytest.approx(0.5, rel=1e-2)


def test_peak_is_forgotten_after_two_periods():
    usage = fed((60, 1.0, {"MEMORY": 9e9}))
    usage = fed((60, 1.0, {"MEMORY": 1e9}), begin=PEAK_S + 1.0, usage=usage)
    assert distribution(usage, 0, Usage.MEMORY).peak == 9e9
    usage = fed((60, 1.0, {"MEMORY": 1e9}), begin=2 * PEAK_S + 1.0, usage=usage)
    assert distribution(usage, 0, Usage.MEMORY).peak == 1e9


def test_empty_queue_is_a_queue_of_0_and_not_of_its_bucket():
    usage = fed((600, 0.0, {"WAITING": 0.0}))
    assert distribution(usage, 0, Usage.WAITING).quantiles == (0.0,) * 5


def test_series_without_decay_equals_sums():
    usage = UsageHistograms(1)
    values = np.concatenate([row(ENGINE=0.5), row(ENGINE=0.9), row(SM=0.1)])
    usage.add_series(values, np.array([1.0, 0.0, np.nan]), 60.0, until=30 * HALF_LIFE_S)
    engine = distribution(usage, 0, Usage.ENGINE)
    assert (engine.mean, engine.busy_mean, engine.peak) == (pytest.approx(0.7), pytest.approx(0.5), 0.9)
    assert (engine.seconds, engine.busy_seconds) == (120.0, 60.0)


def test_buckets_reach_the_end_of_their_scale():
    assert EDGES.shape == (BUCKETED, BUCKETS)
    assert np.allclose(EDGES[:, -1], [scale.last for scale in SCALES])
    assert np.allclose(EDGES[:, 1], [scale.first for scale in SCALES])
    assert (GROWTH > 1.0).all()


@given(st.integers(0, BUCKETED - 1), st.floats(0.0, 2.0))
def test_bucket_contains_its_value(quantity, share):
    value = share * SCALES[quantity].last
    bucket = int(bucket_of(np.array([value]), np.array([quantity]))[0])
    edges = EDGES[quantity]
    assert edges[bucket] <= value * (1 + 1e-6) + 1e-9
    assert bucket == BUCKETS - 1 or value <= edges[bucket + 1] * (1 + 1e-6)


@settings(max_examples=50)
@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=40))
def test_quantiles_are_ordered_and_within_a_bucket_of_the_truth(values):
    usage = UsageHistograms(1)
    usage.add_series(np.concatenate([row(DRAM=value) for value in values]), np.ones(len(values)), 1.0, 1e6)
    found = distribution(usage, 0, Usage.DRAM)
    assert list(found.quantiles) == sorted(found.quantiles)
    assert found.quantiles[-1] <= found.peak == max(values)
    truth = float(np.quantile(values, 0.5, method="inverted_cdf"))
    bucket = int(bucket_of(np.array([truth]), np.array([int(Usage.DRAM)]))[0])
    width = (EDGES[Usage.DRAM][bucket + 1] if bucket + 1 < BUCKETS else 1.0) - EDGES[Usage.DRAM][bucket]
    assert abs(found.quantiles[P50] - truth) <= width + 1e-6


def test_quantile_is_interpolated_between_the_weights_below_and_in_its_bucket():
    usage, edges = UsageHistograms(1), EDGES[Usage.DRAM]
    fifth, sixth = (edges[5] + edges[6]) / 2.0, (edges[6] + edges[7]) / 2.0
    usage.add_series(np.concatenate([row(DRAM=value) for value in (fifth, sixth, 0.9)]), np.ones(3), 60.0, 1e6)
    # Half of 180 s are 90: the 60 of the fifth bucket, and half of those of the sixth.
    assert distribution(usage, 0, Usage.DRAM).quantiles[P50] == pytest.approx(sixth)


def test_state_is_taken_and_what_no_version_writes_is_none():
    usage, other = fed((60, 1.0, {"ENGINE": 0.5})), UsageHistograms(2)
    other.take(usage.columns(), np.array([1]), np.array([0]))
    assert distribution(other, 1, Usage.ENGINE) == distribution(usage, 0, Usage.ENGINE)
    assert distribution(other, 0, Usage.ENGINE).seconds == 0.0
    usage.moments[0, Usage.ENGINE, Moment.SUM] = -1.0
    other.take(usage.columns(), np.array([1]), np.array([0]))
    assert distribution(other, 1, Usage.ENGINE).seconds == 0.0


def test_busy_is_requests_in_hand_else_an_active_gpu():
    in_hand = np.array([3.0, 0.0, np.nan, np.nan, np.nan])
    engine = np.array([0.0, 1.0, 0.5, 0.005, np.nan])
    assert busy_of(in_hand, engine).tolist()[:4] == [1.0, 0.0, 1.0, 0.0]
    assert np.isnan(busy_of(in_hand, engine)[4])


def test_queue_before_a_full_gpu_or_cache_is_unknown_without_either():
    waiting = np.array([1.0, 1.0, 0.0, np.nan, 1.0])
    engine = np.array([0.95, 0.2, 1.0, 1.0, np.nan])
    cache = np.array([np.nan, 0.95, 1.0, 1.0, np.nan])
    assert queued_full(waiting, engine, cache).tolist()[:3] == [1.0, 1.0, 0.0]
    assert np.isnan(queued_full(waiting, engine, cache)[3:]).all()


def load(batch, requests, engines=2, prompt=500.0, generated=200.0):
    """A moment of `engines` with `batch` requests each, of which `requests` end per second."""
    tokens = {"PROMPT": prompt * requests, "GENERATED": generated * requests}
    return {"RUNNING": batch, "RUNNING_ALL": batch * engines, "REQUESTS": requests, **tokens}


def test_operating_points_are_means_of_each_range_of_requests():
    usage = fed((300, 1.0, load(4.0, 1.0)), (300, 1.0, load(16.0, 3.0)), (300, 1.0, load(17.0, 4.0)), (300, 0.0, {}))
    low, high = point_means(usage, 0)
    assert low == pytest.approx((4.0, 8.0, 1.0, 500.0, 200.0), rel=1e-5)
    assert high == pytest.approx((16.5, 33.0, 3.5, 1750.0, 700.0), rel=1e-3)


def test_moment_in_which_no_request_ends_counts_in_an_operating_point():
    usage = fed(*[spell for _ in range(30) for spell in ((5, 1.0, load(8.0, 1.0)), (5, 1.0, load(8.0, 0.0)))])
    (found,) = point_means(usage, 0)
    assert found[POINT_USAGE.index(Usage.REQUESTS)] == pytest.approx(0.5, rel=1e-3)


@pytest.mark.parametrize("values", [
    load(0.0, 0.0), {**load(8.0, 1.0), "PROMPT": np.nan}, {**load(8.0, 1.0), "GENERATED": 1e12}, {"RUNNING": 8.0},
], ids=["idle", "no prompt tokens", "no rate", "no counters"])  # fmt: skip
def test_moment_without_all_its_numbers_is_no_operating_point(values):
    assert point_means(fed((300, 1.0, values)), 0) == []


def test_operating_point_needs_a_minute_and_is_halved_every_day():
    assert point_means(fed((LEAST_POINT_S - 10.0, 1.0, load(8.0, 1.0))), 0) == []
    usage = fed((100, 1.0, load(8.0, 1.0)))
    assert len(point_means(usage, 0)) == 1
    usage.add(row(), np.array([np.nan]), HALF_LIFE_S + 100.0, 15.0)
    assert point_means(usage, 0) == [], "50 s are left"
    fed((200, 1.0, load(8.0, 3.0)), begin=HALF_LIFE_S + 100.0, usage=usage)
    (found,) = point_means(usage, 0)
    assert found[2] == pytest.approx((50.0 + 3.0 * 200.0) / 250.0, rel=0.01)


def test_operating_points_keep_their_means_when_the_reference_moves():
    usage = fed((3600, 1.0, load(8.0, 1.0)))
    usage.add(row(), np.array([np.nan]), 61 * HALF_LIFE_S, 15.0)
    fed((3600, 1.0, load(8.0, 2.0)), begin=61 * HALF_LIFE_S, usage=usage)
    ((*_, requests, _, _),) = point_means(usage, 0)
    assert requests == pytest.approx(2.0, rel=1e-5)


@settings(deadline=None, max_examples=50)
@given(st.floats(0.01, 1e5), st.floats(0.0, 1e3))
def test_range_of_an_operating_point_is_the_half_octave_of_its_requests(batch, requests):
    usage = fed((100, 1.0, load(batch, requests)))
    (at,) = np.flatnonzero(usage.points[0, :, 0])
    assert at == min(int(2.0 * np.log2(max(batch, 1.0)) + 1e-9), BATCHES - 1)


def test_state_of_an_older_version_has_no_operating_points():
    usage, later = fed((300, 1.0, load(8.0, 1.0))), fed((300, 1.0, load(4.0, 1.0)))
    columns = {name: column for name, column in usage.columns().items() if name != "usage.points"}
    later.take(columns, np.array([0]), np.array([0]))
    assert point_means(later, 0) == []
    later.take(usage.columns(), np.array([0]), np.array([0]))
    assert point_means(later, 0) == point_means(usage, 0)
    usage.points[0, 3, 2] = -1.0
    later.take(usage.columns(), np.array([0]), np.array([0]))
    assert point_means(later, 0) == []

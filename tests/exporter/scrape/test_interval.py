"""The collect interval is estimated from changes of values."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import Gpu, Quantity, Samples
from exporter.scrape.interval import STOPPED_AFTER, USUAL_S, CollectInterval

Q = Quantity
GPUS = (Gpu("a"), Gpu("b"))


def observed(interval_s, scrape_s, pages, quantity=Q.GPU_ENERGY, phase_s=0.0, gpus=GPUS, beats=None):
    """Returns the estimator after pages every `scrape_s` whose values change every `interval_s`."""
    beats = beats or CollectInterval()
    for page in range(pages):
        at = 1000.0 + page * scrape_s
        collection = np.floor((at - phase_s) / interval_s)
        values = np.array([[100.0 * collection + row] for row in range(len(gpus))])
        beats.update(Samples("dcgm", gpus, (quantity,), values, np.full(len(gpus), at)))
    return beats


def test_default_interval_counts_before_an_estimate():
    assert CollectInterval().interval_s == USUAL_S == 30.0
    assert observed(10.0, 5.0, pages=3).interval_s == 30.0


@pytest.mark.parametrize(("interval_s", "expected"), [(30.0, 35.0), (10.0, 15.0), (60.0, 65.0), (1.0, 10.0)])
def test_interval_is_the_gap_between_changes_plus_one_scrape_interval(interval_s, expected):
    # Scraped every 5 s: a change happened within the last 5 s. If values change every second, each page is new.
    assert observed(interval_s, 5.0, pages=100).interval_s == expected


@given(interval_s=st.floats(1.0, 120.0), scrape_s=st.floats(1.0, 60.0), phase_s=st.floats(0.0, 120.0))
def test_no_value_is_older_than_the_interval(interval_s, scrape_s, phase_s):
    enough = 10 + int(10 * interval_s / scrape_s)
    assert observed(interval_s, scrape_s, enough, phase_s=phase_s).interval_s >= interval_s - 1e-6


@pytest.mark.parametrize("quantity", [Q.GPU_POWER, Q.GPU_ENGINE_ACTIVE, Q.GPU_UTILIZATION])
def test_constant_gauge_shows_no_longer_interval(quantity):
    assert observed(300.0, 5.0, pages=1000, quantity=quantity).interval_s == 30.0
    assert observed(10.0, 5.0, pages=100, quantity=quantity).interval_s == 15.0


def test_lost_scrape_or_a_restart_does_not_change_the_estimate():
    beats = observed(10.0, 5.0, pages=100)
    odd = Samples("dcgm", GPUS, (Q.GPU_ENERGY,), np.array([[1e9], [1e9]]), np.full(2, 5000.0))
    beats.update(odd)
    assert beats.interval_s == 15.0


def test_another_list_of_gpus_resets_the_estimate():
    beats = observed(10.0, 5.0, pages=100)
    observed(10.0, 5.0, pages=1, gpus=(Gpu("c"), Gpu("d")), beats=beats)
    assert beats.interval_s == 30.0


def test_new_pod_on_a_gpu_keeps_the_estimate():
    beats = observed(10.0, 5.0, pages=100)
    observed(10.0, 5.0, pages=1, gpus=(Gpu("a", model="H100"), Gpu("b")), beats=beats)
    assert beats.interval_s == 15.0


def test_constant_energy_shows_that_collection_has_stopped():
    beats = observed(10.0, 5.0, pages=100)
    last = 1490.0  # the last change: the last page is of 1495
    assert beats.stopped_at(last + STOPPED_AFTER * 15.0) is None
    assert beats.stopped_at(last + STOPPED_AFTER * 15.0 + 0.1) == last


@pytest.mark.parametrize("quantity", [Q.GPU_POWER, Q.GPU_ENGINE_ACTIVE])
def test_constant_gauge_is_an_idle_gpu(quantity):
    assert observed(10.0, 5.0, pages=100, quantity=quantity).stopped_at(9999.0) is None


def test_counter_that_never_changed_has_not_stopped():
    assert observed(1e9, 5.0, pages=100).stopped_at(9999.0) is None


def test_response_without_gpus_keeps_the_estimate():
    beats = CollectInterval()
    beats.update(Samples("dcgm", (), (), np.empty((0, 0)), np.empty(0)))
    assert (beats.interval_s, beats.stopped_at(1.0)) == (30.0, None)


def test_gap_between_two_equal_values_is_no_change():
    beats = CollectInterval()
    for page in range(60):
        value = np.nan if page % 3 == 1 else 7.0
        beats.update(Samples("dcgm", GPUS[:1], (Q.GPU_ENERGY,), np.array([[value]]), np.array([1000.0 + page])))
    assert beats.interval_s == 30.0

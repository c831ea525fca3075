"""Compares every kernel with its NumPy reference, and tests the invariants of all kernels."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.signals import kernels
from tests.scaler.signals.kernels import reference_kernels

START = 1.7e9  # POSIX seconds, so that floats have the precision of production

# Small integers so that values repeat and counters do not change, floats for everything else, NaN for gaps.
VALUES = st.one_of(st.integers(0, 4).map(float), st.floats(-1e6, 1e6), st.just(float("nan")))
STEPS_S = st.one_of(st.sampled_from([1.0, 15.0]), st.floats(0.05, 3600.0))
SAMPLES = st.lists(st.tuples(STEPS_S, VALUES), max_size=14)
HALF_LIVES_S = st.one_of(st.just(0.0), st.floats(1e-3, 1e12))
WINDOWS_S = st.one_of(st.sampled_from([0.0, 15.0, 60.0]), st.floats(0.0, 1e5))

# The parameters of each kernel over rings, after (times, values, head) and before `now`.
PARAMETERS = {
    "ewma_fast_slow": (HALF_LIVES_S, HALF_LIVES_S),
    "counter_rate": (WINDOWS_S,),
}
EACH_KERNEL = pytest.mark.parametrize("name", list(PARAMETERS))


def series_of(samples):
    """(time, value) from (seconds since the previous sample, value)."""
    at, series = START, []
    for step, value in samples:
        at += step
        series.append((at, value))
    return series


def call(module, name, rings, parameters, now):
    return getattr(module, name)(*rings, *parameters, now)


def assert_alike(expected, actual, rings):
    """Equal up to rounding. A slope may be as steep as all values within the shortest step: 0.05 s."""
    finite = rings[1][np.isfinite(rings[1])]
    largest = np.abs(finite).max(initial=1.0)
    np.testing.assert_allclose(actual, expected, rtol=1e-7, atol=1e-9 * largest)


def draw_parameters(data, name, rows):
    return [np.array(data.draw(st.lists(each, min_size=rows, max_size=rows))) for each in PARAMETERS[name]]


def draw_now(data, tables):
    last = max([START, *(series[-1][0] for series in tables if series)])
    return last + data.draw(st.one_of(st.just(0.0), st.floats(-100.0, 1e4)))


@EACH_KERNEL
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_compiled_kernel_agrees_with_its_reference(rings, name, data):
    tables = [series_of(samples) for samples in data.draw(st.lists(SAMPLES, max_size=4))]
    ring = rings(*tables, length=data.draw(st.integers(1, 8)))  # often shorter than the series: wrapped
    parameters = draw_parameters(data, name, len(tables))
    now = draw_now(data, tables)
    expected = call(reference_kernels, name, ring, parameters, now)
    assert_alike(expected, call(kernels, name, ring, parameters, now), ring)


@EACH_KERNEL
@settings(max_examples=15, deadline=None)
@given(st.data())
def test_gap_changes_no_result(rings, name, data):
    series = series_of(data.draw(SAMPLES))
    without = [(at, value) for at, value in series if not np.isnan(value)]
    parameters = draw_parameters(data, name, 1)
    now = draw_now(data, [series])
    expected = call(kernels, name, rings(without), parameters, now)
    np.testing.assert_array_equal(call(kernels, name, rings(series), parameters, now), expected)


@EACH_KERNEL
@settings(max_examples=15, deadline=None)
@given(st.data())
def test_full_ring_drops_its_oldest_values(rings, name, data):
    series = series_of(data.draw(SAMPLES))
    length = data.draw(st.integers(1, 8))
    parameters = draw_parameters(data, name, 1)
    now = draw_now(data, [series])
    expected = call(kernels, name, rings(series[-length:]), parameters, now)
    wrapped = rings(series, length=length)
    np.testing.assert_array_equal(call(kernels, name, wrapped, parameters, now), expected)


@EACH_KERNEL
@settings(max_examples=15, deadline=None)
@given(st.data())
def test_rows_are_independent(rings, name, data):
    tables = [series_of(samples) for samples in data.draw(st.lists(SAMPLES, min_size=2, max_size=4))]
    parameters = draw_parameters(data, name, len(tables))
    now = draw_now(data, tables)
    together = call(kernels, name, rings(*tables), parameters, now)
    alone = call(kernels, name, rings(tables[-1]), [each[-1:] for each in parameters], now)
    np.testing.assert_array_equal(together[-1:], alone)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_repeated_sample_changes_no_average(rings, data):
    """The duration of a value counts, not the number of its samples."""
    name = "ewma_fast_slow"
    series = series_of(data.draw(SAMPLES))
    halfway = [((a[0] + b[0]) / 2, a[1]) for a, b in pairwise(series)]
    parameters = draw_parameters(data, name, 1)
    now = draw_now(data, [series])
    once = rings(series, length=32)
    expected = call(kernels, name, once, parameters, now)
    assert_alike(expected, call(kernels, name, rings(sorted(series + halfway), length=32), parameters, now), once)


@EACH_KERNEL
@pytest.mark.parametrize("series", [[], [(START, float("nan")), (START + 1.0, float("nan"))]])
def test_ring_without_values_returns_nan(rings, row, name, series):
    result = call(kernels, name, rings(series), [row(0.5)] * len(PARAMETERS[name]), START + 2.0)
    assert np.isnan(result).all()


@EACH_KERNEL
def test_unknown_parameter_returns_nan(rings, row, name):
    ring = rings([(START, 1.0), (START + 1.0, 2.0)])
    result = call(kernels, name, ring, [row("nan")] * len(PARAMETERS[name]), START + 2.0)
    assert np.isnan(result).all()


@EACH_KERNEL
def test_no_rows_return_an_empty_array(rings, name):
    result = call(kernels, name, rings(), [np.empty(0)] * len(PARAMETERS[name]), START)
    assert result.shape == (0,)


@EACH_KERNEL
def test_arrays_of_unequal_rows_are_refused(rings, row, name):
    times, values, head = rings([(START, 1.0)], [(START, 1.0)])
    for ring in ((times, values[:1], head), (times, values[:, :1].copy(), head), (times, values, head[:1])):
        with pytest.raises(ValueError, match=name):
            call(kernels, name, ring, [np.ones(2)] * len(PARAMETERS[name]), START)
    with pytest.raises(ValueError, match=name):
        call(kernels, name, (times, values, head), [row(1.0)] * len(PARAMETERS[name]), START)


@EACH_KERNEL
def test_frozen_and_broadcast_arrays_are_accepted(rings, name):
    ring = rings([(START, 1.0)], [(START, 1.0), (START + 1.0, 3.0)])
    parameters = [np.ones(2)] * len(PARAMETERS[name])
    expected = call(kernels, name, ring, parameters, START + 2.0)
    for array in ring:
        array.flags.writeable = False
    broadcast = [np.broadcast_to(1.0, 2)] * len(PARAMETERS[name])
    np.testing.assert_array_equal(call(kernels, name, ring, broadcast, START + 2.0), expected)

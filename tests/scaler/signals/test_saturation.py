"""Tests the sums of work at saturation, response by response."""

from math import isnan, nan

import numpy as np
import pytest

from scaler.signals.saturation import KEPT_S, EngineDevice, SaturationMeter

SMALL = EngineDevice("NVIDIA A100-SXM4-40GB", "1g.5gb")


def after_half_a_second():
    """One engine that exposes no prompt tokens, finishes no request and generates 10 tokens in 0.5 s."""
    meter = SaturationMeter(1)
    for at, generated in ((100.0, 20.0), (100.5, 30.0)):
        meter.land(0, 3, at, SMALL, np.array([5.0, nan, generated]))
    return meter


def test_half_a_second_without_a_finished_request_counts():
    (sums,) = after_half_a_second().of(0, now=101.0)
    assert (sums.kind, sums.seconds, sums.requests, sums.generated) == (SMALL, 0.5, 0.0, 10.0)
    assert isnan(sums.prompt)


def test_time_without_a_counter_that_was_exposed_is_left_out():
    meter = SaturationMeter(1)
    for at, prompt, generated in ((0.0, 100.0, 10.0), (5.0, 150.0, 20.0), (10.0, nan, 30.0), (15.0, 250.0, 40.0)):
        meter.land(0, 3, at, SMALL, np.array([5.0, prompt, generated]))
    meter.land(0, 3, 20.0, SMALL, np.array([5.0, 300.0, 50.0]))
    (sums,) = meter.of(0, now=20.0)
    assert (sums.seconds, sums.generated) == (pytest.approx(10.0, rel=1e-4), pytest.approx(20.0, rel=1e-4))
    assert sums.prompt == pytest.approx(100.0, rel=1e-4)


def test_sums_begin_anew_with_a_counter_more():
    meter = after_half_a_second()
    for at, prompt in ((101.0, 100.0), (103.0, 150.0)):
        meter.land(0, 3, at, SMALL, np.array([5.0, prompt, 40.0]))
    (sums,) = meter.of(0, now=103.0)
    assert (sums.seconds, sums.prompt, sums.generated) == (2.0, 50.0, 0.0)


def test_sums_that_are_too_old_are_no_bar_to_others():
    meter = SaturationMeter(1)
    for at, prompt in ((0.0, 100.0), (5.0, 150.0), (5.0 + KEPT_S, nan), (10.0 + KEPT_S, nan)):
        meter.land(0, 3, at, SMALL, np.array([5.0, prompt, at]))
    (sums,) = meter.of(0, now=10.0 + KEPT_S)
    assert (sums.seconds, sums.generated) == (5.0, 5.0)
    assert isnan(sums.prompt)


def test_sums_that_were_written_are_sound():
    meter = after_half_a_second()
    written = {name: column.copy() for name, column in meter.columns().items()}
    meter.make_sound(np.array([0]))
    for name, column in meter.columns().items():
        np.testing.assert_array_equal(column, written[name], err_msg=name)

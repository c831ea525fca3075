"""Tests the sums of work at saturation, response by response."""

from math import isnan, nan

import numpy as np

from scaler.signals.saturation import EngineDevice, SaturationMeter

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


def test_sums_that_were_written_are_sound():
    meter = after_half_a_second()
    written = {name: column.copy() for name, column in meter.columns().items()}
    meter.make_sound(np.array([0]))
    for name, column in meter.columns().items():
        np.testing.assert_array_equal(column, written[name], err_msg=name)

"""Compares the kernel with its plain-Python reference over random histories."""

from __future__ import annotations

from math import nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.policy import batch
from scaler.policy.batch import DEFAULTS, BatchConstants, BatchInputs, JobEstimate
from tests.budget import examples
from tests.scaler.policy.batch import reference_batch

START = 1.7e9  # POSIX seconds, so that floats have the precision of production
UNKNOWN = st.just(nan)
COUNTS = st.integers(0, 200).map(float)
REPLICAS = st.integers(0, 20).map(float)
MOMENTS = st.tuples(
    # Looks are a tick apart. A rate over 0.1 us is beyond what a checkpoint may say (`batch.LARGEST`).
    st.sampled_from([1.0, 5.0, 10.0]) | st.floats(-100.0, 3000.0).map(lambda step: round(step, 3)),
    st.integers(-30, 60),  # jobs by which the queue changes
    COUNTS | UNKNOWN,
    st.integers(-5, 30),  # … and the counter of finished ones
    REPLICAS,
    st.integers(0, 10).map(float),  # replicas that are wanted besides
    st.just(0.0) | REPLICAS | UNKNOWN,
)
NAMES = {
    JobEstimate.SERVICE: lambda each: each.service,
    JobEstimate.ARRIVALS: lambda each: each.rates.arrivals,
    JobEstimate.STREAM: lambda each: each.stream,
    JobEstimate.AT_A_TIME: lambda each: each.at_a_time,
    JobEstimate.START_LEFT: lambda each: each.start_left,
    JobEstimate.NEED: lambda each: each.need,
    JobEstimate.SIZE: lambda each: each.size,
    JobEstimate.REVERSALS: lambda each: each.reversals,
}
CONSTANTS = st.just(DEFAULTS) | st.builds(
    BatchConstants, noise=st.sampled_from([0.0, 2.0]), shortest_hold_s=st.sampled_from([0.0, 60.0])
)


@given(
    st.sampled_from([30.0, 300.0, 3600.0]), st.booleans(), st.booleans(), st.floats(1.0, 600.0),
    st.lists(MOMENTS, min_size=1, max_size=60), CONSTANTS,
)  # fmt: skip
@settings(max_examples=examples(200))
def test_kernel_equals_the_reference(within, is_visible, has_counter, start, moments, constants):
    estimates, reference, now, waiting, finished = batch.blank(1), reference_batch.Queue(constants), START, 50.0, 0.0
    for step, change, running, done, ready, more, pending in moments:
        now, waiting, finished = now + step, max(waiting + change, 0.0), max(finished + done, 0.0)
        running_now, finished_now = running if is_visible else nan, finished if has_counter else nan
        readings = (waiting, running_now, finished_now, ready, ready + more, pending, start)
        columns = (np.array([each]) for each in readings)
        batch.update(estimates, np.array([within]), BatchInputs(*columns), now, 15.0, constants)
        reference.update(within, *readings, 15.0, now)
        for estimate, of in NAMES.items():
            assert estimates[0, estimate] == pytest.approx(of(reference), rel=1e-6, abs=1e-6, nan_ok=True), estimate
    assert (batch.made_sound(estimates) == estimates)[~np.isnan(estimates)].all()

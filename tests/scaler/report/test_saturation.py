"""Throughputs at saturation become speeds on slices only if they can be compared."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.report.mig import find
from scaler.report.profile import SliceThroughput
from scaler.report.saturation import LEAST_S, speeds_of
from scaler.report.slice_speed import (
    SpeedEvidence,
    from_ratio,
    lack,
    predict,
    ratio_bounds,
    share,
    slice_bounds,
    slowed,
)

A100 = find("A100-40GB")
PARTS = {profile.name: share(A100, profile) for profile in A100.profiles[1:]}
PAIRS = [(one, other) for one in PARTS for other in PARTS if lack(PARTS[one]) < lack(PARTS[other])]
WHOLE = SliceThroughput("NVIDIA A100-SXM4-40GB", "", 2000.0, "tokens", 2.0, 600.0)
SLICE = WHOLE._replace(profile="3g.20gb", rate=1300.0)


def test_speed_is_the_ratio_of_the_throughputs():
    assert speeds_of([WHOLE, SLICE], A100).slices == {"3g.20gb": 0.65}
    media = SLICE._replace(profile="1g.5gb+me", rate=500.0)
    assert speeds_of([WHOLE, media], A100).slices == {"1g.5gb": 0.25}


@pytest.mark.parametrize(("change", "note"), [
    ({"gpu": "NVIDIA H100 80GB HBM3"}, "3g.20gb of NVIDIA H100 80GB HBM3: not an A100-40GB"),
    ({"profile": "3g.40gb"}, "3g.40gb of NVIDIA A100-SXM4-40GB: no profile of an A100-40GB"),
    ({"seconds": LEAST_S - 1}, "saturated for 299 s, 300 s are needed"),
    ({"rate": 0.0}, "no work was done"),
    ({"rate": 2300.0}, "3g.20gb: faster than 7g.40gb"),
    ({"unit": "requests"}, "3g.20gb: other requests than on 7g.40gb"),
    ({"prompt_per_unit": 2.6}, "3g.20gb: other requests than on 7g.40gb"),
    ({"prompt_per_unit": None}, "3g.20gb: other requests than on 7g.40gb"),
])  # fmt: skip
def test_throughput_that_does_not_compare_is_left_out_with_the_reason(change, note):
    found = speeds_of([WHOLE, SLICE._replace(**change)], A100)
    assert not found.slices
    assert note in " ".join(found.notes)


def test_slices_without_a_whole_gpu_are_relative_to_each_other():
    other = SLICE._replace(profile="1g.5gb", rate=400.0)
    found = speeds_of([other, SLICE], A100)
    assert (found.slices, found.relative, found.notes) == ({}, {"3g.20gb": 1300.0, "1g.5gb": 400.0}, ())
    assert not speeds_of([SLICE], A100).relative


@given(busy=st.floats(0.1, 1.5), pair=st.sampled_from(PAIRS), target=st.sampled_from([*PARTS]))
def test_ratio_of_a_workload_that_follows_the_curve_gives_its_speeds_back(busy, pair, target):
    first, second = (PARTS[name] for name in pair)
    speeds = slowed(busy, first), slowed(busy, second)
    if speeds[0] < 1.0:
        assert from_ratio(first, second, speeds[1] / speeds[0], PARTS[target]) == pytest.approx(
            slowed(busy, PARTS[target])
        )


@given(
    speed=st.floats(0.0, 1.0), part=st.floats(0.0, 1.0), pair=st.sampled_from(PAIRS), target=st.sampled_from([*PARTS])
)
def test_bounds_of_a_ratio_hold_what_any_speed_with_that_ratio_allows(speed, part, pair, target):
    """A workload with some speed on the first slice, and on the second one what the first one's bounds allow."""
    first, second = (PARTS[name] for name in pair)
    on_first = min(first) + (1.0 - min(first)) * speed
    low, high = slice_bounds(first, on_first, second)
    ratio = (low + (high - low) * part) / on_first
    bounds = ratio_bounds(first, second, ratio, PARTS[target])
    assert 0.0 < bounds[0] <= bounds[1] <= 1.0
    if target == pair[0]:
        assert bounds[0] - 0.01 <= on_first <= bounds[1] + 0.01


def test_prediction_from_a_ratio_says_so_and_has_bounds():
    found = predict(A100, A100.profiles[3], SpeedEvidence(relative={"3g.20gb": 1300.0, "1g.5gb": 650.0}))
    assert (found.basis, found.measured) == ("ratio of slices", False)
    assert found.low < found.value < found.high


@pytest.mark.parametrize("relative", [{"7g.40gb": 1.0}, {"3g.40gb": 1.0}, {"3g.20gb": 0.0}, {"3g.20gb": float("nan")}])
def test_impossible_throughput_is_refused(relative):
    with pytest.raises(ValueError, match=r"^relative"):
        predict(A100, A100.profiles[1], SpeedEvidence(relative=relative))

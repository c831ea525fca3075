"""Speed on a slice: the curve, its bands and bounds, and what evidence does not support."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.report.mig import MODELS, find
from scaler.report.slice_speed import (
    BETWEEN,
    MPS,
    ONE_SLICE,
    GpuActivity,
    SliceShare,
    SpeedEvidence,
    activity_bounds,
    busy_part,
    from_activity,
    from_slices,
    lack,
    predict,
    share,
    slice_bounds,
    slowed,
)

A100, H100 = find("A100-40GB"), find("H100-80GB")
PROFILES = {profile.name: profile for profile in A100.profiles}
SHARES = {name: share(A100, profile) for name, profile in PROFILES.items()}
SLICES = [name for name in PROFILES if name != "7g.40gb"]
speeds = st.floats(0.02, 1.0)


def on(name, evidence, model=A100):
    return predict(model, next(profile for profile in model.profiles if profile.name == name), evidence)


def test_worked_example_of_the_module():
    speed = on("1g.5gb", SpeedEvidence({"3g.20gb": 0.70}))
    assert speed.value == pytest.approx(0.268, abs=0.001)
    assert (speed.basis, speed.measured) == ("one slice", True)
    assert (speed.low, speed.high) == pytest.approx((0.268 - 0.137, 0.268 + 0.137), abs=0.001)


def test_shares_are_of_sms_and_not_of_compute_slices():
    assert SHARES["3g.20gb"] == pytest.approx((3 / 7, 1 / 2))
    assert share(H100, H100.profiles[2]) == pytest.approx((60 / 132, 1 / 2))


def test_whole_gpu_and_measured_slices_need_no_prediction():
    evidence = SpeedEvidence({"2g.10gb": 0.4})
    assert on("7g.40gb", evidence)[:4] == (1.0, 1.0, 1.0, "whole")
    assert on("2g.10gb", evidence)[:4] == (0.4, 0.4, 0.4, "measured")


def test_without_evidence_the_speed_is_not_known():
    assert on("3g.20gb", SpeedEvidence()) is None
    assert on("3g.20gb", SpeedEvidence(activity=GpuActivity(0.9, None, 0.3))) is None
    assert on("3g.20gb", SpeedEvidence(mps={7: 0.2, 80: 0.9})) is None  # percentages that were not measured
    assert on("3g.20gb", SpeedEvidence(mps={14: 0.97})) is None  # the host is the bottleneck
    assert on("1g.10gb", SpeedEvidence(mps={14: 0.4}), H100) is None  # another GPU


@pytest.mark.parametrize(("model", "measured", "target"), [
    (H100, {"3g.40gb": 0.7}, "1g.10gb"),  # another GPU model
    (A100, {"3g.20gb": 0.7}, "1g.10gb"),  # a profile that was not measured
    (A100, {"3g.20gb": 0.96}, "1g.5gb"),  # no loss on the measured slice: nothing follows for a smaller one
])  # fmt: skip
def test_outside_what_was_measured_a_band_is_bounds(model, measured, target):
    speed = on(target, SpeedEvidence(measured), model)
    assert not speed.measured
    assert speed.low <= speed.value <= speed.high
    assert speed.high - speed.low > 0.1


def test_slice_without_loss_still_supports_larger_ones():
    assert on("4g.20gb", SpeedEvidence({"3g.20gb": 0.96})).measured


def test_two_slices_enclose_the_one_between():
    evidence = {"3g.20gb": 0.8, "1g.5gb": 0.2}
    speed = on("2g.10gb", SpeedEvidence(evidence))
    alone = [from_slices({SHARES[name]: value}, SHARES["2g.10gb"]) for name, value in evidence.items()]
    assert speed.basis == "two slices"
    assert min(alone) < speed.value < max(alone)


def test_narrowest_measured_band_wins_over_bounds_and_wider_bands():
    everything = SpeedEvidence({"4g.20gb": 0.7}, {14: 0.3}, GpuActivity(0.9, 0.8, 0.4))
    assert on("1g.5gb", everything).basis == "mps"
    assert on("3g.20gb", everything).basis == "one slice"
    assert on("1g.5gb", SpeedEvidence(activity=everything.activity)).basis == "activity"


def test_activity_is_amdahls_curve_with_a_bandwidth_term():
    # 1 - 0.8 + 0.5 / (3 / 7) + 0.3 / 0.5 = 1.967
    assert from_activity(GpuActivity(0.9, 0.8, 0.3), SHARES["3g.20gb"]) == pytest.approx(1 / 1.967, abs=1e-3)
    assert from_activity(GpuActivity(0.9, 0.0, 0.0), SHARES["1g.5gb"]) == 1.0
    assert not on("3g.20gb", SpeedEvidence(activity=GpuActivity(0.9, 0.8, 0.3))).measured


@given(engine=st.floats(0, 1), dram=st.floats(0, 1), sm=st.floats(0, 1), name=st.sampled_from(SLICES))
def test_activity_bounds_are_ordered_and_hold_the_estimate(engine, dram, sm, name):
    dram, sm = min(dram, engine), min(sm, engine)
    low, high = activity_bounds(GpuActivity(engine, sm, dram), SHARES[name])
    speed = on(name, SpeedEvidence(activity=GpuActivity(engine, sm, dram)))
    assert 0.0 < low <= high <= 1.0
    assert low <= speed.value <= high


@given(speed=speeds, names=st.lists(st.sampled_from(SLICES), min_size=2, max_size=2, unique=True))
def test_bounds_are_ordered_and_a_smaller_slice_is_never_faster(speed, names):
    measured, target = (SHARES[name] for name in names)
    low, high = slice_bounds(measured, speed, target)
    assert 0.0 < low <= high + 1e-12
    if lack(target) > lack(measured):
        assert high <= speed + 1e-12
    else:
        assert low >= speed - 1e-12


@given(busy=st.floats(0.02, 1.5), names=st.lists(st.sampled_from(SLICES), min_size=2, max_size=2, unique=True))
def test_workload_that_follows_the_curve_is_predicted_exactly_where_it_loses(busy, names):
    measured, target = (SHARES[name] for name in names)
    speed = slowed(busy, measured)
    if speed < 1.0:
        assert busy_part(speed, lack(measured)) == pytest.approx(busy)
        assert from_slices({measured: speed}, target) == pytest.approx(slowed(busy, target))


@given(speed=speeds, target=st.sampled_from(SLICES), measured=st.sampled_from(SLICES))
def test_prediction_falls_with_the_measured_speed_and_with_the_slice(speed, target, measured):
    if target != measured:
        slower = from_slices({SHARES[measured]: speed * 0.9}, SHARES[target])
        assert slower <= from_slices({SHARES[measured]: speed}, SHARES[target]) + 1e-12
    predictions = [from_slices({SHARES[measured]: speed}, SHARES[name]) for name in SLICES]
    assert predictions == sorted(predictions, reverse=True)


@pytest.mark.parametrize(("evidence", "message"), [
    (SpeedEvidence({"3g.20gb": 0.0}), "slices.3g.20gb: must be above 0 and at most 1.1, got 0.0"),
    (SpeedEvidence({"3g.20gb": 1.2}), "slices.3g.20gb: must be above 0 and at most 1.1, got 1.2"),
    (SpeedEvidence({"3g.40gb": 0.5}), "slices.3g.40gb: must be a profile of the GPU"),
    (SpeedEvidence(mps={140: 0.5}), "mps: a percentage must be above 0 and at most 100, got 140"),
    (SpeedEvidence(mps={14: float("nan")}), "mps.14: must be above 0 and at most 1.1, got nan"),
    (SpeedEvidence(activity=GpuActivity(0.5, 1.5, 0.2)), "activity.sm: must be from 0 to 1, got 1.5"),
])  # fmt: skip
def test_impossible_evidence_is_refused_with_key_bound_and_value(evidence, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        on("1g.5gb", evidence)


def test_bands_are_of_profiles_of_the_measured_model():
    assert ONE_SLICE.keys() | BETWEEN.keys() | MPS.keys() <= PROFILES.keys()
    assert all(measured not in targets for measured, targets in ONE_SLICE.items())


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_profiles_of_each_model_are_ordered_by_what_they_lack(model):
    lacks = [lack(share(model, profile)) for profile in model.profiles]
    assert lacks == sorted(lacks)
    assert lack(SliceShare(1.0, 1.0)) == lacks[0] == 0.0

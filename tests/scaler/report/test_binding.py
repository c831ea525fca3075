"""A verdict follows from signals that move together, always with its evidence, and never from what is unknown."""

from math import isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.report.binding import CAUSES, Verdict, judge
from scaler.signals.usage import Distribution, Usage
from tests.scaler.report.conftest import HOUR_S, make, steady

GIB = 2.0**30
BUSY = {"ENGINE": 0.95, "CEILING": 1.0, "RUNNING_ALL": 8.0, "WAITING": 0.0}
PIPES = {"SM": 0.6, "OCCUPANCY": 0.4, "TENSOR": 0.2, "DRAM": 0.3}
MEMORY = {"MEMORY": 70 * GIB, "MEMORY_TOTAL": 80 * GIB}

SIGNALS = {
    Verdict.COMPUTE: {**BUSY, "SM": 0.9, "TENSOR": 0.6, "DRAM": 0.3},
    Verdict.MEMORY_BANDWIDTH: {**BUSY, "SM": 0.9, "TENSOR": 0.1, "DRAM": 0.7, "KV_CACHE": 0.5},
    Verdict.MEMORY_CAPACITY: {**BUSY, **PIPES, "KV_CACHE": 0.95, "PREEMPTED": 0.2, "REQUESTS": 2.0, "QUEUED_FULL": 0.0},
    Verdict.INPUT_STARVATION: {**BUSY, "ENGINE": 0.2, "SM": 0.1, "TENSOR": 0.05, "DRAM": 0.05},
    Verdict.LAUNCH_OVERHEAD: {**BUSY, "SM": 0.3, "OCCUPANCY": 0.1, "TENSOR": 0.05, "DRAM": 0.1},
    Verdict.INTERCONNECT: {**BUSY, **PIPES, "PCIE": 25e9},
    Verdict.IDLE: {"ENGINE": 0.002, "RUNNING_ALL": 0.0, "WAITING": 0.0, "busy": 0.001},
    Verdict.OVERSIZED: {**BUSY, "SM": 0.4, "TENSOR": 0.1, "DRAM": 0.28, "MEMORY": 9 * GIB, "MEMORY_TOTAL": 80 * GIB},
    Verdict.UNDERSIZED: {**BUSY, **PIPES, "WAITING": 12.0, "QUEUED_FULL": 0.4},
    # An embedder of 0.6 B parameters that holds 7 GiB and never fills its KV cache.
    Verdict.OVERSIZED_MEMORY: {**BUSY, **PIPES, "KV_CACHE": 0.02, "MEMORY": 7 * GIB, "MEMORY_TOTAL": 23 * GIB},
    Verdict.AMBIGUOUS: {**BUSY, **PIPES},
    Verdict.UNMEASURED: {"ENGINE": 0.95, "CEILING": 1.0},
}


def without_unknown(numbers):
    return {name: value for name, value in numbers.items() if value is not None}


@pytest.mark.parametrize("verdict", Verdict)
def test_each_verdict_follows_from_its_signals(profile, verdict):
    found = judge(profile(**SIGNALS[verdict]))
    assert (found.verdict, found.main.cause) == (verdict, CAUSES[verdict])
    assert found.main.evidence
    assert all(
        any(letter.isdigit() for letter in sentence) or "not exposed" in sentence for sentence in found.main.evidence
    )


def test_two_full_resources_are_ambiguous_with_the_evidence_of_both(profile):
    found = judge(profile(**{**BUSY, "TENSOR": 0.6, "DRAM": 0.7}))
    assert found.verdict is Verdict.AMBIGUOUS
    assert [sentence.partition(":")[0] for sentence in found.main.evidence] == [
        "compute",
        "memory_bandwidth",
        "memory_bandwidth",
    ]


def test_queue_before_full_gpus_is_undersized_and_says_what_is_full(profile):
    found = judge(profile(**{**BUSY, "TENSOR": 0.6, "DRAM": 0.2, "WAITING": 20.0, "QUEUED_FULL": 0.5}))
    assert (found.verdict, [str(each.verdict) for each in found.also]) == (Verdict.UNDERSIZED, ["compute"])
    assert "50 % of the time (p95 20 waiting)" in found.main.evidence[0]


def test_an_hour_of_work_a_day_is_judged_by_that_hour(profile):
    # 0.65 while busy, 4 % of the time: the mean over the day is 0.026.
    dram = Distribution(0.026, 0.65, 0.7, (0.0, 0.0, 0.0, 0.0, 0.65), HOUR_S, 0.04 * HOUR_S)
    engine = Distribution(0.08, 0.95, 1.0, (0.0, 0.0, 0.0, 0.0, 0.95), HOUR_S, 0.08 * HOUR_S)
    assert judge(profile(ENGINE=engine, DRAM=dram)).verdict is Verdict.MEMORY_BANDWIDTH


def test_high_activity_without_pipes_is_no_verdict_and_names_the_missing_fields(profile):
    found = judge(profile(ENGINE=1.0, RUNNING_ALL=3.0, WAITING=0.0, CEILING=1.0))
    assert found.verdict is Verdict.UNMEASURED
    assert any("DCGM_FI_PROF_SM_ACTIVE" in signal for signal in found.missing)


def test_low_activity_of_a_slice_at_its_ceiling_is_no_starvation(profile):
    slice_of_three = {**BUSY, "ENGINE": 0.33, "CEILING": 1 / 3, "TENSOR": 0.1, "DRAM": 0.2}
    assert judge(profile(**slice_of_three)).verdict is not Verdict.INPUT_STARVATION
    assert judge(profile(**{**slice_of_three, "CEILING": 1.0})).verdict is Verdict.INPUT_STARVATION


def test_low_activity_without_requests_may_be_pauses(profile):
    assert judge(profile(ENGINE=0.3, CEILING=1.0, TENSOR=0.1, DRAM=0.1)).verdict is Verdict.AMBIGUOUS


def test_low_occupancy_beside_full_tensor_pipes_is_no_launch_overhead(profile):
    assert (
        judge(profile(**{**BUSY, "SM": 0.95, "OCCUPANCY": 0.15, "TENSOR": 0.6, "DRAM": 0.2})).verdict is Verdict.COMPUTE
    )


def test_reserved_cache_of_a_workload_with_a_queue_or_preemptions_is_not_oversized(profile):
    signals = SIGNALS[Verdict.OVERSIZED_MEMORY]
    for change in ({"WAITING": 3.0}, {"PREEMPTED": 0.1, "REQUESTS": 1.0}):
        found = judge(profile(**{**signals, **change}))
        assert Verdict.OVERSIZED_MEMORY not in {found.verdict, *(each.verdict for each in found.also)}


def test_nothing_measured_is_not_known(profile):
    found = judge(profile())
    assert (found.verdict, len(found.missing)) == (Verdict.UNMEASURED, 9)


ratio = st.none() | st.floats(0.0, 1.0)
NUMBERS = st.fixed_dictionaries({
    **dict.fromkeys(("ENGINE", "SM", "OCCUPANCY", "TENSOR", "DRAM", "KV_CACHE", "QUEUED_FULL"), ratio),
    **{name: st.none() | st.floats(0.0, 100.0) for name in ("RUNNING_ALL", "WAITING", "REQUESTS", "PREEMPTED")},
    "MEMORY": st.none() | st.floats(0.0, 80 * GIB), "MEMORY_TOTAL": st.none() | st.just(80 * GIB),
    "PCIE": st.none() | st.floats(0.0, 1e11), "CEILING": st.none() | st.just(1.0),
})  # fmt: skip


@given(NUMBERS, st.floats(0.0, 1.0))
def test_no_verdict_is_without_evidence_from_what_is_known(numbers, busy):
    profile = make(busy, **without_unknown(numbers))
    found = judge(profile)
    for each in (found.main, *found.also):
        assert each.evidence
        assert not any("nan" in sentence for sentence in each.evidence)
    if found.verdict is Verdict.MEMORY_BANDWIDTH:
        assert not isnan(profile.of(Usage.DRAM).busy_mean)
    if found.verdict in (Verdict.INPUT_STARVATION, Verdict.LAUNCH_OVERHEAD):
        assert not isnan(profile.of(Usage.ENGINE).busy_mean)


def verdicts(found):
    return {found.verdict, *(each.verdict for each in found.also)}


@given(NUMBERS, st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_more_of_a_full_resource_never_takes_its_evidence_away(numbers, one, other):
    low, high = sorted((one, other))
    for name, verdict in (("TENSOR", "compute"), ("DRAM", "memory_bandwidth"), ("QUEUED_FULL", "undersized")):
        # Idle workloads are judged first: this one works.
        base = {**without_unknown(numbers), "ENGINE": 0.9}
        if name == "TENSOR":
            base["SM"] = 0.5  # below what counts as full by itself
        less, more = judge(make(1.0, **{**base, name: low})), judge(make(1.0, **{**base, name: high}))

        def shows(found, verdict=verdict):
            return verdict in verdicts(found) or any(each.startswith(f"{verdict}:") for each in found.main.evidence)

        assert shows(more) or not shows(less)


def test_steady_signal_is_its_own_mean():
    assert steady(0.5).busy_mean == 0.5

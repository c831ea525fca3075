"""The ranking of GPU models for one workload."""

import re
from dataclasses import replace
from math import ceil, inf, nan
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.policy.prices import PriceList
from scaler.report.candidates import RunningWorkload, SloVerdict, rank_gpus
from scaler.report.gpus import Figure, parse
from scaler.report.speed import MeasuredTime, Prediction
from scaler.report.work import GpuWork

MODELS = parse((Path(__file__).parents[3] / "scaler/report/gpus.yaml").read_text(encoding="utf-8"), "gpus.yaml")
H100 = "H100 80GB HBM3"
PRICES = PriceList({H100: 6.88, "H200": 10.44, "B200": 6.69})


def at(gigabytes, tera):
    """8 ms fixed, 0.5 ms per GB, 1 ms per TFLOP: 20 ms at 20 GB and 2 TFLOP."""
    return MeasuredTime(GpuWork(gigabytes * 1e9, tera * 1e12), (8 + 0.5 * gigabytes + tera) / 1000)


WORKLOAD = RunningWorkload(
    "NVIDIA H100 80GB HBM3", gpus=1, memory=60e9, precision="fp8", batch=60.0, now=at(20, 2),
    history=tuple(at(gigabytes, tera) for gigabytes in (10, 20, 40) for tera in (1, 2, 4)),
    tokens=10_000.0, requests=50.0, objective=0.025,
)  # fmt: skip


def options(workload=WORKLOAD, models=MODELS, prices=PRICES):
    return {option.gpu: option for option in rank_gpus(workload, models, prices)}


def test_the_present_gpu_has_its_measured_time_and_cost():
    row = options()[H100]
    # 60 requests / 20 ms = 3000 tokens/s, of which 2400 are used: ceil(10000 / 2400) = 5 replicas of 6.88.
    assert row.is_present
    assert row.serving.seconds == Prediction(0.020, 0.020, 0.020)
    assert row.serving.tokens_per_replica.value == pytest.approx(3000.0)
    assert row.serving.replicas == Prediction(5.0, 5.0, 5.0)
    assert row.serving.cost_per_hour.value == pytest.approx(34.40)
    assert row.serving.cost_per_million_tokens.value == pytest.approx(34.40 / 3600 / 10_000 * 1e6)
    assert row.serving.cost_per_million_requests.value == pytest.approx(34.40 / 3600 / 50 * 1e6)
    assert row.serving.objective is SloVerdict.MET
    assert row.evidence == ("measured: 20.0 ms",)


def test_another_gpu_has_replicas_and_costs_of_both_ends_of_its_band():
    serving = options()["B200"].serving
    for seconds, replicas, hour in zip(serving.seconds, serving.replicas, serving.cost_per_hour, strict=True):
        assert replicas == ceil(10_000 * seconds / 60 / 0.8)
        assert hour == pytest.approx(replicas * 6.69)
    assert serving.tokens_per_replica.low == pytest.approx(60 / serving.seconds.high)


def test_a_row_names_its_evidence():
    evidence = options()["H200"].evidence
    assert "fit of 9 points, off by" in evidence[1]
    assert evidence[2] == "fixed 39%, memory 49%, arithmetic 12% of the time"  # 40, 50, 10 without the ridge
    assert any("4.80 TB/s, NVIDIA H200 Tensor Core GPU datasheet" in each for each in evidence)
    assert not any("not among the measured" in each for each in evidence)
    assert options()["H100 NVL"].evidence[-1] == ("H100 NVL is not among the measured GPUs, its generation hopper is")


def test_a_gpu_without_enough_memory_is_out_and_says_how_much_it_lacks():
    row = options()["L4"]
    # 23034 MiB * 0.9 = 21.7 GB; 60 GB / 21.7 GB are 2.76 GPUs.
    assert (row.fits, row.serving, row.least_gpus) == (False, None, 3)
    assert row.reasons == ("memory: needs 60.0 GB on each of 1, has 21.7 GB with margin",)


def test_a_gpu_that_was_not_measured_fits_but_its_speed_is_not_known():
    row = options()["AMD MI300X"]
    assert (row.fits, row.serving) == (True, None)
    assert row.reasons == ("no measurement of the same workload on nvidia and amd",)


@pytest.mark.parametrize(
    ("objective", "verdict"),
    [(None, None), (0.001, SloVerdict.NOT_MET), (0.017, SloVerdict.UNDECIDED), (1.0, SloVerdict.MET)],
)
def test_an_objective_within_the_band_is_not_known_to_be_met(objective, verdict):
    assert options(replace(WORKLOAD, objective=objective))["H200"].serving.objective is verdict


def test_rows_are_ranked_by_what_is_known_and_met_and_then_by_cost():
    order = [SloVerdict.MET, SloVerdict.UNDECIDED, SloVerdict.NOT_MET]

    def key(option):
        serving = option.serving
        if serving is None:
            return (3 if option.fits else 4, 0.0)
        cost = serving.cost_per_hour
        return (order.index(serving.objective), cost.value if cost else float("inf"))

    ranked = rank_gpus(replace(WORKLOAD, objective=0.015), MODELS, PRICES)
    assert list(map(key, ranked)) == sorted(map(key, ranked))
    assert {key(option)[0] for option in ranked} == {1, 2, 3, 4}  # not known, not met, unknown speed, out
    # The B200 takes 13.1 ms, at most 18.2: it meets 21 ms as the measured H100 does, with 3 replicas for 20.07 dollars
    # an hour instead of 5 for 34.40. The B300 has the same replicas, and its public list price is 7.89.
    ranked = rank_gpus(replace(WORKLOAD, objective=0.021), MODELS, PRICES)
    assert [option.gpu for option in ranked[:3]] == ["B200", "B300", H100]
    assert list(map(key, ranked)) == sorted(map(key, ranked))


def test_a_gpu_without_a_price_has_a_speed_and_no_cost():
    row = options()["GH200"]
    assert row.serving.cost_per_hour is None
    assert row.serving.cost_per_million_tokens is None
    assert row.reasons == ("no price of a GPU-hour",)


def test_a_workload_without_traffic_keeps_one_replica_and_has_no_cost_per_token():
    row = options(replace(WORKLOAD, tokens=0.0, requests=None))[H100]
    assert row.serving.replicas.value == 1.0
    assert row.serving.cost_per_hour.value == pytest.approx(6.88)
    assert row.serving.cost_per_million_tokens is None
    assert row.serving.cost_per_million_requests is None


def test_a_device_outside_of_the_table_keeps_its_measured_row_and_moves_nowhere():
    rows = options(replace(WORKLOAD, device="NVIDIA X99"))
    assert rows["NVIDIA X99"].serving.seconds.value == 0.020
    assert rows["NVIDIA X99"].reasons[0] == "NVIDIA X99 is not in the table of GPUs"
    assert rows["H200"].reasons == ("NVIDIA X99, where it was measured, is not in the table of GPUs",)


def test_a_short_history_moves_nowhere_and_says_so():
    rows = options(replace(WORKLOAD, history=WORKLOAD.history[:2]))
    assert rows["H200"].reasons == ("the history has 2 usable points, needs 4",)
    assert rows[H100].serving is not None


def test_a_replica_of_several_gpus_needs_a_comparable_interconnect():
    several = replace(WORKLOAD, gpus=2)
    assert options(several)["H200"].serving is not None
    assert options(several)["GH200"].reasons == ("GH200 has no interconnect in the table, a replica has 2 GPUs",)
    slow = {**MODELS, "H200": replace(MODELS["H200"], interconnect=Figure(64e9, "PCIe"))}
    assert options(several, slow)["H200"].reasons == (
        "interconnect changes by a factor of 0.07, measured were 0.50 to 2.00",
    )


def test_a_larger_gpu_says_that_fewer_would_hold_a_replica():
    reasons = options(replace(WORKLOAD, gpus=2))["H200"].reasons
    assert reasons == ("1 would hold a replica; the speed with fewer GPUs is not known",)


def test_a_row_without_memory_is_not_known_to_fit():
    row = options(models={**MODELS, "H200": replace(MODELS["H200"], memory=None)})["H200"]
    assert (row.fits, row.serving, row.reasons) == (None, None, ("H200 has no memory in the table",))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"memory": nan}, "RunningWorkload.memory: must be above 0 and finite, got nan"),
        ({"memory": inf}, "RunningWorkload.memory: must be above 0 and finite, got inf"),
        ({"gpus": 0}, "RunningWorkload.gpus: must be above 0 and finite, got 0"),
        ({"batch": -1.0}, "RunningWorkload.batch: must be above 0 and finite, got -1"),
        ({"tokens": nan}, "RunningWorkload.tokens: must be at least 0 and finite, got nan"),
        ({"headroom": 1.0}, "RunningWorkload.headroom: must be at least 0 and below 1 and finite, got 1"),
        ({"now": MeasuredTime(GpuWork(1, 1), nan)}, "RunningWorkload.now.seconds: must be above 0 and finite, got nan"),
    ],
)
def test_a_number_that_is_missing_is_an_error_and_never_a_ranking(change, error):
    with pytest.raises(ValueError, match=re.escape(error)):
        replace(WORKLOAD, **change)


@given(st.permutations(list(MODELS)))
def test_the_order_of_the_table_is_of_no_effect(names):
    assert rank_gpus(WORKLOAD, {name: MODELS[name] for name in names}, PRICES) == rank_gpus(WORKLOAD, MODELS, PRICES)


@given(st.floats(0.0, 1e6), st.floats(1.0, 1000.0), st.floats(0.0, 0.9))
def test_every_band_contains_its_value(tokens, batch, headroom):
    workload = replace(WORKLOAD, tokens=tokens, batch=batch, headroom=headroom)
    for option in rank_gpus(workload, MODELS, PRICES):
        for estimate in option.serving or ():
            if isinstance(estimate, Prediction):
                assert estimate.low <= estimate.value <= estimate.high


def test_every_gpu_of_the_table_has_exactly_one_row():
    assert sorted(option.gpu for option in rank_gpus(WORKLOAD, MODELS, PRICES)) == sorted(MODELS)

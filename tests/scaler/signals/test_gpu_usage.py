"""GPU quantities are means over what is known, and counters of engines are rates between two responses."""

from __future__ import annotations

import numpy as np
import pytest

from exporter.model import Gpu, Quantity
from scaler.signals.gpu_usage import USAGE_WIDTH, GpuUsage, count_rates, gpu_columns, of_gpus, weights_of

NAN, COUNT = float("nan"), len(GpuUsage)


def responses(*moments):
    """The rates of preemptions after each of these responses: (POSIX seconds, counter; None: not exposed)."""
    usage, found = np.full(USAGE_WIDTH, NAN), []
    for at, counter in moments:
        count_rates(usage, {} if counter is None else {Quantity.PREEMPTIONS: counter}, at)
        rate, weight = usage[GpuUsage.PREEMPTED], usage[COUNT + GpuUsage.PREEMPTED]
        assert weight == (0.0 if np.isnan(rate) else 1.0)
        found.append(float(rate))
    return found


def test_counter_becomes_a_rate_between_two_responses_and_may_restart_at_zero():
    np.testing.assert_equal(responses((1000.0, 7.0), (1005.0, 17.0), (1010.0, 17.0), (1012.0, 4.0)), [NAN, 2, 0, 2])


def test_rate_is_unknown_without_a_counter_before_and_now_and_if_no_time_has_passed():
    np.testing.assert_equal(responses((1000.0, 7.0), (1005.0, None), (1010.0, 8.0), (1015.0, 18.0)), [NAN] * 3 + [2])
    np.testing.assert_equal(responses((1000.0, 7.0), (1000.0, 17.0), (999.0, 27.0)), [NAN] * 3)


def test_each_counter_of_an_engine_has_its_column():
    usage, quantities = np.full(USAGE_WIDTH, NAN), [
        Quantity.PREEMPTIONS, Quantity.QUEUED_COUNT, Quantity.QUEUED_SECONDS, Quantity.SERVED_COUNT,
        Quantity.SERVED_SECONDS,
    ]  # fmt: skip
    count_rates(usage, dict.fromkeys(quantities, 0.0), 1000.0)
    count_rates(usage, {quantity: float(number) for number, quantity in enumerate(quantities, 1)}, 1001.0)
    assert usage[GpuUsage.PREEMPTED : GpuUsage.SERVED_SECONDS + 1].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_gpu_that_exposes_nothing_has_no_weight_and_a_slice_weighs_by_its_share(samples):
    text = (
        'DCGM_FI_PROF_SM_ACTIVE{UUID="G-1",modelName="NVIDIA A100-SXM4-40GB"} 0.4\n'
        'DCGM_FI_DEV_FB_USED{UUID="G-1",modelName="NVIDIA A100-SXM4-40GB"} 1\n'
        'DCGM_FI_DEV_FB_USED{UUID="G-2",modelName="NVIDIA A100-SXM4-40GB"} 3\n'
    )
    response = samples(text, "dcgm")
    columns = gpu_columns(response)
    assert columns[:, GpuUsage.MEMORY].tolist() == [2.0**20, 3 * 2.0**20]
    whole = of_gpus(columns, range(2), weights_of(response.subjects))
    assert (whole[GpuUsage.SM], whole[COUNT + GpuUsage.SM]) == (pytest.approx(0.4), 1.0)  # as in the module's text
    assert (whole[GpuUsage.MEMORY], whole[COUNT + GpuUsage.MEMORY]) == (4 * 2.0**20, 2.0)
    assert (whole[GpuUsage.TENSOR], whole[COUNT + GpuUsage.TENSOR]) == (0.0, 0.0)
    part = of_gpus(columns, [0], weights_of([Gpu("G-1", "3", "3g.20gb", "NVIDIA A100-SXM4-40GB")]))
    assert part[COUNT + GpuUsage.SM] == pytest.approx(3.0 / 7.0)
    assert part[GpuUsage.SM] == pytest.approx(0.4 * 3.0 / 7.0)
    assert part[COUNT + GpuUsage.MEMORY] == 1.0
    assert np.isnan(of_gpus(columns, [], weights_of([]))).all()

"""Invalid values are unknown: DCGM's marks, glitches, NaN, and lines that are no samples."""

from math import isnan

import pytest

from exporter.model import Dropped, Quantity

Q = Quantity
INT64_MARKS = [9223372036854775792 + n for n in range(4)]
INT32_MARKS = [2147483632 + n for n in range(4)]
FP64_MARKS = [f"{140737488355328 + n}.000000" for n in range(4)]


@pytest.mark.parametrize("mark", [*INT64_MARKS, *INT32_MARKS, *FP64_MARKS])
@pytest.mark.parametrize(
    ("field", "quantity"),
    [
        ("DCGM_FI_DEV_GPU_UTIL", Q.GPU_UTILIZATION),
        ("DCGM_FI_DEV_FB_USED", Q.GPU_MEMORY_USED),
        ("DCGM_FI_DEV_POWER_USAGE", Q.GPU_POWER),
        ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", Q.GPU_ENGINE_ACTIVE),
        ("DCGM_FI_DEV_XID_ERRORS", Q.GPU_XID),
    ],
)
def test_mark_for_no_value_is_unknown_and_dropped_with_its_reason(read, cell, mark, field, quantity):
    samples = read(f'{field}{{UUID="g"}} {mark}\n')
    assert isnan(cell(samples, "g", quantity))
    ((number, reason),) = samples.dropped
    assert number == 1
    assert reason.startswith(f"{field}: ")
    assert reason.endswith("is DCGM's 'no value' mark")


def test_dropped_mark_has_its_field_and_line(read):
    samples = read(
        """
        DCGM_FI_DEV_SM_CLOCK{gpu="0", UUID="g"} 139
        ...
        DCGM_FI_DEV_MEMORY_TEMP{gpu="0", UUID="g"} 9223372036854775794
        """
    )
    assert len(samples.subjects) == 1
    assert samples.dropped[-1] == Dropped(3, "DCGM_FI_DEV_MEMORY_TEMP: 9.22e18 is DCGM's 'no value' mark")
    assert [line for line, _ in samples.dropped] == [2, 3]


@pytest.mark.parametrize("mark", [INT64_MARKS[0], INT32_MARKS[0], FP64_MARKS[0], "NaN"])
def test_fields_that_are_not_used_are_checked_too(read, mark):
    assert len(read(f'DCGM_FI_DEV_VIDEO_CLOCK{{UUID="g"}} {mark}\n').dropped) == 1


def test_counter_may_count_to_an_int32_mark(read, cell):
    samples = read(
        """
        # TYPE DCGM_FI_DEV_PCIE_REPLAY_COUNTER counter
        DCGM_FI_DEV_PCIE_REPLAY_COUNTER{UUID="g"} 2147483632
        DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{UUID="g"} 2147483632
        """
    )
    assert samples.dropped == ()
    assert cell(samples, "g", Q.GPU_ENERGY) == 2147483.632


@pytest.mark.parametrize("mark", [INT64_MARKS[0], *FP64_MARKS])
def test_counter_with_a_larger_mark_is_unknown(read, cell, mark):
    samples = read(f'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{UUID="g"}} {mark}\n')
    assert isnan(cell(samples, "g", Q.GPU_ENERGY))
    assert [dropped.reason[-14:] for dropped in samples.dropped] == ["no value' mark"]


@pytest.mark.parametrize("glitch", ["1000", "4294967295", "101", "-1"])
def test_glitch_of_utilization_is_dropped_with_its_range(read, cell, glitch):
    samples = read(f'DCGM_FI_DEV_GPU_UTIL{{UUID="a"}} {glitch}\nDCGM_FI_DEV_GPU_UTIL{{UUID="b"}} 40\n')
    assert isnan(cell(samples, "a", Q.GPU_UTILIZATION))
    assert cell(samples, "b", Q.GPU_UTILIZATION) == 0.4
    assert samples.dropped == (Dropped(1, f"DCGM_FI_DEV_GPU_UTIL: {glitch} is outside 0..100"),)


@pytest.mark.parametrize("value", ["1.6", "-0.1"])
def test_impossible_ratio_is_dropped(read, cell, value):
    samples = read(f'DCGM_FI_PROF_GR_ENGINE_ACTIVE{{UUID="g"}} {value}\n')
    assert isnan(cell(samples, "g", Q.GPU_ENGINE_ACTIVE))
    assert samples.dropped == (Dropped(1, f"DCGM_FI_PROF_GR_ENGINE_ACTIVE: {value} is outside 0..1.5"),)


def test_nan_is_no_value(read, cell):
    samples = read('DCGM_FI_DEV_POWER_USAGE{UUID="g"} NaN\n')
    assert isnan(cell(samples, "g", Q.GPU_POWER))
    assert samples.dropped == (Dropped(1, "DCGM_FI_DEV_POWER_USAGE: no value (NaN)"),)


def test_line_that_is_no_sample_costs_only_itself(read, cell):
    samples = read(
        """
        DCGM_FI_DEV_POWER_USAGE{UUID="g"} ERROR - FAILED TO CONVERT TO STRING
        DCGM_FI_DEV_GPU_TEMP{UUID="g"} 41
        """
    )
    assert isnan(cell(samples, "g", Q.GPU_POWER))
    assert cell(samples, "g", Q.GPU_TEMPERATURE) == 41.0
    assert [line for line, _ in samples.dropped] == [1]


def test_mark_does_not_affect_another_gpu(read, cell):
    samples = read('DCGM_FI_DEV_FB_USED{UUID="a"} 9223372036854775794\nDCGM_FI_DEV_FB_USED{UUID="b"} 10\n')
    assert isnan(cell(samples, "a", Q.GPU_MEMORY_USED))
    assert cell(samples, "b", Q.GPU_MEMORY_USED) == 10 * 2.0**20


@pytest.mark.parametrize("value", ["-1", "NaN", "+Inf"])
def test_impossible_queue_is_unknown_and_not_zero(read, cell, value):
    samples = read(f'vllm:num_requests_waiting{{model_name="m"}} {value}\n')
    assert isnan(cell(samples, "m", Q.REQUESTS_WAITING))
    assert len(samples.dropped) == 1


def test_lines_of_other_families_make_no_gap(read):
    samples = read('vllm:num_requests_waiting{model_name="m"} 1\nprocess_max_fds NaN\nvllm:cpu_cache_usage_perc -1\n')
    assert samples.dropped == ()

"""A failure costs as little as possible: a field, a GPU, or the reading if the driver is gone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import Attribution, Failure, FailureKind, Quantity, Samples
from exporter.sources.nvml.library import Cost, NvmlCode, cost_of, describe

FUNCTIONS = [
    "nvmlDeviceGetHandleByIndex",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetName",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",
    "nvmlGpmQueryDeviceSupport",
    "nvmlGpmSampleGet",
]
GPU_CODES = [NvmlCode.GPU_IS_LOST, NvmlCode.RESET_REQUIRED, NvmlCode.TIMEOUT, NvmlCode.GPU_NOT_FOUND]


def known_quantities(samples, row):
    return {quantity for quantity in samples.quantities if not np.isnan(samples.column(quantity)[row])}


@pytest.fixture
def two(fake, proc):
    proc.runs(11, "chat-0")
    return fake.FakeNvml([fake.FakeGpu(gpm=True, pids=(11,)), fake.FakeGpu("GPU-2", gpm=True, power=99_000)])


@pytest.mark.parametrize("code", GPU_CODES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_gpu_lost_at_any_call_affects_no_other_gpu(node, two, function, code):
    read = node(two).read
    read(0.0)
    two.gpus[0].refuse[function] = code

    samples = read(5.0)

    assert [gpu.uuid for gpu in samples.subjects] == ["GPU-1", "GPU-2"]
    assert known_quantities(samples, 0) <= {Quantity.GPU_LOST}
    assert samples.column(Quantity.GPU_POWER)[1] == 99.0
    assert Quantity.GPU_LOST not in known_quantities(samples, 1)
    (dropped,) = samples.dropped
    assert dropped.reason.startswith("GPU 0 (GPU-1): ")
    assert code.name in dropped.reason


def test_lost_gpu_keeps_its_last_attribution(node, two):
    read = node(two).read
    before = read(0.0).subjects[0]
    two.gpus[0].lost = True

    after = read(5.0).subjects[0]

    assert (before.attribution, len(before.pods)) == (Attribution.EXCLUSIVE, 1)
    assert after == before


@pytest.mark.parametrize(
    ("code", "dead"),
    [
        (NvmlCode.GPU_IS_LOST, True),
        (NvmlCode.RESET_REQUIRED, True),
        (NvmlCode.TIMEOUT, False),
        (NvmlCode.GPU_NOT_FOUND, False),
    ],
)
def test_broken_gpu_is_lost_and_a_slow_one_is_not(node, two, code, dead):
    read = node(two).read
    read(0.0)
    two.gpus[0].refuse["nvmlDeviceGetPowerUsage"] = code

    assert known_quantities(read(5.0), 0) == ({Quantity.GPU_LOST} if dead else set())


def test_recovered_gpu_is_not_lost(node, two):
    read = node(two).read
    two.gpus[0].refuse["nvmlDeviceGetPowerUsage"] = [NvmlCode.GPU_IS_LOST]
    read(0.0)

    assert Quantity.GPU_LOST not in known_quantities(read(5.0), 0)


def test_gpu_that_never_answered_has_a_reason_and_no_row(node, two):
    two.gpus[0].refuse["nvmlDeviceGetHandleByIndex"] = NvmlCode.NO_PERMISSION

    samples = node(two).read(0.0)

    assert [gpu.uuid for gpu in samples.subjects] == ["GPU-2"]
    assert samples.dropped[0].reason.startswith("GPU 0: handle: NO_PERMISSION: ")


def test_gpu_that_timed_out_gets_no_further_calls(node, two):
    read = node(two).read
    read(0.0)
    two.gpus[0].refuse["nvmlDeviceGetPowerUsage"] = NvmlCode.TIMEOUT
    two.gpus[0].calls.clear()

    read(5.0)

    assert two.gpus[0].calls[-1] == "nvmlDeviceGetPowerUsage"


def test_all_gpus_unreachable_is_a_failure_with_every_reason(node, two):
    for gpu in two.gpus:
        gpu.refuse["nvmlDeviceGetHandleByIndex"] = NvmlCode.GPU_IS_LOST

    failure = node(two).read(0.0)

    assert failure.kind is FailureKind.EMPTY
    assert "GPU 0: handle: GPU_IS_LOST" in failure.detail
    assert "GPU 1: handle: GPU_IS_LOST" in failure.detail


def test_node_without_gpus_is_not_an_idle_node(fake, node):
    assert node(fake.FakeNvml([])).read(0.0) == Failure(FailureKind.EMPTY, "NVML: no GPU is visible in this container")


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (NvmlCode.LIBRARY_NOT_FOUND, "runtimeClassName: nvidia"),
        (NvmlCode.DRIVER_NOT_LOADED, "kernel module"),
        (NvmlCode.LIB_RM_VERSION_MISMATCH, "restart the pod"),
        (NvmlCode.NO_PERMISSION, "device files"),
        (NvmlCode.UNKNOWN, "kernel log"),
        (14, "NVML error 14"),
    ],
)
def test_failure_to_open_the_driver_has_a_remedy(fake, node, code, advice):
    failure = node(fake.FakeNvml([fake.FakeGpu()], refuse={"nvmlInit": code})).read(0.0)

    assert failure.kind is FailureKind.REFUSED
    assert advice in failure.detail


def test_timeout_of_the_driver_is_a_timeout(fake, node):
    failure = node(fake.FakeNvml([fake.FakeGpu()], refuse={"nvmlDeviceGetCount": NvmlCode.TIMEOUT})).read(0.0)

    assert failure.kind is FailureKind.TIMEOUT


def test_driver_that_appears_later_is_opened(fake, node):
    library = fake.FakeNvml([fake.FakeGpu()], refuse={"nvmlInit": [NvmlCode.DRIVER_NOT_LOADED]})
    read = node(library).read

    assert isinstance(read(0.0), Failure)
    assert isinstance(read(5.0), Samples)


@pytest.mark.parametrize("code", [NvmlCode.UNINITIALIZED, NvmlCode.DRIVER_NOT_LOADED, NvmlCode.LIB_RM_VERSION_MISMATCH])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_lost_driver_costs_the_reading_and_is_reopened(node, two, function, code):
    read = node(two).read
    read(0.0)
    two.gpus[0].refuse[function] = [code]

    gone, again = read(5.0), read(10.0)

    assert (gone.kind, again.kind) == (FailureKind.REFUSED, "nvml")
    assert two.inits == 2


def test_driver_is_opened_once(node, two):
    read = node(two).read

    for at in (0.0, 5.0, 1000.0):
        read(at)

    assert two.inits == 1


def test_driver_is_reopened_every_five_minutes_for_a_lost_gpu(node, two):
    read = node(two).read
    two.gpus[0].lost = True

    for at in range(0, 900, 5):
        read(float(at))

    assert two.inits == 3


def test_close_frees_the_driver_and_its_samples(node, two):
    reader = node(two)
    reader.read(0.0)
    reader.close()
    reader.close()

    assert (two.is_open, two.allocated) == (False, 0)


def test_driver_that_refuses_to_close_is_reopened(node, two):
    reader = node(two)
    reader.read(0.0)
    two.refuse["nvmlShutdown"] = NvmlCode.UNKNOWN

    reader.close()

    assert len(reader.read(5.0).subjects) == 2
    assert two.inits == 2


CODES = [*NvmlCode, 2, 14, 20, 23, 12345]


@given(data=st.data())
def test_no_refusal_raises_an_exception_or_affects_the_other_gpu(fake, read_of, data):
    parts = [fake.FakeInstance(1, "1g.5gb", pids=(11,))] if data.draw(st.booleans()) else None
    gpu = fake.FakeGpu(gpm=True, pids=(11, 12), parts={11: 5}, mig=parts)
    library = fake.FakeNvml([gpu, fake.FakeGpu("GPU-2")])
    read = read_of(library)
    for at in (0.0, 5.0, 10.0):
        gpu.refuse = data.draw(st.dictionaries(st.sampled_from(FUNCTIONS), st.sampled_from(CODES[1:]), max_size=4))
        answer = read(at)
        gone = any(cost_of(code) is Cost.READING for code in gpu.refuse.values())
        assert isinstance(answer, Samples) or gone
        if isinstance(answer, Samples):
            assert answer.values.shape == (len(answer.subjects), len(answer.quantities))
            assert answer.column(Quantity.GPU_POWER)[-1] == 70.0
        assert library.allocated <= 2


@given(st.integers())
def test_every_code_has_a_description_and_a_cost(code):
    assert describe(code)
    assert cost_of(code) in Cost

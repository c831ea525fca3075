"""Our names and constants are those of the real library; a missing library is an error with a remedy."""

import importlib.util
import inspect
import sys

import pytest

from exporter.model import Samples
from exporter.sources.nvml import Library, NotInstalled, Nvml, installed
from exporter.sources.nvml.device import GPM_METRICS, GPM_VERSION, MEMORY_V2, MIG_ON, TEMPERATURE_GPU
from exporter.sources.nvml.library import NvmlCode

real = pytest.mark.skipif(
    importlib.util.find_spec("pynvml") is None, reason="nvidia-ml-py is not installed (pip install 'tidegate[nvml]')"
)
NAMES = sorted(name for name in vars(Library) if "vml" in name.lower() and not name.startswith("_"))


@real
@pytest.mark.parametrize("name", NAMES)
def test_every_name_exists_in_the_real_library_with_the_same_number_of_arguments(name):
    ours, theirs = getattr(Library, name), getattr(installed(), name)

    if inspect.isfunction(ours):
        assert len(inspect.signature(ours).parameters) - 1 == len(inspect.signature(theirs).parameters)


def test_fake_has_every_name(fake):
    assert [name for name in NAMES if not hasattr(fake.FakeNvml, name)] == []


@real
def test_return_codes_equal_those_of_the_real_library():
    prefix = "NVML_ERROR_"
    theirs = {name: getattr(installed(), f"{prefix}{name}") for name in NvmlCode.__members__ if name != "SUCCESS"}

    assert theirs == {code.name: code.value for code in NvmlCode if code is not NvmlCode.SUCCESS}
    assert installed().NVMLError(NvmlCode.GPU_IS_LOST).value == NvmlCode.GPU_IS_LOST


@real
def test_constants_equal_those_of_the_real_library():
    library = installed()

    assert list(GPM_METRICS.values()) == [
        library.NVML_GPM_METRIC_GRAPHICS_UTIL,
        library.NVML_GPM_METRIC_SM_UTIL,
        library.NVML_GPM_METRIC_SM_OCCUPANCY,
        library.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
        library.NVML_GPM_METRIC_DRAM_BW_UTIL,
    ]
    assert GPM_VERSION == library.NVML_GPM_METRICS_GET_VERSION
    assert (
        library.nvmlMemory_v2,
        library.NVML_TEMPERATURE_GPU,
        library.NVML_DEVICE_MIG_ENABLE,
    ) == (MEMORY_V2, TEMPERATURE_GPU, MIG_ON)


@real
def test_counter_request_has_the_real_fields():
    request = installed().c_nvmlGpmMetricsGet_t()
    request.version, request.numMetrics = GPM_VERSION, len(GPM_METRICS)
    for index, metric in enumerate(GPM_METRICS.values()):
        request.metrics[index].metricId = metric

    assert [request.metrics[index].metricId for index in range(5)] == [1, 2, 3, 5, 10]
    assert (request.metrics[0].nvmlReturn, request.metrics[0].value) == (0, 0.0)


@real
async def test_real_library_returns_samples_or_a_failure():
    nvml = Nvml(installed(), {}.get, timeout_s=30.0)

    answer = await nvml.samples(1000.0)
    await nvml.close()

    assert isinstance(answer, Samples) or answer.detail.startswith("NVML: ")


def test_error_of_a_missing_library_has_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)

    with pytest.raises(NotInstalled, match="pip install 'tidegate"):
        installed()

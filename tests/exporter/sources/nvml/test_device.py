"""The values of a GPU are read in our units; unsupported values are unknown."""

from math import isnan, nan

import pytest

from exporter.model import Gpu, Quantity
from exporter.sources.nvml.library import NvmlCode

MIB, GIB = 1 << 20, 1 << 30
BOARD = (Quantity.GPU_POWER, Quantity.GPU_ENERGY, Quantity.GPU_TEMPERATURE)


def of(samples, quantity):
    return samples.column(quantity).tolist()


def known_quantities(samples, row=0):
    return {quantity for quantity in samples.quantities if not isnan(samples.column(quantity)[row])}


def test_every_number_is_in_its_quantitys_unit(fake, node):
    gpu = fake.FakeGpu(util=37, used=3 * GIB, total=80 * GIB, power=71_234, energy=5_500, temperature=41)

    samples = node(fake.FakeNvml([gpu])).read(1000.0)

    assert samples.kind == "nvml"
    assert samples.subjects == (Gpu("GPU-1", model="NVIDIA H100 80GB HBM3"),)
    assert of(samples, Quantity.GPU_MEMORY_USED) == [3.0 * GIB]
    assert of(samples, Quantity.GPU_MEMORY_TOTAL) == [80.0 * GIB]
    assert of(samples, Quantity.GPU_POWER) == pytest.approx([71.234])
    assert of(samples, Quantity.GPU_ENERGY) == pytest.approx([5.5])
    assert of(samples, Quantity.GPU_TEMPERATURE) == [41.0]
    assert samples.at.tolist() == [1000.0]


def test_utilisation_is_a_ratio(fake, node, proc):
    proc.runs(11)
    library = fake.FakeNvml([fake.FakeGpu(util=37, pids=(11,))])

    assert of(node(library).read(1000.0), Quantity.GPU_UTILIZATION) == [0.37]


def test_used_memory_excludes_the_drivers_reserve(fake, node):
    library = fake.FakeNvml([fake.FakeGpu(used=GIB, reserved=600 * MIB)])

    assert of(node(library).read(0.0), Quantity.GPU_MEMORY_USED) == [1.0 * GIB]


@pytest.mark.parametrize("code", [NvmlCode.FUNCTION_NOT_FOUND, NvmlCode.ARGUMENT_VERSION_MISMATCH])
def test_memory_of_an_older_driver_is_read_with_the_older_call(fake, node, code):
    gpu = fake.FakeGpu(used=GIB, reserved=600 * MIB, refuse={"nvmlDeviceGetMemoryInfo_v2": code})

    samples = node(fake.FakeNvml([gpu])).read(0.0)

    assert of(samples, Quantity.GPU_MEMORY_USED) == [1.0 * GIB + 600 * MIB]
    assert samples.dropped == ()


FIELDS = {
    "nvmlDeviceGetUtilizationRates": {Quantity.GPU_UTILIZATION},
    "nvmlDeviceGetMemoryInfo_v2": {Quantity.GPU_MEMORY_USED, Quantity.GPU_MEMORY_TOTAL},
    "nvmlDeviceGetPowerUsage": {Quantity.GPU_POWER},
    "nvmlDeviceGetTotalEnergyConsumption": {Quantity.GPU_ENERGY},
    "nvmlDeviceGetTemperature": {Quantity.GPU_TEMPERATURE},
    "nvmlDeviceGetName": set(),
    "nvmlDeviceGetMigMode": set(),
    "nvmlGpmQueryDeviceSupport": set(),
    "nvmlDeviceGetComputeRunningProcesses_v3": set(),
}


@pytest.mark.parametrize("function", FIELDS)
def test_unsupported_field_is_unknown_and_not_reported(fake, node, function):
    whole = known_quantities(node(fake.FakeNvml([fake.FakeGpu()])).read(0.0))

    samples = node(fake.FakeNvml([fake.FakeGpu(refuse={function: NvmlCode.NOT_SUPPORTED})])).read(0.0)

    assert known_quantities(samples) == whole - FIELDS[function]
    assert samples.dropped == ()


@pytest.mark.parametrize("function", FIELDS)
@pytest.mark.parametrize(
    ("code", "text"), [(NvmlCode.NO_PERMISSION, "NO_PERMISSION"), (NvmlCode.UNKNOWN, "UNKNOWN"), (23, "23")]
)
def test_refused_field_is_unknown_and_reported(fake, node, function, code, text):
    whole = known_quantities(node(fake.FakeNvml([fake.FakeGpu()])).read(0.0))

    samples = node(fake.FakeNvml([fake.FakeGpu(refuse={function: code})])).read(0.0)

    assert known_quantities(samples) == whole - FIELDS[function]
    (dropped,) = samples.dropped
    assert dropped.line == 1
    assert dropped.reason.startswith("GPU 0 (GPU-1): ")
    assert text in dropped.reason


def test_gpu_without_any_value_is_a_row(fake, node):
    gpu = fake.FakeGpu(refuse=dict.fromkeys(FIELDS, NvmlCode.NOT_SUPPORTED))

    samples = node(fake.FakeNvml([gpu])).read(0.0)

    assert [subject.uuid for subject in samples.subjects] == ["GPU-1"]
    assert known_quantities(samples) == set()


def test_utilization_of_a_fresh_driver_without_processes_is_dropped(fake, node):
    read = node(fake.FakeNvml([fake.FakeGpu(util=99)])).read

    first, later = read(1000.0), read(1010.0)

    assert isnan(first.column(Quantity.GPU_UTILIZATION)[0])
    assert "clears memory" in first.dropped[0].reason
    assert of(later, Quantity.GPU_UTILIZATION) == [0.99]
    assert later.dropped == ()


def test_idle_gpu_is_idle_from_the_first_reading(fake, node):
    samples = node(fake.FakeNvml([fake.FakeGpu(util=0)])).read(1000.0)

    assert of(samples, Quantity.GPU_UTILIZATION) == [0.0]


def test_utilization_of_a_fresh_driver_with_unknown_processes_is_kept(fake, node):
    refuse = {"nvmlDeviceGetComputeRunningProcesses_v3": NvmlCode.NOT_SUPPORTED}

    samples = node(fake.FakeNvml([fake.FakeGpu(util=99, refuse=refuse)])).read(1000.0)

    assert of(samples, Quantity.GPU_UTILIZATION) == [0.99]


def test_gpu_without_mig_has_no_instances(fake, node):
    samples = node(fake.FakeNvml([fake.FakeGpu(), fake.FakeGpu("GPU-2")])).read(0.0)

    assert [(gpu.uuid, gpu.instance) for gpu in samples.subjects] == [("GPU-1", None), ("GPU-2", None)]
    assert of(samples, Quantity.GPU_ENGINE_ACTIVE) == pytest.approx([nan, nan], nan_ok=True)

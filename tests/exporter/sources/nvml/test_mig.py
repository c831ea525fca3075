"""With MIG, memory belongs to the instances, power to the GPU, and utilization is unknown."""

from math import nan

import pytest

from exporter.model import Attribution, Quantity
from exporter.sources.nvml.library import NvmlCode

GIB = 1 << 30


@pytest.fixture
def split(fake):
    """A GPU with the instances 3g.20gb (number 1) and 1g.5gb (number 9)."""
    return fake.FakeGpu(
        util=50,
        power=90_000,
        mig=[
            fake.FakeInstance(9, "1g.5gb", used=1 * GIB, total=5 * GIB, pids=(12,), uuid="MIG-b"),
            fake.FakeInstance(1, "3g.20gb", used=2 * GIB, total=20 * GIB, pids=(11,), uuid="MIG-a"),
        ],
    )


def column(samples, quantity):
    return pytest.approx(samples.column(quantity).tolist(), nan_ok=True)


def test_each_instance_is_a_row_beside_its_gpu(fake, node, split):
    samples = node(fake.FakeNvml([split])).read(0.0)

    assert [(gpu.uuid, gpu.instance, gpu.profile) for gpu in samples.subjects] == [
        ("GPU-1", None, None),
        ("GPU-1", "1", "3g.20gb"),
        ("GPU-1", "9", "1g.5gb"),
    ]
    assert {gpu.model for gpu in samples.subjects} == {"NVIDIA H100 80GB HBM3"}
    assert samples.dropped == ()


def test_power_energy_and_temperature_belong_to_the_gpu(fake, node, split):
    samples = node(fake.FakeNvml([split])).read(0.0)

    assert column(samples, Quantity.GPU_POWER) == [90.0, nan, nan]
    assert column(samples, Quantity.GPU_ENERGY) == [0.0, nan, nan]
    assert column(samples, Quantity.GPU_TEMPERATURE) == [30.0, nan, nan]


def test_memory_belongs_to_the_instances_and_not_to_the_gpu(fake, node, split):
    samples = node(fake.FakeNvml([split])).read(0.0)

    assert column(samples, Quantity.GPU_MEMORY_USED) == [nan, 2.0 * GIB, 1.0 * GIB]
    assert column(samples, Quantity.GPU_MEMORY_TOTAL) == [nan, 20.0 * GIB, 5.0 * GIB]


def test_utilization_is_unknown_with_mig(fake, node, split):
    samples = node(fake.FakeNvml([split])).read(0.0)

    assert column(samples, Quantity.GPU_UTILIZATION) == [nan, nan, nan]


def test_instance_used_by_one_pod_belongs_to_it(fake, node, proc, split):
    proc.runs(11, "chat-0")
    proc.runs(12, "embed-0")

    _, first, second = node(fake.FakeNvml([split])).read(0.0).subjects

    assert (first.attribution, [pod.pod for pod in first.pods]) == (Attribution.MIG, ["chat-0"])
    assert (second.attribution, [pod.pod for pod in second.pods]) == (Attribution.MIG, ["embed-0"])


def test_compute_instances_of_one_gpu_instance_share_its_memory_and_are_one_row(fake, node, proc):
    proc.runs(11, "chat-0")
    proc.runs(12, "embed-0")
    halves = [
        fake.FakeInstance(1, "1c.2g.10gb", used=GIB, total=10 * GIB, pids=(pid,), uuid=f"MIG-{pid}") for pid in (11, 12)
    ]

    samples = node(fake.FakeNvml([fake.FakeGpu(mig=halves)])).read(0.0)

    _, instance = samples.subjects
    assert (instance.instance, instance.profile) == ("1", "2g.10gb")
    assert column(samples, Quantity.GPU_MEMORY_USED) == [nan, 1.0 * GIB]
    assert (instance.attribution, [pod.pod for pod in instance.pods]) == (Attribution.DEVICE, ["chat-0", "embed-0"])


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "1g.5gb"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb+me", "1g.10gb+me"),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb.me", "1g.10gb.me"),
        ("NVIDIA H200 MIG 2c.3g.71gb", "3g.71gb"),
        ("NVIDIA A30", None),
    ],
)
def test_profile_is_read_from_the_instances_name(fake, node, name, profile):
    part = fake.FakeInstance(1, "", name=name)

    assert node(fake.FakeNvml([fake.FakeGpu(mig=[part])])).read(0.0).subjects[1].profile == profile


def test_gpu_with_mig_and_no_instance_is_one_row(fake, node):
    samples = node(fake.FakeNvml([fake.FakeGpu(mig=[])])).read(0.0)

    assert [gpu.instance for gpu in samples.subjects] == [None]
    assert column(samples, Quantity.GPU_POWER) == [70.0]


def test_utilization_by_process_is_not_read_with_mig(fake, node, proc, split):
    proc.runs(11, "chat-0")
    library = fake.FakeNvml([split])

    node(library).read(0.0)

    assert library.requested_since == []


def test_instance_that_refuses_a_field_keeps_its_row(fake, node, split):
    split.mig[1].refuse["nvmlDeviceGetMemoryInfo_v2"] = NvmlCode.NO_PERMISSION

    samples = node(fake.FakeNvml([split])).read(0.0)

    assert column(samples, Quantity.GPU_MEMORY_USED) == [nan, nan, 1.0 * GIB]
    assert "memory: NO_PERMISSION" in samples.dropped[0].reason


def test_gpu_lost_between_two_instances_is_lost_with_all_instances(fake, node, split):
    split.mig[0].refuse["nvmlDeviceGetGpuInstanceId"] = [None, NvmlCode.GPU_IS_LOST]
    library = fake.FakeNvml([split])
    reader = node(library)

    reader.read(0.0)
    samples = reader.read(5.0)

    assert [gpu.instance for gpu in samples.subjects] == [None, "1", "9"]
    assert column(samples, Quantity.GPU_POWER) == [nan, nan, nan]
    assert column(samples, Quantity.GPU_LOST) == [1.0, 1.0, 1.0]

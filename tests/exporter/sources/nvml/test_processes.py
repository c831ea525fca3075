"""A GPU is attributed to the pods of its processes, and never with a share that was not measured (invariant 9)."""

import pytest

from exporter.model import Attribution, PodKey
from exporter.sources.nvml.library import NvmlCode


@pytest.fixture
def attribute(fake, node, proc):
    """`attribute(pids=(11,))`: the attribution and pod names of a GPU. attribute.reasons: of dropped entries."""

    def read(**gpu):
        library = fake.FakeNvml([fake.FakeGpu(**gpu)])
        samples = node(library).read(1000.0)
        read.reasons = [entry.reason for entry in samples.dropped]
        (subject,) = samples.subjects
        return subject.attribution, [pod.pod for pod in subject.pods]

    proc.runs(11, "chat-0")
    proc.runs(12, "chat-0")
    proc.runs(21, "embed-0")
    proc.runs(31, "stranger-0")
    proc.runs(41)
    return read


def test_gpu_without_processes_has_no_pod(attribute):
    assert attribute(pids=()) == (Attribution.NONE, [])
    assert attribute.reasons == []


def test_all_processes_of_one_pod_make_it_exclusive(attribute):
    assert attribute(pids=(11, 12)) == (Attribution.EXCLUSIVE, ["chat-0"])
    assert attribute.reasons == []


@pytest.mark.parametrize("kind", ["graphics", "mps"])
def test_every_kind_of_process_counts(attribute, kind):
    assert attribute(**{"pids": (11,), kind: (21,)}) == (Attribution.DEVICE, ["chat-0", "embed-0"])


def test_two_pods_share_a_gpu_as_a_device(attribute):
    assert attribute(pids=(11, 21), util=50) == (Attribution.DEVICE, ["chat-0", "embed-0"])


def test_parts_that_add_up_are_attributed_per_process(attribute):
    assert attribute(pids=(11, 12, 21), util=70, parts={11: 30, 12: 20, 21: 20}) == (
        Attribution.PROCESS,
        ["chat-0", "embed-0"],
    )


@pytest.mark.parametrize(
    ("util", "parts"),
    [
        (95, {11: 50, 21: 20}),  # 0.25 of the time is missing
        (70, {11: 70, 21: 70}),  # side by side under MPS: 1.4 of 0.7
        (90, {11: 0, 21: 0}),  # all parts are zero on a busy device
        (90, {}),  # pynvml's error of value 0
        (90, None),  # NOT_FOUND
        (0, {11: 0, 21: 0}),  # no activity, so nothing was measured
        (50, {99: 50}),  # of a process that has ended
    ],
)
def test_parts_that_do_not_add_up_are_not_attributed(attribute, util, parts):
    assert attribute(pids=(11, 21), util=util, parts=parts)[0] == Attribution.DEVICE
    assert attribute.reasons == []


def test_part_above_one_is_dropped(attribute):
    assert attribute(pids=(11, 21), util=30, parts={11: 30, 21: 4294967295})[0] == Attribution.PROCESS


def test_parts_without_the_devices_utilization_are_not_attributed(attribute):
    refuse = {"nvmlDeviceGetUtilizationRates": NvmlCode.NOT_SUPPORTED}

    assert attribute(pids=(11, 21), parts={11: 30, 21: 20}, refuse=refuse)[0] == Attribution.DEVICE


def test_gpu_of_a_pod_and_a_node_process_is_shared(attribute):
    assert attribute(pids=(11, 41)) == (Attribution.DEVICE, ["chat-0"])
    assert attribute.reasons == ["GPU 0 (GPU-1): process 41 is of no pod"]


def test_gpu_of_a_known_and_an_unknown_pod_is_shared(attribute):
    assert attribute(pids=(11, 31)) == (Attribution.DEVICE, ["chat-0"])
    assert attribute.reasons == ["GPU 0 (GPU-1): the name of pod 11111111-2222-3333-4444-555555555555 is unknown"]


def test_reason_of_several_processes_is_reported_once(attribute, proc):
    proc.runs(32, "stranger-0")

    attribute(pids=(31, 32))

    assert attribute.reasons == ["GPU 0 (GPU-1): the name of pod 11111111-2222-3333-4444-555555555555 is unknown"]


def test_gpu_of_unknown_pods_only_has_no_pod(attribute):
    assert attribute(pids=(31, 41)) == (Attribution.NONE, [])


def test_ended_process_is_ignored(attribute):
    assert attribute(pids=(11, 999)) == (Attribution.EXCLUSIVE, ["chat-0"])


def test_unreadable_process_is_of_no_pod(attribute, proc):
    (proc.path / "77" / "cgroup").mkdir(parents=True)  # reading it fails, also for root

    assert attribute(pids=(11, 77)) == (Attribution.DEVICE, ["chat-0"])
    assert attribute.reasons == ["GPU 0 (GPU-1): process 77: Is a directory", "GPU 0 (GPU-1): process 77 is of no pod"]


def test_gpu_with_an_unreadable_process_list_is_shared(attribute):
    refuse = {"nvmlDeviceGetGraphicsRunningProcesses_v3": NvmlCode.UNKNOWN}

    assert attribute(pids=(11,), refuse=refuse) == (Attribution.DEVICE, ["chat-0"])


def test_gpu_without_graphics_or_mps_support_is_exclusive(attribute):
    refuse = {
        "nvmlDeviceGetGraphicsRunningProcesses_v3": NvmlCode.NOT_SUPPORTED,
        "nvmlDeviceGetMPSComputeRunningProcesses_v3": NvmlCode.FUNCTION_NOT_FOUND,
    }

    assert attribute(pids=(11,), refuse=refuse) == (Attribution.EXCLUSIVE, ["chat-0"])
    assert attribute.reasons == []


def test_processes_of_an_older_driver_are_read_with_the_older_call(attribute):
    refuse = {"nvmlDeviceGetComputeRunningProcesses_v3": NvmlCode.FUNCTION_NOT_FOUND}

    assert attribute(pids=(11,), refuse=refuse) == (Attribution.EXCLUSIVE, ["chat-0"])


@pytest.mark.parametrize(
    ("failures", "expected"),
    [(2, (Attribution.EXCLUSIVE, ["chat-0"])), (3, (Attribution.NONE, []))],
)
def test_process_list_that_outgrew_its_buffer_is_read_again(attribute, failures, expected):
    refuse = {"nvmlDeviceGetComputeRunningProcesses_v3": [NvmlCode.INSUFFICIENT_SIZE] * failures}

    assert attribute(pids=(11,), refuse=refuse) == expected


@pytest.mark.parametrize("namespace", ["pid:[4026532198]", None])
def test_reader_in_a_separate_pid_namespace_attributes_nothing(attribute, proc, namespace):
    if namespace is None:
        (proc.path / "self" / "ns" / "pid").unlink()
    else:
        proc.namespace(namespace)

    assert attribute(pids=(11,)) == (Attribution.NONE, [])
    assert "hostPID: true" in attribute.reasons[0]


def test_process_utilization_is_read_only_since_the_last_sample(fake, node, proc):
    proc.runs(11, "chat-0")
    proc.runs(21, "embed-0")
    library = fake.FakeNvml([fake.FakeGpu(util=50, pids=(11, 21), parts={11: 30, 21: 20})])
    read = node(library).read

    read(0.0)
    read(5.0)
    library.gpus[0].parts = None
    read(10.0)
    read(15.0)

    # The fake's samples are of 2 and 3 s, and then there are none.
    assert library.requested_since == [0, 2_000_000, 3_000_000, 3_000_000]


def test_pod_that_becomes_known_later_is_attributed(fake, node, proc):
    proc.runs(11, "chat-0")
    pods = {}
    read = node(fake.FakeNvml([fake.FakeGpu(pids=(11,))]), pods).read

    before = read(0.0).subjects[0].attribution

    pods["d01e4b6f-5a00-11e9-b385-42010a80018d"] = PodKey("ai", "chat-0")

    assert (before, read(5.0).subjects[0].attribution) == (Attribution.NONE, Attribution.EXCLUSIVE)

"""Whose a GPU is, by its processes: law 9, never a share that nobody measured."""

import pytest

from exporter.model import Attribution, PodKey
from exporter.sources.nvml.library import NvmlCode


@pytest.fixture
def whose(fake, node, proc):
    """`whose(pids=(11,))`: the attribution and the pods' names of a GPU, once the driver has run for a while."""

    def read(**gpu):
        library = fake.FakeNvml([fake.FakeGpu(**gpu)])
        samples = node(library).read(1000.0)
        read.published = [entry.reason for entry in samples.dropped]
        (subject,) = samples.subjects
        return subject.attribution, [pod.pod for pod in subject.pods]

    proc.runs(11, "chat-0")
    proc.runs(12, "chat-0")
    proc.runs(21, "embed-0")
    proc.runs(31, "stranger-0")
    proc.runs(41)
    return read


def test_gpu_that_no_process_has_open_is_nobodys(whose):
    assert whose(pids=()) == (Attribution.NONE, [])
    assert whose.published == []


def test_all_processes_of_one_pod_make_it_exclusive(whose):
    assert whose(pids=(11, 12)) == (Attribution.EXCLUSIVE, ["chat-0"])
    assert whose.published == []


@pytest.mark.parametrize("kind", ["graphics", "mps"])
def test_every_kind_of_process_counts(whose, kind):
    assert whose(**{"pids": (11,), kind: (21,)}) == (Attribution.DEVICE, ["chat-0", "embed-0"])


def test_two_pods_share_a_gpu_as_a_device(whose):
    assert whose(pids=(11, 21), util=50) == (Attribution.DEVICE, ["chat-0", "embed-0"])


def test_parts_that_add_up_are_measured_per_process(whose):
    assert whose(pids=(11, 12, 21), util=70, parts={11: 30, 12: 20, 21: 20}) == (
        Attribution.PROCESS,
        ["chat-0", "embed-0"],
    )


@pytest.mark.parametrize(
    ("util", "parts"),
    [
        (95, {11: 50, 21: 20}),  # 0.25 of the time somebody else's
        (70, {11: 70, 21: 70}),  # side by side under MPS: 1.4 of 0.7
        (90, {11: 0, 21: 0}),  # all idle on a busy device
        (90, {}),  # pynvml's error of value 0
        (90, None),  # NOT_FOUND
        (0, {11: 0, 21: 0}),  # nothing was done, so nothing was measured
        (50, {99: 50}),  # by a process that has gone
    ],
)
def test_parts_that_do_not_add_up_are_nobodys_share(whose, util, parts):
    assert whose(pids=(11, 21), util=util, parts=parts)[0] == Attribution.DEVICE
    assert whose.published == []


def test_part_of_more_than_all_the_time_is_not_believed(whose):
    assert whose(pids=(11, 21), util=30, parts={11: 30, 21: 4294967295})[0] == Attribution.PROCESS


def test_parts_of_a_device_that_does_not_say_its_own_are_nobodys_share(whose):
    refuse = {"nvmlDeviceGetUtilizationRates": NvmlCode.NOT_SUPPORTED}

    assert whose(pids=(11, 21), parts={11: 30, 21: 20}, refuse=refuse)[0] == Attribution.DEVICE


def test_process_of_the_node_beside_a_pod_makes_it_shared(whose):
    assert whose(pids=(11, 41)) == (Attribution.DEVICE, ["chat-0"])
    assert whose.published == ["GPU 0 (GPU-1): process 41 is of no pod"]


def test_pod_that_nobody_can_name_beside_one_that_is_named_makes_it_shared(whose):
    assert whose(pids=(11, 31)) == (Attribution.DEVICE, ["chat-0"])
    assert whose.published == ["GPU 0 (GPU-1): the name of pod 11111111-2222-3333-4444-555555555555 is unknown"]


def test_reason_is_told_once_however_many_processes_have_it(whose, proc):
    proc.runs(32, "stranger-0")

    whose(pids=(31, 32))

    assert whose.published == ["GPU 0 (GPU-1): the name of pod 11111111-2222-3333-4444-555555555555 is unknown"]


def test_strangers_alone_are_nobody(whose):
    assert whose(pids=(31, 41)) == (Attribution.NONE, [])


def test_process_that_has_ended_meanwhile_is_forgotten(whose):
    assert whose(pids=(11, 999)) == (Attribution.EXCLUSIVE, ["chat-0"])


def test_process_that_may_not_be_looked_at_is_a_stranger(whose, proc):
    (proc.path / "77" / "cgroup").mkdir(parents=True)  # reading it fails, also for root

    assert whose(pids=(11, 77)) == (Attribution.DEVICE, ["chat-0"])
    assert whose.published == ["GPU 0 (GPU-1): process 77: Is a directory", "GPU 0 (GPU-1): process 77 is of no pod"]


def test_list_that_could_not_be_had_may_hold_others(whose):
    refuse = {"nvmlDeviceGetGraphicsRunningProcesses_v3": NvmlCode.UNKNOWN}

    assert whose(pids=(11,), refuse=refuse) == (Attribution.DEVICE, ["chat-0"])


def test_gpu_without_graphics_or_mps_has_no_such_processes(whose):
    refuse = {
        "nvmlDeviceGetGraphicsRunningProcesses_v3": NvmlCode.NOT_SUPPORTED,
        "nvmlDeviceGetMPSComputeRunningProcesses_v3": NvmlCode.FUNCTION_NOT_FOUND,
    }

    assert whose(pids=(11,), refuse=refuse) == (Attribution.EXCLUSIVE, ["chat-0"])
    assert whose.published == []


def test_older_driver_lists_processes_in_the_older_way(whose):
    refuse = {"nvmlDeviceGetComputeRunningProcesses_v3": NvmlCode.FUNCTION_NOT_FOUND}

    assert whose(pids=(11,), refuse=refuse) == (Attribution.EXCLUSIVE, ["chat-0"])


@pytest.mark.parametrize(
    ("failures", "expected"),
    [(2, (Attribution.EXCLUSIVE, ["chat-0"])), (3, (Attribution.NONE, []))],
)
def test_list_that_outgrew_its_room_is_asked_for_again(whose, failures, expected):
    refuse = {"nvmlDeviceGetComputeRunningProcesses_v3": [NvmlCode.INSUFFICIENT_SIZE] * failures}

    assert whose(pids=(11,), refuse=refuse) == expected


@pytest.mark.parametrize("namespace", ["pid:[4026532198]", None])
def test_in_a_pid_namespace_of_its_own_it_names_nobody(whose, proc, namespace):
    if namespace is None:
        (proc.path / "self" / "ns" / "pid").unlink()
    else:
        proc.namespace(namespace)

    assert whose(pids=(11,)) == (Attribution.NONE, [])
    assert "hostPID: true" in whose.published[0]


def test_processes_are_asked_only_for_what_they_did_since(fake, node, proc):
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
    assert library.asked_since == [0, 2_000_000, 3_000_000, 3_000_000]


def test_pods_may_become_known_later(fake, node, proc):
    proc.runs(11, "chat-0")
    pods = {}
    read = node(fake.FakeNvml([fake.FakeGpu(pids=(11,))]), pods).read

    before = read(0.0).subjects[0].attribution

    pods["d01e4b6f-5a00-11e9-b385-42010a80018d"] = PodKey("ai", "chat-0")

    assert (before, read(5.0).subjects[0].attribution) == (Attribution.NONE, Attribution.EXCLUSIVE)

"""The GPUs of a response are attributed to workloads through their pods."""

from exporter.attribution import Share, assign
from exporter.model import Attribution, Gpu, PodKey, Queue, WorkloadKey

CHAT = WorkloadKey("ai", "chat")
EMBED = WorkloadKey("ai", "embed")


def owner(pod, at=0.0):
    """Returns the workload of pods such as chat-0 and embed-1; other pods have none."""
    return {"chat": (CHAT,), "embed": (EMBED,), "twin": (CHAT, EMBED)}.get(pod.pod.split("-")[0], ())


def gpu(attribution, *pods, instance=None):
    return Gpu("g", instance, attribution=attribution, pods=tuple(PodKey("ai", pod) for pod in pods))


def shares(*subjects):
    return assign(subjects, [0.0] * len(subjects), owner)


def test_gpu_of_one_pod_is_exclusive():
    assert shares(gpu(Attribution.EXCLUSIVE, "chat-0"), gpu(Attribution.MIG, "embed-0", instance="3")) == {
        CHAT: Share(exclusive=(0,), shared=()),
        EMBED: Share(exclusive=(1,), shared=()),
    }


def test_gpu_shared_by_two_workloads_is_exclusive_to_neither():
    assert shares(gpu(Attribution.DEVICE, "chat-0", "embed-0")) == {
        CHAT: Share(exclusive=(), shared=(0,)),
        EMBED: Share(exclusive=(), shared=(0,)),
    }


def test_gpu_shared_with_a_foreign_pod_is_not_exclusive():
    assert shares(gpu(Attribution.PROCESS, "chat-0", "stranger-0")) == {CHAT: Share(exclusive=(), shared=(0,))}


def test_gpu_shared_by_replicas_of_one_workload_is_exclusive():
    assert shares(gpu(Attribution.DEVICE, "chat-0", "chat-1")) == {CHAT: Share(exclusive=(0,), shared=())}
    assert shares(gpu(Attribution.PROCESS, "chat-0", "chat-1")) == {CHAT: Share(exclusive=(0,), shared=())}


def test_shared_device_with_one_named_pod_is_not_exclusive():
    assert shares(gpu(Attribution.DEVICE, "chat-0")) == {CHAT: Share(exclusive=(), shared=(0,))}


def test_rows_are_grouped_by_workload_without_unowned_rows():
    assert shares(
        gpu(Attribution.EXCLUSIVE, "chat-0"),
        gpu(Attribution.NONE),
        Queue("chat"),
        gpu(Attribution.EXCLUSIVE, "stranger-0"),
        gpu(Attribution.DEVICE, "chat-1", "embed-0"),
        gpu(Attribution.EXCLUSIVE, "chat-2"),
    ) == {CHAT: Share(exclusive=(0, 5), shared=(4,)), EMBED: Share(exclusive=(), shared=(4,))}


def test_workloads_with_the_same_pods_share_their_gpus():
    assert shares(gpu(Attribution.EXCLUSIVE, "twin-0")) == {
        CHAT: Share(exclusive=(0,), shared=()),
        EMBED: Share(exclusive=(0,), shared=()),
    }


def test_owners_are_looked_up_at_the_time_of_the_reading():
    lookups = []

    def owner_at(pod, at):
        lookups.append((pod.pod, at))
        return ()

    subjects = (gpu(Attribution.EXCLUSIVE, "chat-0"), gpu(Attribution.EXCLUSIVE, "chat-1"))
    assign(subjects, [7.0, 9.0], owner_at)
    assert lookups == [("chat-0", 7.0), ("chat-1", 9.0)]

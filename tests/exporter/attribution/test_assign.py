"""Which GPUs of a page speak for a workload."""

import numpy as np

from exporter.attribution import Share, assign
from exporter.model import Attribution, Gpu, PodKey, Queue, Samples, WorkloadKey

CHAT = WorkloadKey("ai", "chat")
EMBED = WorkloadKey("ai", "embed")


def owner(pod, at=0.0):
    """Pods are named after their workload: chat-0, embed-1; everything else is nobody's."""
    return {"chat": (CHAT,), "embed": (EMBED,), "twin": (CHAT, EMBED)}.get(pod.pod.split("-")[0], ())


def gpu(attribution, *pods, instance=None):
    return Gpu("g", instance, attribution=attribution, pods=tuple(PodKey("ai", pod) for pod in pods))


def shares(*subjects):
    rows = len(subjects)
    return assign(Samples("dcgm", subjects, (), np.empty((rows, 0)), np.zeros(rows)), owner)


def test_a_gpu_of_one_pod_is_wholly_its_workloads():
    assert shares(gpu(Attribution.EXCLUSIVE, "chat-0"), gpu(Attribution.MIG, "embed-0", instance="3")) == {
        CHAT: Share(exclusive=(0,), shared=()),
        EMBED: Share(exclusive=(1,), shared=()),
    }


def test_a_gpu_shared_by_two_workloads_is_neithers():
    assert shares(gpu(Attribution.DEVICE, "chat-0", "embed-0")) == {
        CHAT: Share(exclusive=(), shared=(0,)),
        EMBED: Share(exclusive=(), shared=(0,)),
    }


def test_a_gpu_shared_with_a_stranger_is_not_the_workloads():
    assert shares(gpu(Attribution.PROCESS, "chat-0", "stranger-0")) == {CHAT: Share(exclusive=(), shared=(0,))}


def test_a_gpu_shared_among_a_workloads_own_replicas_is_wholly_its_own():
    assert shares(gpu(Attribution.DEVICE, "chat-0", "chat-1")) == {CHAT: Share(exclusive=(0,), shared=())}
    assert shares(gpu(Attribution.PROCESS, "chat-0", "chat-1")) == {CHAT: Share(exclusive=(0,), shared=())}


def test_one_named_pod_on_a_shared_device_does_not_own_it():
    assert shares(gpu(Attribution.DEVICE, "chat-0")) == {CHAT: Share(exclusive=(), shared=(0,))}


def test_rows_of_one_workload_come_together_and_nobodys_stay_out():
    assert shares(
        gpu(Attribution.EXCLUSIVE, "chat-0"),
        gpu(Attribution.NONE),
        Queue("chat"),
        gpu(Attribution.EXCLUSIVE, "stranger-0"),
        gpu(Attribution.DEVICE, "chat-1", "embed-0"),
        gpu(Attribution.EXCLUSIVE, "chat-2"),
    ) == {CHAT: Share(exclusive=(0, 5), shared=(4,)), EMBED: Share(exclusive=(), shared=(4,))}


def test_workloads_with_the_same_pods_each_have_their_gpus():
    assert shares(gpu(Attribution.EXCLUSIVE, "twin-0")) == {
        CHAT: Share(exclusive=(0,), shared=()),
        EMBED: Share(exclusive=(0,), shared=()),
    }


def test_a_reading_is_asked_about_with_the_time_it_was_measured():
    asked = []

    def owner_at(pod, at):
        asked.append((pod.pod, at))
        return ()

    subjects = (gpu(Attribution.EXCLUSIVE, "chat-0"), gpu(Attribution.EXCLUSIVE, "chat-1"))
    assign(Samples("dcgm", subjects, (), np.empty((2, 0)), np.array([7.0, 9.0])), owner_at)
    assert asked == [("chat-0", 7.0), ("chat-1", 9.0)]

"""A response about GPUs is read by what the cluster knows of its pods: their names, and their nodes."""

from __future__ import annotations

import numpy as np

from exporter.attribution import named, on_node
from exporter.model import Attribution, Gpu, Part, PodKey, Queue, Samples

UID, CHAT, CODE, JOB = PodKey("", "uid-1"), PodKey("ai", "chat-0"), PodKey("ai", "code-0"), PodKey("ai", "job-0")


def page(*subjects):
    return Samples("tidegate", subjects, (), np.empty((len(subjects), 0)), np.zeros(len(subjects)))


class Known:
    """`chat-0` runs on `here` and has the UID `uid-1`; `code-0` runs elsewhere; `job-0` has no node yet."""

    def named(self, pod):
        return CHAT if pod == UID else pod

    def node_of(self, pod):
        return {CHAT: "here", CODE: "elsewhere"}.get(pod)


def test_uid_is_replaced_by_a_name_in_pods_and_parts():
    shared = Gpu("GPU-1", attribution=Attribution.PROCESS, pods=(UID, CODE), parts=(Part(UID, 0.5, 1.0),))

    [gpu] = named(page(shared), Known()).subjects
    assert (gpu.pods, gpu.parts) == ((CHAT, CODE), (Part(CHAT, 0.5, 1.0),))


def test_unknown_uid_stays_unchanged():
    stranger = Gpu("GPU-1", pods=(PodKey("", "uid-2"),))

    assert named(page(stranger), Known()).subjects == (stranger,)


def test_samples_with_names_are_returned_unchanged():
    samples = page(Gpu("GPU-1", pods=(CODE,)), Queue("m"), Gpu("GPU-2"))

    assert named(samples, Known()) is samples


def test_pod_of_another_node_is_not_on_the_gpus_of_this_one():
    [gpu] = on_node(page(Gpu("GPU-1", pods=(CODE,))), "here", Known()).subjects
    assert gpu.pods == ()


def test_gpu_with_a_pod_of_another_node_is_exclusive_to_none():
    parts = Part(CHAT, 0.5, 1.0), Part(CODE, 0.5, 1.0)
    [gpu] = on_node(page(Gpu("GPU-1", pods=(CHAT, CODE), parts=parts)), "here", Known()).subjects
    assert (gpu.pods, gpu.parts, gpu.attribution) == ((CHAT,), parts[:1], Attribution.DEVICE)


def test_pods_of_the_node_and_pods_without_a_known_node_stay():
    samples = page(Gpu("GPU-1", pods=(CHAT,)), Queue("m"), Gpu("GPU-2", pods=(JOB,)))
    assert on_node(samples, "here", Known()) is samples

"""A GPU whose pod label disappears or alternates keeps the right pods."""

import numpy as np
import pytest

from exporter.attribution import LABEL_MEMORY_S, SHARING_MEMORY_S, Labels
from exporter.model import Attribution, Gpu, PodKey, Queue, Samples, WorkloadKey

CHAT = WorkloadKey("ai", "chat")
POD, OTHER = PodKey("ai", "chat-0"), PodKey("ai", "embed-0")


def page(*subjects):
    return Samples("dcgm", subjects, (), np.empty((len(subjects), 0)), np.zeros(len(subjects)))


def gpu(*pods, uuid="GPU-1", instance=None):
    attribution = Attribution.EXCLUSIVE if pods else Attribution.NONE
    return Gpu(uuid, instance, attribution=attribution, pods=pods)


def always_owned(pod, at):
    return (CHAT,)


def never_owned(pod, at):
    return ()


def test_lost_label_is_as_old_as_the_last_of_several_equal_responses():
    labels, same = Labels(), page(gpu(POD))
    for at in (100.0, 115.0, 130.0):
        assert labels.resolve(same, always_owned, at) is same
    labels.resolve(page(gpu()), always_owned, 145.0)
    assert list(labels.lost_at.values()) == [130.0]


def test_gpu_without_a_label_for_a_moment_keeps_its_pod():
    labels = Labels()
    labels.resolve(page(gpu(POD)), always_owned, 100.0)
    assert labels.resolve(page(gpu()), always_owned, 115.0).subjects == (gpu(POD),)
    assert labels.resolve(page(gpu(POD)), always_owned, 130.0).subjects == (gpu(POD),)


def test_gpu_without_a_label_keeps_its_pod_while_the_pod_lives():
    labels = Labels()
    labels.resolve(page(gpu(POD)), always_owned, 100.0)
    assert labels.resolve(page(gpu()), always_owned, 100.0 + 10 * LABEL_MEMORY_S).subjects == (gpu(POD),)
    assert labels.lost_at == {("GPU-1", None): 100.0}
    assert labels.resolve(page(gpu()), never_owned, 101.0 + 10 * LABEL_MEMORY_S).subjects == (gpu(),)
    assert labels.lost_at == {}


def test_series_never_outlives_its_pod():
    labels = Labels()
    labels.resolve(page(gpu(POD)), always_owned, 100.0)
    assert labels.resolve(page(gpu()), lambda pod, at: (), 101.0).subjects == (gpu(),)


def test_gpu_of_another_pod_belongs_to_it_at_once():
    labels = Labels()
    labels.resolve(page(gpu(POD)), always_owned, 100.0)
    assert labels.resolve(page(gpu(OTHER)), always_owned, 105.0).subjects == (gpu(OTHER),)
    assert labels.resolve(page(gpu()), always_owned, 110.0).subjects == (gpu(OTHER),)


@pytest.mark.parametrize("stranger", [gpu(uuid="GPU-2"), gpu(instance="3"), Queue("m")])
def test_label_belongs_to_one_gpu_or_instance(stranger):
    labels = Labels()
    labels.resolve(page(gpu(POD)), always_owned, 100.0)
    assert labels.resolve(page(stranger), always_owned, 101.0).subjects == (stranger,)


def test_samples_with_all_labels_are_returned_unchanged():
    labels, samples = Labels(), page(gpu(POD), Queue("m"))
    assert labels.resolve(samples, always_owned, 100.0) is samples


THIRD = PodKey("ai", "code-0")


def resolved(labels, *pods, at=100.0, every=5.0, owners=always_owned):
    """Resolves one page per pod. Returns the attribution and the pods of the last one."""
    for turn, pod in enumerate(pods):
        (gpu_subject,) = labels.resolve(page(gpu(pod)), owners, at + every * turn).subjects
    return gpu_subject.attribution, gpu_subject.pods


def test_label_that_alternates_is_a_shared_gpu():
    """With time-slicing but without --kubernetes-virtual-gpus, the label names one pod at a time."""
    assert resolved(Labels(), POD, OTHER) == (Attribution.EXCLUSIVE, (OTHER,))
    assert resolved(Labels(), POD, OTHER, POD) == (Attribution.DEVICE, (POD, OTHER))
    assert resolved(Labels(), POD, OTHER, POD, POD) == (Attribution.DEVICE, (POD, OTHER))


def test_all_alternating_pods_share_the_gpu():
    assert resolved(Labels(), POD, OTHER, THIRD, POD) == (Attribution.DEVICE, (POD, THIRD, OTHER))


def test_pod_that_returns_late_does_not_share():
    assert resolved(Labels(), POD, OTHER, POD, every=LABEL_MEMORY_S + 1.0) == (Attribution.EXCLUSIVE, (POD,))


def test_gpu_with_a_constant_label_becomes_exclusive():
    labels = Labels()
    resolved(labels, POD, OTHER, POD, at=100.0)
    assert resolved(labels, POD, at=110.0 + SHARING_MEMORY_S) == (Attribution.DEVICE, (POD, OTHER))
    assert resolved(labels, POD, at=110.1 + SHARING_MEMORY_S) == (Attribution.EXCLUSIVE, (POD,))


def test_new_pod_on_a_formerly_shared_gpu_is_exclusive():
    labels = Labels()
    resolved(labels, POD, OTHER, POD)
    assert resolved(labels, THIRD, at=120.0) == (Attribution.EXCLUSIVE, (THIRD,))

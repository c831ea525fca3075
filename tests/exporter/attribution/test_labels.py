"""A GPU whose page loses its label for a moment."""

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


def anybody(pod, at):
    return (CHAT,)


def nobody(pod, at):
    return ()


def test_a_gpu_that_loses_its_label_for_a_moment_stays_its_pods():
    labels = Labels()
    labels.resolve(page(gpu(POD)), anybody, 100.0)
    assert labels.resolve(page(gpu()), anybody, 115.0).subjects == (gpu(POD),)
    assert labels.resolve(page(gpu(POD)), anybody, 130.0).subjects == (gpu(POD),)


def test_a_gpu_that_lost_its_label_is_its_pods_for_as_long_as_the_pod_lives():
    labels = Labels()
    labels.resolve(page(gpu(POD)), anybody, 100.0)
    assert labels.resolve(page(gpu()), anybody, 100.0 + 10 * LABEL_MEMORY_S).subjects == (gpu(POD),)
    assert labels.lost_at == {("GPU-1", None): 100.0}
    assert labels.resolve(page(gpu()), nobody, 101.0 + 10 * LABEL_MEMORY_S).subjects == (gpu(),)
    assert labels.lost_at == {}


def test_a_series_never_outlives_its_pod():
    labels = Labels()
    labels.resolve(page(gpu(POD)), anybody, 100.0)
    assert labels.resolve(page(gpu()), lambda pod, at: (), 101.0).subjects == (gpu(),)


def test_a_gpu_handed_to_another_pod_is_that_pods_at_once():
    labels = Labels()
    labels.resolve(page(gpu(POD)), anybody, 100.0)
    assert labels.resolve(page(gpu(OTHER)), anybody, 105.0).subjects == (gpu(OTHER),)
    assert labels.resolve(page(gpu()), anybody, 110.0).subjects == (gpu(OTHER),)


@pytest.mark.parametrize("stranger", [gpu(uuid="GPU-2"), gpu(instance="3"), Queue("m")])
def test_a_label_is_of_one_gpu_or_instance_alone(stranger):
    labels = Labels()
    labels.resolve(page(gpu(POD)), anybody, 100.0)
    assert labels.resolve(page(stranger), anybody, 101.0).subjects == (stranger,)


def test_a_page_that_says_everything_is_handed_on_as_it_is():
    labels, samples = Labels(), page(gpu(POD), Queue("m"))
    assert labels.resolve(samples, anybody, 100.0) is samples


THIRD = PodKey("ai", "code-0")


def named(labels, *pods, at=100.0, every=5.0, owners=anybody):
    """The last of several pages, one for each pod: whose the GPU is."""
    for turn, pod in enumerate(pods):
        (found,) = labels.resolve(page(gpu(pod)), owners, at + every * turn).subjects
    return found.attribution, found.pods


def test_a_label_that_goes_back_and_forth_is_a_shared_gpu():
    """Time-slicing without --kubernetes-virtual-gpus: one pod is named, and it changes."""
    assert named(Labels(), POD, OTHER) == (Attribution.EXCLUSIVE, (OTHER,))
    assert named(Labels(), POD, OTHER, POD) == (Attribution.DEVICE, (POD, OTHER))
    assert named(Labels(), POD, OTHER, POD, POD) == (Attribution.DEVICE, (POD, OTHER))


def test_all_who_take_turns_share_it():
    assert named(Labels(), POD, OTHER, THIRD, POD) == (Attribution.DEVICE, (POD, THIRD, OTHER))


def test_a_pod_that_comes_back_after_a_while_was_away():
    assert named(Labels(), POD, OTHER, POD, every=LABEL_MEMORY_S + 1.0) == (Attribution.EXCLUSIVE, (POD,))


def test_a_gpu_whose_label_stands_still_for_long_is_shared_no_more():
    labels = Labels()
    named(labels, POD, OTHER, POD, at=100.0)
    assert named(labels, POD, at=110.0 + SHARING_MEMORY_S) == (Attribution.DEVICE, (POD, OTHER))
    assert named(labels, POD, at=110.1 + SHARING_MEMORY_S) == (Attribution.EXCLUSIVE, (POD,))


def test_somebody_new_on_a_gpu_that_was_shared_has_it():
    labels = Labels()
    named(labels, POD, OTHER, POD)
    assert named(labels, THIRD, at=120.0) == (Attribution.EXCLUSIVE, (THIRD,))

"""A GPU whose page loses its label for a moment."""

import numpy as np
import pytest

from exporter.attribution import LABEL_MEMORY_S, Labels
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


def test_a_gpu_that_loses_its_label_for_a_moment_stays_its_pods():
    labels = Labels()
    labels.recall(page(gpu(POD)), anybody, 100.0)
    assert labels.recall(page(gpu()), anybody, 115.0).subjects == (gpu(POD),)
    assert labels.recall(page(gpu(POD)), anybody, 130.0).subjects == (gpu(POD),)


def test_a_label_that_stays_away_is_forgotten():
    labels = Labels()
    labels.recall(page(gpu(POD)), anybody, 100.0)
    assert labels.recall(page(gpu()), anybody, 100.0 + LABEL_MEMORY_S).subjects == (gpu(POD),)
    assert labels.recall(page(gpu()), anybody, 100.1 + LABEL_MEMORY_S).subjects == (gpu(),)


def test_a_series_never_outlives_its_pod():
    labels = Labels()
    labels.recall(page(gpu(POD)), anybody, 100.0)
    assert labels.recall(page(gpu()), lambda pod, at: (), 101.0).subjects == (gpu(),)


def test_a_gpu_handed_to_another_pod_is_that_pods_at_once():
    labels = Labels()
    labels.recall(page(gpu(POD)), anybody, 100.0)
    assert labels.recall(page(gpu(OTHER)), anybody, 105.0).subjects == (gpu(OTHER),)
    assert labels.recall(page(gpu()), anybody, 110.0).subjects == (gpu(OTHER),)


@pytest.mark.parametrize("stranger", [gpu(uuid="GPU-2"), gpu(instance="3"), Queue("m")])
def test_a_label_is_of_one_gpu_or_instance_alone(stranger):
    labels = Labels()
    labels.recall(page(gpu(POD)), anybody, 100.0)
    assert labels.recall(page(stranger), anybody, 101.0).subjects == (stranger,)


def test_a_page_that_says_everything_is_handed_on_as_it_is():
    labels, samples = Labels(), page(gpu(POD), Queue("m"))
    assert labels.recall(samples, anybody, 100.0) is samples

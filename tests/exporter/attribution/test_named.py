"""Pods that are identified by UIDs get their names."""

from __future__ import annotations

import numpy as np

from exporter.attribution import named
from exporter.model import Attribution, Gpu, Part, PodKey, Queue, Samples

UID, CHAT, CODE = PodKey("", "uid-1"), PodKey("ai", "chat-0"), PodKey("ai", "code-0")


def page(*subjects):
    return Samples("tidegate", subjects, (), np.empty((len(subjects), 0)), np.zeros(len(subjects)))


def names(pod):
    return CHAT if pod == UID else pod


def test_uid_is_replaced_by_a_name_in_pods_and_parts():
    shared = Gpu("GPU-1", attribution=Attribution.PROCESS, pods=(UID, CODE), parts=(Part(UID, 0.5, 1.0),))

    [gpu] = named(page(shared), names).subjects
    assert (gpu.pods, gpu.parts) == ((CHAT, CODE), (Part(CHAT, 0.5, 1.0),))


def test_unknown_uid_stays_unchanged():
    stranger = Gpu("GPU-1", pods=(PodKey("", "uid-2"),))

    assert named(page(stranger), names).subjects == (stranger,)


def test_samples_with_names_are_returned_unchanged():
    samples = page(Gpu("GPU-1", pods=(CODE,)), Queue("m"), Gpu("GPU-2"))

    assert named(samples, names) is samples

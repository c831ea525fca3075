"""Pods that a page knows by their UIDs alone get their names from whoever watches pods."""

from __future__ import annotations

import numpy as np

from exporter.attribution import named
from exporter.model import Attribution, Gpu, Part, PodKey, Queue, Samples

UID, CHAT, CODE = PodKey("", "uid-1"), PodKey("ai", "chat-0"), PodKey("ai", "code-0")


def page(*subjects):
    return Samples("tidegate", subjects, (), np.empty((len(subjects), 0)), np.zeros(len(subjects)))


def names(pod):
    return CHAT if pod == UID else pod


def test_a_uid_becomes_a_name_in_every_place():
    shared = Gpu("GPU-1", attribution=Attribution.PROCESS, pods=(UID, CODE), parts=(Part(UID, 0.5, 1.0),))

    [gpu] = named(page(shared), names).subjects
    assert (gpu.pods, gpu.parts) == ((CHAT, CODE), (Part(CHAT, 0.5, 1.0),))


def test_a_uid_that_nobody_knows_stays_as_it_is():
    stranger = Gpu("GPU-1", pods=(PodKey("", "uid-2"),))

    assert named(page(stranger), names).subjects == (stranger,)


def test_a_page_of_names_is_the_same_page():
    samples = page(Gpu("GPU-1", pods=(CODE,)), Queue("m"), Gpu("GPU-2"))

    assert named(samples, names) is samples

"""The workload of a pod is derived from its name."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.attribution import owner_of
from exporter.model import PodKey, WorkloadKey

CHAT = WorkloadKey("ai", "chat")
CANARY = WorkloadKey("ai", "chat-canary")
LETTERS = "bcdfghjklmnpqrstvwxz2456789"
names = st.from_regex(re.compile(r"[a-z]([a-z0-9-]{0,20}[a-z0-9])?"), fullmatch=True)


def owner(pod, *workloads):
    return owner_of(PodKey("ai", pod), [(w, None) if isinstance(w, WorkloadKey) else w for w in workloads])


@pytest.mark.parametrize(
    "pod",
    [
        "chat-7d9f8b6c5d-x2k9q",  # Deployment
        "chat-5d4f7b8c-x2k9q",  # Deployment with a hash of 8 characters
        "chat-x2k9q",  # ReplicaSet
        "chat-0",  # StatefulSet
        "chat-12",
        "chat-0-1",  # LeaderWorkerSet: worker 1 of group 0
    ],
)
def test_pod_names_of_a_controller_belong_to_its_workload(pod):
    assert owner(pod, CHAT) == CHAT


@pytest.mark.parametrize(
    "pod",
    [
        "chat",
        "chat-",
        "chatty-0",
        "chat-canary",
        "chat-canary-0",
        "chat-canary-x2k9q",
        "chat-canary-7d9f8b6c5d-x2k9q",
        "chat-7d9f8b6c5d-x2k9q-extra",
        "chat-7d9f8b6c5d-aeiou",  # Kubernetes' random names have no vowels
        "chat-0-1-2",
        "my-chat-0",
    ],
)
def test_pods_of_a_similar_name_do_not_belong_to_a_workload(pod):
    assert owner(pod, CHAT) is None


def test_two_workloads_of_similar_names_have_separate_pods():
    assert owner("chat-canary-7d9f8b6c5d-x2k9q", CHAT, CANARY) == CANARY
    assert owner("chat-7d9f8b6c5d-x2k9q", CANARY, CHAT) == CHAT


def test_same_name_in_another_namespace_is_another_workload():
    assert owner_of(PodKey("dev", "chat-0"), [(CHAT, None)]) is None


def test_pattern_replaces_the_default():
    assert owner("llm-decode-abc", (CHAT, "llm-decode-*")) == CHAT
    assert owner("chat-0", (CHAT, "llm-decode-*")) is None


def test_longer_of_two_matches_counts():
    assert owner("chat-canary-0", (CHAT, "chat*"), CANARY) == CANARY
    assert owner("chat-canary-0", CANARY, (CHAT, "chat*")) == CANARY
    group = WorkloadKey("ai", "chat-0")
    assert owner("chat-0-1", CHAT, group) == group


def test_pod_of_no_workload_has_no_owner():
    assert owner("web-0", CHAT, CANARY) is None
    assert owner("web-0") is None


@settings(max_examples=100, deadline=None)
@given(names, names, st.text(LETTERS, min_size=8, max_size=10), st.text(LETTERS, min_size=5, max_size=5))
def test_deployments_pod_belongs_to_it_and_to_no_other(name, other, template, suffix):
    mine, theirs = WorkloadKey("ai", name), WorkloadKey("ai", other)
    assert owner(f"{name}-{template}-{suffix}", mine) == mine
    if not name.startswith(other):
        assert owner(f"{name}-{template}-{suffix}", theirs) is None

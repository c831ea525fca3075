"""Tolerations and quota scopes mean what they mean to the scheduler and to the quota controller."""

import pytest

from exporter.kubernetes.fields import Fields
from exporter.kubernetes.placement import (
    PodTraits,
    QuotaScope,
    Taint,
    Toleration,
    counts,
    scopes_of,
    tolerates,
    traits_of,
)

GPU = "nvidia.com/gpu"
TAINT = Taint("team", "a", "NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (Toleration("team", "Equal", "a", "NoSchedule"), True),
        (Toleration("team", "Equal", "a", ""), True),
        (Toleration("team", "Equal", "b", ""), False),
        (Toleration("team", "Exists", "", ""), True),
        (Toleration("team", "Exists", "", "NoExecute"), False),
        (Toleration("other", "Exists", "", ""), False),
        (Toleration("", "Exists", "", ""), True),  # every taint
        (Toleration("team", "Gt", "3", ""), True),  # a comparison of numbers: not known, so no limit
    ],
)
def test_toleration_matches_key_operator_value_and_effect(toleration, expected):
    assert tolerates([PodTraits((toleration,))], TAINT, GPU) is expected


def test_taint_of_the_requested_resource_is_tolerated_and_one_of_several_traits_is_enough():
    """The admission plugin ExtendedResourceToleration adds it to pods, so that it is in no template."""
    assert tolerates([PodTraits()], Taint(GPU, "", "NoSchedule"), GPU)
    assert not tolerates([PodTraits()], Taint(GPU, "", "NoSchedule"), "amd.com/gpu")
    assert tolerates([PodTraits(), PodTraits((Toleration("team", "Exists", "", ""),))], TAINT, GPU)


@pytest.mark.parametrize(
    ("scope", "traits", "expected"),
    [
        (QuotaScope("Terminating"), PodTraits(deadline=True), True),
        (QuotaScope("Terminating"), PodTraits(), False),
        (QuotaScope("NotTerminating"), PodTraits(), True),
        (QuotaScope("BestEffort"), PodTraits(best_effort=True), True),
        (QuotaScope("NotBestEffort"), PodTraits(best_effort=True), False),
        (QuotaScope("PriorityClass"), PodTraits(priority_class="low"), True),
        (QuotaScope("PriorityClass"), PodTraits(), False),
        (QuotaScope("PriorityClass", "In", ("low",)), PodTraits(priority_class="low"), True),
        (QuotaScope("PriorityClass", "In", ("low",)), PodTraits(priority_class="high"), False),
        (QuotaScope("PriorityClass", "NotIn", ("low",)), PodTraits(), True),
        (QuotaScope("PriorityClass", "DoesNotExist"), PodTraits(), True),
        (QuotaScope("PriorityClass", "DoesNotExist"), PodTraits(priority_class="low"), False),
    ],
)
def test_scope_counts_the_pods_that_match(scope, traits, expected):
    assert counts([scope], traits) is expected


def test_all_scopes_of_a_quota_must_match_and_an_unknown_one_is_said():
    spec = {
        "scopes": ["NotTerminating"],
        "scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["low"]}]},
    }
    scopes = scopes_of(Fields(spec))
    assert counts(scopes, PodTraits(priority_class="low"))
    assert not counts(scopes, PodTraits(priority_class="low", deadline=True))
    assert not counts(scopes, PodTraits())
    assert scopes_of(Fields({})) == ()
    assert scopes_of(Fields({"scopes": ["CrossNamespacePodAffinity"]})) is None
    assert scopes_of(Fields({"scopes": "NotTerminating"})) == (QuotaScope("NotTerminating"),)


def test_traits_of_a_pod_are_what_its_spec_says():
    container = {"name": "a", "resources": {"limits": {GPU: "1"}}}
    spec = {"containers": [container], "priorityClassName": "low", "activeDeadlineSeconds": 60}
    spec["tolerations"] = [{"key": "team", "value": "a"}]
    expected = PodTraits((Toleration("team", "Equal", "a", ""),), "low", deadline=True, best_effort=True)
    assert traits_of(Fields(spec)) == expected
    assert traits_of(Fields(spec)) is traits_of(Fields(spec))
    init = {"name": "b", "resources": {"requests": {"memory": "1Gi"}}}
    assert not traits_of(Fields({"containers": [container], "initContainers": [init]})).best_effort

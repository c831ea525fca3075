"""What a configuration needs is what the chart gives, and nothing else."""

import pytest

from exporter.kubernetes.resources import RESOURCES
from scaler.cli.doctor.rights import Right, needed
from scaler.config import parse

FILES = "certificate: /c, key: /k"
EVERYTHING = f"""
kubernetes: {{}}
listen:
  metrics_api: {{{FILES}, external: true, custom: true, service: tidegate.tidegate}}
  peers: {{{FILES}, ca: /a, server_name: tidegate, lease: tidegate.tidegate}}
"""


def rights(text):
    return needed(parse(text, "c.yaml")[0])


def asked(text):
    return {(right.group, right.resource, verb, right.namespace) for right in rights(text) for verb in right.verbs}


WATCHED = {(each.group, each.name, verb) for each in RESOURCES for verb in ("list", "watch")}
EVENTS = {("events.k8s.io", "events", "create"), ("events.k8s.io", "events", "patch")}


def test_without_kubernetes_nothing_is_needed():
    assert rights("tick: 1s") == []


def test_with_it_what_is_watched_and_events():
    assert asked("kubernetes: {}") == {(*right, "") for right in WATCHED | EVENTS}
    assert asked("kubernetes: {events: false}") == {(*right, "") for right in WATCHED}


def test_with_namespaces_it_is_needed_in_each_and_nodes_are_the_clusters():
    found = asked("kubernetes: {namespaces: [ai, lab]}")
    assert {right for right in found if not right[3]} == {("", "nodes", "list", ""), ("", "nodes", "watch", "")}
    assert {right[:3] for right in found if right[3] == "ai"} == (WATCHED | EVENTS) - {
        right[:3] for right in found if not right[3]
    }
    assert {right[:3] for right in found if right[3] == "lab"} == {right[:3] for right in found if right[3] == "ai"}


def test_the_metrics_api_and_peers_add_theirs():
    more = asked(EVERYTHING) - asked("kubernetes: {}")
    assert more == {
        ("authentication.k8s.io", "tokenreviews", "create", ""),
        ("authorization.k8s.io", "subjectaccessreviews", "create", ""),
        ("", "configmaps", "get", "kube-system"),
        ("apiregistration.k8s.io", "apiservices", "get", ""),
        *(("coordination.k8s.io", "leases", verb, "tidegate") for verb in ("get", "update", "create")),
    }
    names = {right.name for right in rights(EVERYTHING) if right.resource == "apiservices"}
    assert names == {
        "v1beta1.external.metrics.k8s.io",
        "v1beta2.custom.metrics.k8s.io",
        "v1beta1.custom.metrics.k8s.io",
    }


@pytest.mark.parametrize("resource", [each for each in RESOURCES if each.optional], ids=str)
def test_what_a_cluster_may_lack_says_by_which_version_it_is_served(resource):
    [right] = [
        each for each in rights("kubernetes: {}") if (each.group, each.resource) == (resource.group, resource.name)
    ]
    assert right.served == resource.path.removeprefix("/apis/")


def test_the_rule_is_what_a_role_takes():
    right = Right("coordination.k8s.io", "leases", ("get", "update"), "tidegate", "gate")
    rule = 'apiGroups ["coordination.k8s.io"], resources ["leases"], resourceNames ["gate"], verbs ["get", "update"]'
    assert right.remedy() == f"give Tidegate's ServiceAccount a Role in tidegate with {rule}"
    assert [access.name for access in right.accesses()] == ["gate", "gate"]
    assert [access.name for access in Right("g", "leases", ("create",), "t", "gate").accesses()] == [""]

"""A configuration needs the permissions that the chart grants, and no other."""

import pytest

from exporter.kubernetes.resources import RESOURCES
from scaler.cli.doctor.kubernetes import Permission, needed_permissions
from scaler.config import parse

FILES = "certificate: /c, key: /k"
EVERYTHING = f"""
kubernetes: {{}}
listen:
  metrics_api: {{{FILES}, external: true, custom: true, service: tidegate.tidegate}}
  peers: {{{FILES}, ca: /a, server_name: tidegate, lease: tidegate.tidegate}}
"""


def permissions(text):
    return needed_permissions(parse(text, "c.yaml")[0])


def rules(text):
    return {(right.group, right.resource, verb, right.namespace) for right in permissions(text) for verb in right.verbs}


WATCHED = {(each.group, each.name, verb) for each in RESOURCES for verb in ("list", "watch")}
EVENTS = {("events.k8s.io", "events", "create"), ("events.k8s.io", "events", "patch")}


def test_configuration_without_kubernetes_needs_no_permission():
    assert permissions("tick: 1s") == []


def test_kubernetes_needs_watches_and_events():
    assert rules("kubernetes: {}") == {(*right, "") for right in WATCHED | EVENTS}
    assert rules("kubernetes: {events: false}") == {(*right, "") for right in WATCHED}


def test_permissions_are_per_namespace_except_for_nodes():
    granted = rules("kubernetes: {namespaces: [ai, lab]}")
    assert {right for right in granted if not right[3]} == {("", "nodes", "list", ""), ("", "nodes", "watch", "")}
    assert {right[:3] for right in granted if right[3] == "ai"} == (WATCHED | EVENTS) - {
        right[:3] for right in granted if not right[3]
    }
    assert {right[:3] for right in granted if right[3] == "lab"} == {right[:3] for right in granted if right[3] == "ai"}


def test_metrics_api_and_peers_need_further_permissions():
    more = rules(EVERYTHING) - rules("kubernetes: {}")
    assert more == {
        ("authentication.k8s.io", "tokenreviews", "create", ""),
        ("authorization.k8s.io", "subjectaccessreviews", "create", ""),
        ("", "configmaps", "get", "kube-system"),
        ("apiregistration.k8s.io", "apiservices", "get", ""),
        *(("coordination.k8s.io", "leases", verb, "tidegate") for verb in ("get", "update", "create")),
    }
    names = {right.name for right in permissions(EVERYTHING) if right.resource == "apiservices"}
    assert names == {
        "v1beta1.external.metrics.k8s.io",
        "v1beta2.custom.metrics.k8s.io",
        "v1beta1.custom.metrics.k8s.io",
    }


@pytest.mark.parametrize("resource", [each for each in RESOURCES if each.optional], ids=str)
def test_optional_kind_has_the_version_that_serves_it(resource):
    [right] = [
        each for each in permissions("kubernetes: {}") if (each.group, each.resource) == (resource.group, resource.name)
    ]
    assert right.served == (resource.path.removeprefix("/apis/"),)


def test_rule_has_the_form_of_a_role():
    right = Permission("coordination.k8s.io", "leases", ("get", "update"), "tidegate", "gate")
    rule = 'apiGroups ["coordination.k8s.io"], resources ["leases"], resourceNames ["gate"], verbs ["get", "update"]'
    assert right.remedy() == f"give Tidegate's ServiceAccount a Role in tidegate with {rule}"
    assert [access.name for access in right.accesses()] == ["gate", "gate"]
    assert [access.name for access in Permission("g", "leases", ("create",), "t", "gate").accesses()] == [""]

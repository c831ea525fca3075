"""The Role in docs/reference/kubernetes.md is what the code asks for."""

import yaml

from exporter.cluster.resources import RESOURCES
from tests.docs.pages import blocks


def test_the_role_in_the_docs_allows_what_is_watched_and_events_and_nothing_else():
    shown = [yaml.safe_load(block.text) for block in blocks("docs/reference/kubernetes.md") if block.language == "yaml"]
    (role,) = [each for each in shown if each.get("kind") == "ClusterRole"]
    allowed = {(group, name): set(rule["verbs"]) for rule in role["rules"]
               for group in rule["apiGroups"] for name in rule["resources"]}  # fmt: skip
    # "/apis/apps/v1" is of the group "apps", "/api/v1" of the core's, which is "".
    groups = {each: each.path.split("/")[2] if each.path.startswith("/apis/") else "" for each in RESOURCES}
    asked = {(groups[each], each.name): {"list", "watch"} for each in RESOURCES}
    assert allowed == asked | {("events.k8s.io", "events"): {"create", "patch"}}

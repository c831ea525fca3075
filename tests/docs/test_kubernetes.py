"""The rights in docs/reference/kubernetes.md and its ClusterRole are those that the code needs."""

import re

import yaml

from exporter.kubernetes.resources import RESOURCES
from tests.docs.pages import ROOT, links, text_of

PAGE = "docs/reference/kubernetes.md"
SECTION = text_of(PAGE).partition("## What it may do")[2].partition("\n## ")[0]
WATCHED = {(each.group, each.name) for each in RESOURCES}


def test_the_table_has_every_watched_resource_and_nothing_else():
    rows = re.findall(r"^\| `?([\w.-]+)`? \| (`.*) \|$", SECTION, re.MULTILINE)
    shown = {
        ("" if group == "core" else group, name) for group, names in rows for name in re.findall(r"`(\w+)`", names)
    }
    assert shown == WATCHED


def test_the_cluster_role_that_the_page_names_allows_watching_and_events_and_nothing_else():
    (link,) = [each for each in links(PAGE) if each.endswith("/rbac.yaml")]
    objects = yaml.safe_load_all((ROOT / PAGE).parent.joinpath(link).read_text(encoding="utf-8"))
    (role,) = [each for each in objects if each["kind"] == "ClusterRole"]
    allowed = {
        (group, name): set(rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for name in rule["resources"]
    }
    assert allowed == {key: {"list", "watch"} for key in WATCHED} | {("events.k8s.io", "events"): {"create", "patch"}}

"""docs/reference/metrics-api.md and the files that it links match the requests and responses."""

import re
from pathlib import Path

import yaml

from scaler.api.metrics_api.discovery import VERSIONS
from scaler.api.metrics_api.documents import CUSTOM_GROUP, EXTERNAL_GROUP
from scaler.api.metrics_api.pods import PER_POD
from scaler.api.metrics_api.request import parse_request
from scaler.api.metrics_api.values import METRICS, REPLICAS, SCALED

PAGE = Path(__file__).parents[4] / "docs/reference/metrics-api.md"
TEXT = PAGE.read_text(encoding="utf-8")
BLOCKS = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
OBJECTS = [each for block in BLOCKS for each in yaml.safe_load_all(block)]
FILES = [(PAGE.parent / link).resolve() for link in re.findall(r"\]\(([^)]*/metrics-api/\w+\.yaml)\)", TEXT)]
LINKED = [each for file in FILES for each in yaml.safe_load_all(file.read_text(encoding="utf-8"))]


def of_kind(kind):
    return [each for each in OBJECTS + LINKED if each.get("kind") == kind]


def test_documented_role_allows_the_requests_of_an_autoscaler():
    [role] = [each for each in of_kind("ClusterRole") if each["metadata"]["name"].endswith("metrics-reader")]
    allowed = {
        (group, name, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for name in rule["resources"]
        for verb in rule["verbs"]
    }
    external = parse_request(f"/apis/{EXTERNAL_GROUP}/v1beta1/namespaces/ai/{REPLICAS}", {}, VERSIONS).access
    path = f"/apis/{CUSTOM_GROUP}/v1beta2/namespaces/ai/deployments.apps/chat/{REPLICAS}"
    custom = parse_request(path, {}, VERSIONS).access
    assert (external.group, external.resource, external.verb) in allowed
    assert (custom.group, f"{custom.resource}/{custom.subresource}", custom.verb) in allowed
    pods = parse_request(f"/apis/{CUSTOM_GROUP}/v1beta2/namespaces/ai/pods/*/tidegate-queue", {}, VERSIONS).access
    assert (pods.group, f"{pods.resource}/{pods.subresource}", pods.verb) in allowed
    assert {name for group, name, _ in allowed if group == CUSTOM_GROUP} == {
        *(f"{resource}/{REPLICAS}" for resource in SCALED),
        *(f"pods/{metric}" for metric in PER_POD),
    }


def test_documented_autoscaler_uses_existing_metrics():
    [hpa] = of_kind("HorizontalPodAutoscaler")
    [external] = [metric["external"] for metric in hpa["spec"]["metrics"]]
    assert external["metric"] == {"name": REPLICAS, "selector": {"matchLabels": {"workload": "chat"}}}
    by_type = {metric["type"]: metric for each in OBJECTS for metric in each.get("metrics", ())}
    custom, pods = by_type["Object"]["object"], by_type["Pods"]["pods"]
    assert pods["metric"]["name"] in PER_POD
    assert custom["metric"]["name"] == REPLICAS
    assert external["target"] == custom["target"] == {"type": "AverageValue", "averageValue": "1"}


def test_documented_apiservices_match_the_served_versions():
    named = [
        (each["metadata"]["name"], each["spec"]["version"], each["spec"]["group"]) for each in of_kind("APIService")
    ]
    served = {(version, group) for group, versions in VERSIONS.items() for version in versions}
    assert {(version, group) for _, version, group in named} == served
    assert [name for name, version, group in named if name != f"{version}.{group}"] == []


def test_every_metric_is_documented():
    assert [name for name in (*METRICS, *PER_POD) if f"`{name}`" not in TEXT] == []

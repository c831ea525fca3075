"""The metrics API answers the discovery requests of the API server and kubectl."""

import pytest

from scaler.api.metrics_api.discovery import DiscoveryHandler
from scaler.api.metrics_api.documents import CUSTOM_GROUP, EXTERNAL_GROUP
from tests.fakes.aggregator import AGGREGATED, FORM

PER_POD_NAMES = {f"pods/tidegate-{name}" for name in ("queue", "waiting", "running", "gpu-engine-active")}


@pytest.mark.parametrize(
    ("group", "version"), [(EXTERNAL_GROUP, "v1beta1"), (CUSTOM_GROUP, "v1beta1"), (CUSTOM_GROUP, "v1beta2")]
)
async def test_probe_of_the_aggregator_is_answered_while_the_api_server_hangs(api, group, version):
    api.kubernetes.hang()
    proxy = await api.aggregator()
    assert await proxy.probe(group, version) == [200] * 5
    assert (await proxy.forward(f"/apis/{group}/{version}", "ann")).status == 200
    assert api.kubernetes.reviews == []


async def test_unaggregated_discovery_lists_groups_versions_and_metrics(api):
    proxy = await api.aggregator()
    groups = (await proxy.forward("/apis")).document
    assert (groups["kind"], [group["name"] for group in groups["groups"]]) == (
        "APIGroupList",
        [EXTERNAL_GROUP, CUSTOM_GROUP],
    )
    group = (await proxy.forward(f"/apis/{CUSTOM_GROUP}")).document
    assert (group["kind"], group["preferredVersion"]["version"]) == ("APIGroup", "v1beta2")
    assert [version["version"] for version in group["versions"]] == ["v1beta2", "v1beta1"]
    found = (await proxy.forward(f"/apis/{CUSTOM_GROUP}/v1beta1")).document
    assert f"{CUSTOM_GROUP}/v1beta1" == found["groupVersion"]
    names = [resource["name"] for resource in found["resources"]]
    assert {"deployments.apps/tidegate-replicas", "deployments.apps/tidegate-demand"} < set(names)
    assert {name for name in names if name.startswith("pods/")} == PER_POD_NAMES
    assert all(resource["namespaced"] and resource["verbs"] == ["get"] for resource in found["resources"])


@pytest.mark.parametrize(("accept", "version"), [(AGGREGATED, "v2"), (FORM.format("v2beta1"), "v2beta1")])
async def test_aggregated_discovery_has_the_same_content_in_the_requested_version(api, accept, version):
    proxy = await api.aggregator()
    answer = await proxy.forward("/apis", accept=accept)
    assert FORM.format(version) == answer.content_type
    assert f"apidiscovery.k8s.io/{version}" == answer.document["apiVersion"]
    external, custom = answer.document["items"]
    [found] = external["versions"]
    assert [(resource["resource"], resource["scope"], resource["verbs"]) for resource in found["resources"]] == [
        ("tidegate-replicas", "Namespaced", ["get"])
    ]
    assert [each["version"] for each in custom["versions"]] == ["v1beta2", "v1beta1"]
    found = {
        resource["resource"]: [each["subresource"] for each in resource["subresources"]]
        for resource in custom["versions"][0]["resources"]
    }
    assert found["deployments.apps"] == ["tidegate-replicas", "tidegate-demand"]
    assert {f"pods/{name}" for name in found["pods"]} == PER_POD_NAMES


@pytest.mark.parametrize("group", [EXTERNAL_GROUP, CUSTOM_GROUP])
def test_disabled_group_is_in_no_discovery_document(group):
    other = CUSTOM_GROUP if group == EXTERNAL_GROUP else EXTERNAL_GROUP
    discovery = DiscoveryHandler([group])
    assert discovery.at(f"/apis/{other}", "") is None
    for path, accept in (("/apis", ""), ("/apis", AGGREGATED), ("/openapi/v3", "")):
        text = str(discovery.at(path, accept))
        assert (group in text, other in text) == (True, False)


async def test_metrics_of_a_disabled_group_are_not_found(api):
    api.workloads.decide("chat", 3)
    await api.start(groups=[CUSTOM_GROUP])
    await api.follow()
    proxy = await api.aggregator()
    assert await proxy.external("ai", "tidegate-replicas") is None
    path = f"/apis/{CUSTOM_GROUP}/v1beta2/namespaces/ai/deployments.apps/chat/tidegate-replicas"
    assert (await proxy.forward(path)).status == 200


async def test_openapi_is_served_in_both_versions(api):
    proxy = await api.aggregator()
    assert (await proxy.forward("/openapi/v2")).document["swagger"] == "2.0"
    paths = (await proxy.forward("/openapi/v3")).document["paths"]
    assert len(paths) == 3
    for found in paths.values():
        assert (await proxy.forward(found["serverRelativeURL"])).document["openapi"] == "3.0.0"

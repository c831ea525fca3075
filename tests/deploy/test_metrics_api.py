"""The metrics API in the chart: who may enable it, its address, and its readers."""

import json

import pytest
import yaml

from scaler.api.metrics_api.discovery import VERSIONS
from scaler.api.metrics_api.documents import CUSTOM_GROUP, EXTERNAL_GROUP
from scaler.api.metrics_api.pods import PER_POD
from scaler.api.metrics_api.values import REPLICAS, SCALED
from scaler.config import parse
from tests.deploy.metrics_values import BOTH, CUSTOM, EXTERNAL, PEM, TLS, services, with_tls
from tests.deploy.shared import the


def of_the_api(things):
    """The objects that exist only for the metrics API."""
    names = ("auth-delegator", "auth-reader", "api-services", "metrics-reader")
    return [each for each in things if each["kind"] == "APIService" or each["metadata"]["name"].endswith(names)]


@pytest.mark.parametrize("mode", ["keda", "hpa"])
def test_metrics_api_is_off_by_default(render, mode):
    things = render({"mode": mode})
    assert of_the_api(things) == []
    listen = yaml.safe_load(the(things, "ConfigMap")["data"]["config.yaml"])["listen"]
    assert "metrics_api" not in listen
    assert "metrics-api" not in {port["name"] for port in the(things, "Service")["spec"]["ports"]}


@pytest.mark.parametrize(
    ("values", "groups"),
    [
        (BOTH, {EXTERNAL_GROUP, CUSTOM_GROUP}),
        ({"mode": "hpa", "metricsApi": EXTERNAL}, {EXTERNAL_GROUP}),
        ({"mode": "hpa", "metricsApi": CUSTOM}, {CUSTOM_GROUP}),
        ({"mode": "keda", "metricsApi": CUSTOM}, {CUSTOM_GROUP}),
    ],
)
@pytest.mark.parametrize("kind", TLS)
def test_each_served_version_has_an_api_service_and_no_other(render, problems_of, values, groups, kind):
    things = render(with_tls(kind, values))
    expected = {f"{version}.{group}" for group in groups for version in VERSIONS[group]}
    assert expected == set(services(things))
    for name, spec in services(things).items():
        assert name == f"{spec['version']}.{spec['group']}"
        assert "insecureSkipTLSVerify" not in spec
    config, _ = parse(the(things, "ConfigMap")["data"]["config.yaml"], "config.yaml")
    served = config.listen.metrics_api
    assert served is not None
    assert (served.external, served.custom) == (EXTERNAL_GROUP in groups, CUSTOM_GROUP in groups)
    assert [problem for thing in things for problem in problems_of(thing)] == []


def test_preferred_version_is_tidegates_first(render):
    found = services(render(BOTH))
    for group, versions in VERSIONS.items():
        by_priority = sorted(versions, key=lambda version: -found[f"{version}.{group}"]["versionPriority"])
        assert list(versions) == by_priority


def test_api_service_port_is_a_port_of_the_service_and_the_pod(render):
    things = render(BOTH | {"metricsApi": BOTH["metricsApi"] | {"port": 10250}})
    service = the(things, "Service")
    (port,) = [each for each in service["spec"]["ports"] if each["name"] == "metrics-api"]
    to = {"namespace": "tidegate", "name": service["metadata"]["name"], "port": port["port"]}
    assert [spec["service"] for spec in services(things).values()] == [to] * 3
    (container,) = the(things, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert {"name": port["targetPort"], "containerPort": 10250} in container["ports"]
    config, _ = parse(the(things, "ConfigMap")["data"]["config.yaml"], "config.yaml")
    assert config.listen.metrics_api is not None
    assert config.listen.metrics_api.address.port == 10250


@pytest.mark.parametrize("values", [BOTH, {"mode": "keda", "metricsApi": CUSTOM}], ids=["hpa", "keda"])
def test_tidegate_may_review_tokens_and_the_autoscaler_may_read(render, values):
    things = render(values | {"serviceAccount": {"name": "gate"}})
    tidegate = {"kind": "ServiceAccount", "namespace": "tidegate", "name": "gate"}
    autoscaler = {"kind": "ServiceAccount", "namespace": "kube-system", "name": "horizontal-pod-autoscaler"}
    bound = {
        (each["kind"], each["metadata"].get("namespace"), each["roleRef"]["kind"], each["roleRef"]["name"]): subject
        for each in of_the_api(things) if "Binding" in each["kind"] for subject in each["subjects"]
    }  # fmt: skip
    assert bound == {
        ("ClusterRoleBinding", None, "ClusterRole", "system:auth-delegator"): tidegate,
        ("RoleBinding", "kube-system", "Role", "extension-apiserver-authentication-reader"): tidegate,
        ("ClusterRoleBinding", None, "ClusterRole", "tidegate-tidegate-api-services"): tidegate,
        ("ClusterRoleBinding", None, "ClusterRole", "tidegate-tidegate-metrics-reader"): autoscaler,
    }


@pytest.mark.parametrize("values", [BOTH, {"mode": "hpa", "metricsApi": EXTERNAL}, {"metricsApi": CUSTOM}])
def test_tidegate_may_get_the_api_services_of_its_groups_only(render, values):
    things = render(values)
    [rule] = the(things, "ClusterRole", "tidegate-tidegate-api-services")["rules"]
    assert (rule["apiGroups"], rule["resources"], rule["verbs"]) == (
        ["apiregistration.k8s.io"],
        ["apiservices"],
        ["get"],
    )
    assert sorted(rule["resourceNames"]) == sorted(services(things))


def test_configuration_names_tidegates_own_service(render):
    things = render(BOTH, "gate", "scaling")
    config, _ = parse(the(things, "ConfigMap")["data"]["config.yaml"], "config.yaml")
    assert config.listen.metrics_api is not None
    named = {f"{spec['service']['name']}.{spec['service']['namespace']}" for spec in services(things).values()}
    assert named == {config.listen.metrics_api.service}


def test_autoscaler_may_read_replicas_of_scale_targets_and_pod_metrics_only(render):
    def rules(values):
        role = the(render(values), "ClusterRole", "tidegate-tidegate-metrics-reader")
        return {
            (group, resource, verb)
            for rule in role["rules"] for group in rule["apiGroups"]
            for resource in rule["resources"] for verb in rule["verbs"]
        }  # fmt: skip

    external = {(EXTERNAL_GROUP, REPLICAS, "list")}
    custom = {(CUSTOM_GROUP, f"{resource}/{REPLICAS}", "get") for resource in SCALED}
    custom |= {(CUSTOM_GROUP, f"pods/{metric}", "get") for metric in PER_POD}
    assert external | custom == rules(BOTH)
    assert external == rules({"mode": "hpa", "metricsApi": EXTERNAL})
    assert custom == rules({"mode": "keda", "metricsApi": CUSTOM})


def test_metrics_api_has_no_roles_if_the_chart_creates_none(render):
    things = render(BOTH | {"rbac": {"create": False}})
    assert {each["kind"] for each in of_the_api(things)} == {"APIService"}


def test_network_policy_allows_the_api_server_from_any_address(render):
    things = render(BOTH | {"networkPolicy": {"enabled": True, "monitoring": []}})
    assert the(things, "NetworkPolicy")["spec"]["ingress"] == [{"ports": [{"port": "metrics-api", "protocol": "TCP"}]}]
    closed = render({"mode": "hpa", "networkPolicy": {"enabled": True, "monitoring": []}})
    assert not the(closed, "NetworkPolicy")["spec"]["ingress"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"metricsApi": EXTERNAL}, "metricsApi.external.enabled: must be false when mode is keda: KEDA has"),
        (BOTH | {"config": {"kubernetes": None}}, "metricsApi: needs config.kubernetes"),
        (BOTH | {"tls": {"type": "none"}}, "metricsApi: needs a certificate, got tls.type none"),
        (BOTH | {"tls": {"type": "existingSecret", "existingSecret": "mine"}}, "metricsApi.caBundle: must be the CA"),
        (BOTH | {"tls": {"type": "existingSecret"}, "metricsApi": CUSTOM | {"caBundle": PEM}}, "tls.existingSecret"),
        (BOTH | {"tls": {"type": "cert-manager"}}, "tls.certManager.issuerRef.name"),
        ({"mode": "hpa", "metricsApi": CUSTOM | {"port": 8080}}, "metricsApi.port: must be another port than"),
        (BOTH | {"service": {"httpPort": 8443}}, "metricsApi.port: must be another port than service.httpPort"),
        ({"metricsApi": {"port": 443}}, "minimum"),
        ({"metricsApi": {"enabled": True}}, "enabled"),
    ],
)
def test_invalid_values_are_refused_by_name(render, refused, values, message):
    with pytest.raises(refused, match=message.replace(".", r"\.")):
        render(values)


def found(service):
    """The result of the chart's check of an existing APIService. `helm template` looks up no objects, so the found
    object is passed to the same template here.
    """
    thing = {"metadata": {"name": "v1beta1.external.metrics.k8s.io"}, "spec": {"service": service}} if service else {}
    template = '{{ include "tidegate.refuseAnothers" (dict "root" $ "switch" "external" "found" (fromJson `%s`)) }}'
    return BOTH | {"extraObjects": [template % json.dumps(thing)]}


def test_api_service_of_another_provider_is_refused_with_its_owner(render, refused):
    kedas = {"namespace": "keda", "name": "keda-operator-metrics-apiserver", "port": 443}
    message = r"metricsApi\.external\.enabled: must be false: .* belongs to keda/keda-operator-metrics-apiserver"
    with pytest.raises(refused, match=message):
        render(found(kedas))


@pytest.mark.parametrize("service", [None, {"namespace": "tidegate", "name": "tidegate", "port": 8443}])
def test_missing_api_service_or_that_of_the_release_is_accepted(render, service):
    assert len(services(render(found(service)))) == 3


def test_notes_list_the_groups_and_how_to_find_other_providers(render):
    both, custom = render.notes(BOTH), render.notes({"metricsApi": CUSTOM})
    assert "answers for custom.metrics.k8s.io and external.metrics.k8s.io.\n" in both
    assert "answers for custom.metrics.k8s.io.\n" in custom
    assert "kubectl get apiservice | grep metrics.k8s.io" in both
    assert "tidegate_metrics_api_registered of /metrics is 0" in both
    assert "metricsApi.external.enabled" in render.notes({"mode": "hpa"})
    assert "metricsApi.external.enabled" not in both
    assert "apiservice" not in render.notes()

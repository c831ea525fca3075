"""For all values the chart renders objects that Kubernetes accepts and a configuration that Tidegate accepts."""

import pytest
import yaml
from click.testing import CliRunner

from scaler.cli import main
from scaler.config import parse
from tests.deploy.shared import ci_values, the

CLUSTER_SCOPED = {
    "APIService",
    "ClusterRole",
    "ClusterRoleBinding",
    "ClusterTriggerAuthentication",
}  # cluster-scoped


@pytest.mark.parametrize("values", ci_values())
def test_kubernetes_accepts_every_object_in_its_oldest_and_its_newest_version(render, problems_of, values):
    assert [problem for thing in render(values) for problem in problems_of(thing)] == []


@pytest.mark.parametrize("values", ci_values())
def test_tidegate_accepts_the_configuration_without_a_warning(render, values):
    config = the(render(values), "ConfigMap", values.get("fullnameOverride", "tidegate"))
    _, warnings = parse(config["data"]["config.yaml"], "config.yaml")
    assert [str(warning) for warning in warnings] == []


@pytest.mark.parametrize("values", ci_values())
def test_objects_are_unique(render, values):
    things = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in render(values)]
    assert sorted(set(things), key=str) == sorted(things, key=str)


@pytest.mark.parametrize("values", ci_values())
def test_every_object_has_a_namespace_and_labels(render, values):
    for thing in render(values):
        if thing["metadata"]["name"] in {"tidegate-note", "tidegate-text"}:
            continue  # extraObjects are the user's
        assert thing["kind"] in CLUSTER_SCOPED or thing["metadata"]["namespace"], thing
        assert thing["metadata"]["labels"]["app.kubernetes.io/instance"] == "tidegate"
        assert thing["metadata"]["labels"] | values.get("commonLabels", {}) == thing["metadata"]["labels"]


@pytest.mark.parametrize("values", ci_values())
def test_selectors_match_the_pods_and_named_ports_exist(render, values):
    things = render(values)
    pod = the(things, "Deployment")["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    named = {port["name"]: port["containerPort"] for port in container["ports"]}
    selectors = [
        the(things, "Deployment")["spec"]["selector"]["matchLabels"],
        the(things, "Service")["spec"]["selector"],
    ]
    selectors += [each["spec"]["podSelector"]["matchLabels"] for each in things if each["kind"] == "NetworkPolicy"]
    kinds = {"PodDisruptionBudget", "PodMonitor"}
    selectors += [each["spec"]["selector"]["matchLabels"] for each in things if each["kind"] in kinds]
    assert [
        each for each in selectors if not each or pod["metadata"]["labels"] | each != pod["metadata"]["labels"]
    ] == []
    ports = {port["targetPort"] for port in the(things, "Service")["spec"]["ports"]}
    ports |= {container[probe]["httpGet"]["port"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
    for policy in (each for each in things if each["kind"] == "NetworkPolicy"):
        ports |= {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
    assert ports <= set(named)


@pytest.mark.parametrize("values", ci_values())
def test_ports_of_the_pod_are_the_listen_ports(render, values):
    things = render(values)
    text = the(things, "ConfigMap", values.get("fullnameOverride", "tidegate"))["data"]["config.yaml"]
    config, _ = parse(text, "config.yaml")
    (container,) = the(things, "Deployment")["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    open_to_all = config.listen.grpc.host != "127.0.0.1"
    expected = {"http": config.listen.http.port} | ({"grpc": config.listen.grpc.port} if open_to_all else {})
    if config.listen.metrics_api is not None:
        expected["metrics-api"] = config.listen.metrics_api.address.port
    if config.listen.peers is not None:
        expected["peers"] = config.listen.peers.address.port
    assert expected == ports
    assert open_to_all == (values.get("mode", "keda") == "keda")


@pytest.mark.parametrize("values", ci_values())
def test_helm_test_reads_the_service_with_the_image_of_the_release(render, values):
    things = render(values)
    pod, service = the(things, "Pod"), the(things, "Service")
    server = the(things, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    (container,) = pod["spec"]["containers"]
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    assert container["image"] == server["image"]
    (port,) = [each["port"] for each in service["spec"]["ports"] if each["name"] == "http"]
    host = f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc"
    assert container["args"] == ["top", "--once", f"--server=http://{host}:{port}"]
    selector = service["spec"]["selector"]
    assert pod["metadata"]["labels"] | selector != pod["metadata"]["labels"]  # it is no endpoint of the Service


def test_helm_test_fails_if_nothing_answers():
    done = CliRunner().invoke(main, ["top", "--once", "--server=http://127.0.0.1:1"])
    assert done.exit_code != 0


def test_configuration_is_a_directory_because_a_subpath_never_changes(render):
    pod = the(render(), "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert mounts["config"] == {"name": "config", "mountPath": "/etc/tidegate/config", "readOnly": True}
    assert container["args"] == ["run", "--config=/etc/tidegate/config/config.yaml"]
    assert not any("subPath" in mount for mount in mounts.values())


def test_changed_configuration_does_not_restart_the_pod(render):
    values = {"config": {"scrape": {"interval": "2s"}}}
    assert the(render(values), "Deployment") == the(render(), "Deployment")


@pytest.mark.parametrize(
    "values",
    [
        {"listenHost": "[::]"},
        {"httpHosts": ["tidegate.example.com"]},
        {"mode": "hpa", "metricsApi": {"external": {"enabled": True}, "custom": {"enabled": True}}},
    ],
)
def test_changed_listen_address_restarts_the_pod_because_a_reload_ignores_it(render, values):
    def pod(values):
        return the(render.anew(values), "Deployment")["spec"]["template"]

    before = {"mode": "hpa", "metricsApi": {"external": {"enabled": True}}}
    assert pod(before) == pod(before)
    assert pod(before) != pod(before | values)


def test_large_numbers_and_nulls_reach_the_configuration_unchanged(render):
    written = {"scrape": {"body_limit": 16777216}, "kubernetes": {"dcgm_exporter": None}}
    text = the(render({"config": written}), "ConfigMap")["data"]["config.yaml"]
    config, _ = parse(text, "config.yaml")
    assert config.scrape.body_limit == 16777216
    assert config.kubernetes is not None
    assert config.kubernetes.dcgm_exporter is None
    assert yaml.safe_load(text)["scrape"] == {"body_limit": 16777216}


def test_hosts_of_an_ingress_reach_the_configuration(render):
    text = the(render({"httpHosts": ["tidegate.example.com"]}), "ConfigMap")["data"]["config.yaml"]
    config, _ = parse(text, "config.yaml")
    assert config.listen.http_hosts == ("tidegate.example.com",)


def test_disruption_budget_exists_with_more_than_one_replica(render):
    assert not [each for each in render() if each["kind"] == "PodDisruptionBudget"]
    assert the(render({"replicas": 2}), "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"tls": {"type": "cert-manager"}}, "tls.certManager.issuerRef.name"),
        ({"tls": {"type": "existingSecret"}}, "tls.existingSecret"),
        (
            {"tls": {"type": "cert-manager", "certManager": {"issuerRef": {"kind": "Issuer", "name": "ca"}}}},
            "tls.certManager.issuerRef.kind: must be ClusterIssuer, got Issuer",
        ),
        ({"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}}, "only one may be true"),
        (
            {"dashboards": {"enabled": True, "json": {"tidegate-gpu": "{}"}}},
            "dashboards.json.tidegate-gpu: must not be the name of a board of Tidegate's own",
        ),
        ({"replicas": 0}, "minimum"),
        ({"replica": 1}, "replica"),
        ({"mode": "both"}, "mode"),
        ({"config": {"scrape": {"intervall": "5s"}}}, "intervall"),
        ({"config": {"listen": {"http": "0.0.0.0:80"}}}, "listen"),
        ({"config": {"tick": ""}}, "tick"),
    ],
)
def test_invalid_values_are_refused_by_name(render, refused, values, message):
    with pytest.raises(refused, match=message.replace(".", r"\.")):
        render(values)

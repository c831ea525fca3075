"""Installs the shipped chart, and runs the daemon as a process of this host in the place of its pod.

The objects are those that Helm's engine renders, and are created as they are: ServiceAccount, roles, Service,
NetworkPolicy, APIServices. No node takes the pod. The daemon has a token of the chart's ServiceAccount, so that a
missing permission shows, and the chart's configuration with addresses of this host and short times. An EndpointSlice
leads the chart's Service to this host.

An APIService of another provider (KEDA's for external metrics) is borrowed, and restored afterwards.
"""

import base64
from copy import deepcopy
from pathlib import Path

import yaml

from tests.deploy.shared import CHART, module, objects, the

from .hollow_node import LABEL, LABELS
from .waiting import until

NAME = "tidegate"
TOKEN_S = 7200
KEDA = {"mode": "keda", "tls": {"type": "none"}}
# As shipped: certificates of the chart for both sides. The ClusterTriggerAuthentication belongs to the whole cluster.
AUTHENTICATION = f"{NAME}-e2e"
KEDA_MTLS = {"mode": "keda", "keda": {"clusterTriggerAuthentication": {"name": AUTHENTICATION}}}
METRICS_API = {"mode": "hpa", "metricsApi": {"external": {"enabled": True}, "custom": {"enabled": True}}}
# The daemon runs on this host, so the pod must not.
PENDING = {"nodeSelector": {LABEL: "no-node"}, "networkPolicy": {"enabled": True}, "commonLabels": LABELS}
RESTRICTED = {**LABELS, "pod-security.kubernetes.io/enforce": "restricted"}  # as deploy/kustomize/base/namespace.yaml
# Fresh for 3 s, then held for 25 s, so that a test covers both the held decision and the error.
HOLD_S = 25
TIMES = f"""\
scrape: {{interval: 0.5s, timeout: 0.5s}}
freshness: {{intervals: 6, hold: {HOLD_S}s, impute_after: 3s, at_start: 0s}}
tick: 0.2s
log: {{format: json}}
"""


def rendered(values, namespace):
    """The objects of the chart with these values, without those of `helm test`."""
    helm = module("helm_python", "helm-python-sdk")
    with helm.Chart.load(CHART) as chart:
        files = chart.render(values, name=NAME, namespace=namespace)
    found = [each for file, text in files.items() if not file.endswith(".txt") for each in objects(text)]
    kept = [each for each in found if "helm.sh/hook" not in each["metadata"].get("annotations", {})]
    return sorted(kept, key=lambda each: each["kind"] == "Deployment")  # as Helm does: its ServiceAccount is first


class Release:
    """namespace: of the chart. server_name: in the certificate of the metrics API. reader: the ClusterRole that may
    read the metrics.
    """

    def __init__(self, api, namespace, values, host):
        self.namespace, self.server_name = namespace, f"{NAME}.{namespace}.svc"
        self.reader = f"{namespace}-{NAME}-metrics-reader"
        self._api, self._host = api, host
        documents = rendered({**PENDING, **values}, namespace)
        self._services = [each for each in documents if each["kind"] == "APIService"]
        self._documents = [each for each in documents if each["kind"] != "APIService"]
        self._created, self._borrowed = [], {}

    def install(self):
        self._api.post("/api/v1/namespaces", {"metadata": {"name": self.namespace, "labels": RESTRICTED}})
        for document in self._documents:
            self._created.append(f"{self._api.collection(document)}/{document['metadata']['name']}")
            self._api.create(document)

    def uninstall(self):
        self._give_back()
        for path in reversed(self._created):
            self._api.delete(path)
        self._api.delete(f"/api/v1/namespaces/{self.namespace}")

    @property
    def ca(self):
        """The CA of the metrics API's certificate, PEM."""
        return self._secret()["ca.crt"]

    def kubeconfig(self, folder):
        """A file with a token of the chart's ServiceAccount."""
        account = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{NAME}"
        token = self._api.post(f"{account}/token", {"spec": {"expirationSeconds": TOKEN_S}})["status"]["token"]
        document = {
            "clusters": [{"name": "e2e", "cluster": self._api.access()}],
            "users": [{"name": NAME, "user": {"token": token}}],
            "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": NAME}}],
            "current-context": "e2e",
        }
        file = folder / "kubeconfig"
        file.write_text(yaml.safe_dump(document), encoding="utf-8")
        return file

    def configuration(self, folder, ports):
        """A file with the chart's configuration, in which addresses, files and times are those of this test."""
        shipped = yaml.safe_load(the(self._documents, "ConfigMap")["data"]["config.yaml"])
        shipped |= yaml.safe_load(TIMES)
        shipped["kubernetes"] = {**shipped["kubernetes"], "kubeconfig": str(self.kubeconfig(folder))}
        shipped["state"]["directory"] = str(folder)
        listen = shipped["listen"]
        listen |= {"http": f"127.0.0.1:{ports['http']}", "grpc": f"0.0.0.0:{ports['grpc']}"}
        for section in ("grpc_tls", "metrics_api"):
            if section in listen:
                listen[section] |= self._files(listen[section], folder)
        if "metrics_api" in listen:
            listen["metrics_api"]["address"] = f"0.0.0.0:{ports['metrics']}"
        file = folder / "config.yaml"
        file.write_text(yaml.safe_dump(shipped), encoding="utf-8")
        return file

    def register(self, port):
        """Create the chart's APIServices, and lead its Service to this port of this host. Returns when the API server
        reaches the daemon.
        """
        self._lead("metrics-api", port)
        for document in self._services:
            path = self._api.collection(document)
            name = document["metadata"]["name"]
            before = self._api.get(f"{path}/{name}")
            self._borrowed[f"{path}/{name}"] = deepcopy(before)
            if before is None:
                self._api.create(document)
            else:
                self._api.put(f"{path}/{name}", {**before, "spec": document["spec"]})
        for path in self._borrowed:
            until(lambda path=path: self._condition(path), lambda available: available[0] == "True")

    def scaler_address(self, port):
        """`scalerAddress` by the Service's name, which its certificate is for. The Service gets this port besides those
        of the chart: without kube-proxy a name of a Service that leads to this host still leads to the daemon.
        """
        service = f"/api/v1/namespaces/{self.namespace}/services/{NAME}"
        ports = self._api.get(service)["spec"]["ports"]
        self._api.patch(service, {"spec": {"ports": [*ports, {"name": "grpc-e2e", "port": port, "targetPort": port}]}})
        self._lead("grpc-e2e", port)
        return f"{self.server_name}:{port}"

    def _lead(self, name, port):
        """Lead this port of the Service to this host."""
        endpoints = {
            "metadata": {"name": f"{NAME}-{name}", "labels": {"kubernetes.io/service-name": NAME}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [self._host], "conditions": {"ready": True}}],
            "ports": [{"name": name, "port": port, "protocol": "TCP"}],
        }
        self._api.post(f"/apis/discovery.k8s.io/v1/namespaces/{self.namespace}/endpointslices", endpoints)

    def _files(self, mounted, folder):
        """For files of the mounted Secret: those of this folder, with the same content."""
        secret, found = self._secret(), {}
        for key in {"certificate", "key", "client_ca"} & set(mounted):
            file = folder / Path(mounted[key]).name
            file.write_bytes(secret[file.name])
            found[key] = str(file)
        return found

    def _give_back(self):
        for path, before in self._borrowed.items():
            if before is None:
                self._api.delete(path)
                continue
            before["metadata"]["resourceVersion"] = self._api.get(path)["metadata"]["resourceVersion"]
            self._api.put(path, before)
            until(lambda path=path: self._condition(path), lambda available: available[0] == "True")

    def _condition(self, path):
        conditions = self._api.get(path).get("status", {}).get("conditions", [])
        available = next((each for each in conditions if each["type"] == "Available"), {})
        return available.get("status"), available.get("message")

    def _secret(self):
        data = the(self._documents, "Secret", f"{NAME}-tls")["data"]
        return {name: base64.b64decode(value) for name, value in data.items()}

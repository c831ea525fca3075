"""Registers the metrics API: a Service without pods that leads to this host, and APIServices that name it.

An APIService of another provider (KEDA's for external metrics) is borrowed, and restored afterwards.
"""

import base64
from copy import deepcopy

from .waiting import until

NAMESPACE = "tidegate-e2e"
SERVICE = "tidegate"
SERVER_NAME = f"{SERVICE}.{NAMESPACE}.svc"
PORT = 8443
API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
READER = "tidegate-e2e-reader"
RULES = [
    {"apiGroups": ["external.metrics.k8s.io"], "resources": ["tidegate-replicas"], "verbs": ["list"]},
    {"apiGroups": ["custom.metrics.k8s.io"], "resources": ["deployments.apps/tidegate-replicas"], "verbs": ["get"]},
]
# The autoscaler calls as its ServiceAccount, or as the controller manager if controllers have no ServiceAccounts.
SUBJECTS = [
    {"kind": "ServiceAccount", "namespace": "kube-system", "name": "horizontal-pod-autoscaler"},
    {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "system:kube-controller-manager"},
]
GROUPS = [
    ("external.metrics.k8s.io", "v1beta1", 100),
    ("custom.metrics.k8s.io", "v1beta2", 200),
    ("custom.metrics.k8s.io", "v1beta1", 100),
]


class Registered:
    def __init__(self, api, host, port, authority):
        self._api, self._host, self._port = api, host, port
        self._ca = base64.b64encode(authority.cert_pem.bytes()).decode()
        self._lent = {}  # name: the previous document, or None

    def __enter__(self):
        self._make_service()
        self._make_rights()
        for group, version, priority in GROUPS:
            self._take(group, version, priority)
        for name in self._lent:
            until(lambda name=name: self._condition(name), lambda available: available[0] == "True")
        return self

    def __exit__(self, *_):
        for name, before in self._lent.items():
            if before is None:
                self._api.delete(f"{API_SERVICES}/{name}")
            else:
                now = self._api.get(f"{API_SERVICES}/{name}")
                before["metadata"]["resourceVersion"] = now["metadata"]["resourceVersion"]
                self._api.put(f"{API_SERVICES}/{name}", before)
        self._api.delete(f"{RBAC}/clusterrolebindings/{READER}")
        self._api.delete(f"{RBAC}/clusterroles/{READER}")
        self._api.delete(f"/api/v1/namespaces/{NAMESPACE}")
        until(lambda: self._api.get(f"/api/v1/namespaces/{NAMESPACE}"), lambda left: left is None)

    def _make_service(self):
        self._api.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        port = {"name": "https", "port": PORT, "targetPort": self._port}
        service = {"metadata": {"name": SERVICE}, "spec": {"ports": [port]}}
        self._api.post(f"/api/v1/namespaces/{NAMESPACE}/services", service)
        endpoints = {
            "metadata": {"name": f"{SERVICE}-e2e", "labels": {"kubernetes.io/service-name": SERVICE}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [self._host], "conditions": {"ready": True}}],
            "ports": [{"name": "https", "port": self._port, "protocol": "TCP"}],
        }
        self._api.post(f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices", endpoints)

    def _make_rights(self):
        self._api.post(f"{RBAC}/clusterroles", {"metadata": {"name": READER}, "rules": RULES})
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": READER}
        binding = {"metadata": {"name": READER}, "roleRef": reference, "subjects": SUBJECTS}
        self._api.post(f"{RBAC}/clusterrolebindings", binding)

    def _take(self, group, version, priority):
        name = f"{version}.{group}"
        spec = {
            "group": group,
            "version": version,
            "groupPriorityMinimum": 100,
            "versionPriority": priority,
            "service": {"namespace": NAMESPACE, "name": SERVICE, "port": PORT},
            "caBundle": self._ca,
        }
        before = self._api.get(f"{API_SERVICES}/{name}")
        self._lent[name] = deepcopy(before)
        if before is None:
            self._api.post(API_SERVICES, {"metadata": {"name": name}, "spec": spec})
        else:
            self._api.put(f"{API_SERVICES}/{name}", {**before, "spec": spec})

    def _condition(self, name):
        conditions = self._api.get(f"{API_SERVICES}/{name}").get("status", {}).get("conditions", [])
        available = next((each for each in conditions if each["type"] == "Available"), {})
        return available.get("status"), available.get("message")

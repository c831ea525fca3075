"""The namespace of one test in a real cluster: Deployments on the hollow node, a gateway, and their autoscalers."""

import json

from .hollow_node import MODEL_LABEL, Work, pod_status
from .waiting import SOON_S, history, stays, until

DEPLOYMENTS = "/apis/apps/v1/namespaces/{}/deployments"
SCALED_OBJECTS = "/apis/keda.sh/v1alpha1/namespaces/{}/scaledobjects"
CORE = "/api/v1/namespaces/{}"
HPAS = "/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers"
# Tidegate smooths, and the HPA hides no wrong decision: no window, no limit, no tolerance.
AT_ONCE = {"stabilizationWindowSeconds": 0, "tolerance": "0"}
BEHAVIOR = {
    "scaleUp": {**AT_ONCE, "policies": [{"type": "Pods", "value": 100, "periodSeconds": 1}]},
    "scaleDown": {**AT_ONCE, "policies": [{"type": "Percent", "value": 100, "periodSeconds": 1}]},
}
# For 16 requests per replica, the default for vLLM. Up as shipped: while requests move to new pods, a target that was
# scraped earlier counts them twice for up to a scrape interval. Down: a target that was scraped earlier does not count
# them at all for as long.
QUICK = {"keep_warm": "3s", "smoothing.up": "5s", "smoothing.down": "2s"}


class Tenant:
    """name: the namespace. grpc: `scalerAddress`."""

    def __init__(self, name, api, node, targets, host, grpc, tidegate):
        self.name, self.api, self.node, self.tidegate = name, api, node, tidegate
        self._targets, self._host, self._grpc = targets, host, grpc
        self._gateway = None

    def deployment(self, name, engine, *, requests=0, replicas=1, surge=1, gpus=0, sleeps=False, **metadata):
        """A Deployment with pods that share that many requests and expose `engine`'s metrics. Returns when all are
        ready: a load that starts only when the test scales is a different scenario.

        gpus: of one pod, of the node's model.
        """
        self.node.work[self.name, name] = Work(engine, requests, sleeps=sleeps)
        pod = self.node.pod_spec()
        if gpus:
            limits = {"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
            pod = self.node.pod_spec(**limits) | {"nodeSelector": {MODEL_LABEL: self.node.model}}
        spec = {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "strategy": {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": 0}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": pod},
        }
        self.api.post(DEPLOYMENTS.format(self.name), {"metadata": {"name": name, **metadata}, "spec": spec})
        self.until_settled(name, replicas)

    def gateway(self, name, text=""):
        """A Service with one pod, which has its target at this host's address, since a loopback address is no valid
        endpoint. Returns the target. One at a time.
        """
        self._gateway = target = self._targets.open(self._host)
        target.body = text
        pods, slices = f"/api/v1/namespaces/{self.name}/pods", "/apis/discovery.k8s.io/v1"
        self.api.post(pods, {"metadata": {"name": f"{name}-0"}, "spec": self.node.pod_spec()})
        self.api.patch(f"{pods}/{name}-0/status", {"status": pod_status(self._host, ready=True)})
        ports = [{"name": "metrics", "port": self._targets.port, "protocol": "TCP"}]
        service = {"metadata": {"name": name}, "spec": {"ports": ports}}
        self.api.post(f"/api/v1/namespaces/{self.name}/services", service)
        endpoints = {
            "metadata": {"name": f"{name}-e2e", "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [self._host], "conditions": {"ready": True}}],
            "ports": ports,
        }
        self.api.post(f"{slices}/namespaces/{self.name}/endpointslices", endpoints)
        return target

    def metadata(self, **metadata):
        """Keys for trigger metadata or annotations, with the port of this run's targets. None leaves a key out."""
        gateway_port = {"gateway_port": str(self._targets.port)} if "gateway" in metadata else {}
        keys = {"engine": "vllm", "port": str(self._targets.port), **gateway_port, **metadata}
        return {key: value for key, value in keys.items() if value is not None}

    def scaled_object(
        self, name, *, minimum, maximum, polling=5, cooldown=5, authentication=None, awaits_hpa=True, **metadata
    ):
        """A ScaledObject with one push trigger. Returns when KEDA has created its HPA, or at once without awaits_hpa:
        KEDA creates none while it cannot call its scaler.

        authentication: the name of a ClusterTriggerAuthentication.
        cooldown: longer than Tidegate is down. KEDA 2.20 takes an error for inactive if its HPA and its poll meet it at
        the same moment (kedacore/keda#7737), and then nothing but this time is between the load and zero.
        """
        trigger = {"type": "external-push", "metadata": {"scalerAddress": self._grpc, **self.metadata(**metadata)}}
        if authentication is not None:
            trigger["authenticationRef"] = {"kind": "ClusterTriggerAuthentication", "name": authentication}
        spec = {
            "scaleTargetRef": {"name": name},
            "minReplicaCount": minimum,
            "maxReplicaCount": maximum,
            "pollingInterval": polling,
            "cooldownPeriod": cooldown,
            "initialCooldownPeriod": 30,  # until Tidegate has scraped its targets
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": BEHAVIOR}},
            "triggers": [trigger],
        }
        document = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": name}, "spec": spec}
        self.api.post(SCALED_OBJECTS.format(self.name), document)
        if awaits_hpa:
            until(lambda: self.hpa(f"keda-hpa-{name}"), bool)

    def autoscaler(self, name, metric, *, minimum=1, maximum):
        """An HPA without KEDA. Raises ApiFailure."""
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
        bounds = {"minReplicas": minimum, "maxReplicas": maximum}
        spec = {"scaleTargetRef": target, **bounds, "metrics": [metric], "behavior": BEHAVIOR}
        self.api.post(HPAS.format(self.name), {"metadata": {"name": name}, "spec": spec})

    def hpa(self, name):
        return self.api.get(f"{HPAS.format(self.name)}/{name}")

    def set_load(self, name, *, requests=None, behaviour=None):
        """Change the requests of its pods, or the behaviour of their targets."""
        work = self.node.work[self.name, name]
        work.requests = work.requests if requests is None else requests
        work.behaviour = behaviour or work.behaviour

    def replicas(self, name):
        """spec.replicas as written by the autoscaler."""
        self.node.check()
        return self.api.get(f"{DEPLOYMENTS.format(self.name)}/{name}")["spec"]["replicas"]

    def ready(self, name):
        status = self.api.get(f"{DEPLOYMENTS.format(self.name)}/{name}")["status"]
        return status.get("readyReplicas", 0), status.get("updatedReplicas", 0), status.get("replicas", 0)

    def until_replicas(self, name, wanted, within=SOON_S):
        """Wait until it has that many replicas, all ready."""
        until(lambda: self.replicas(name), lambda n: n == wanted, within=within, describe=lambda: self.describe(name))
        self.until_settled(name, wanted)

    def until_settled(self, name, wanted):
        """Wait until it has that many pods, all ready and of the newest template."""
        until(
            lambda: self.ready(name),
            lambda ready: ready == (wanted, wanted, wanted),
            describe=lambda: self.describe(name),
        )

    def stays_at(self, name, wanted, seconds):
        stays(lambda: self.replicas(name), wanted, seconds, lambda: self.describe(name))

    def history(self, name):
        return history(lambda: self.replicas(name))

    def describe(self, name):
        """The decision and the status of the HPAs, for the message of a failure."""
        hpas = self.api.items(HPAS.format(self.name))
        status = [{"hpa": hpa["metadata"]["name"], **hpa.get("status", {})} for hpa in hpas]
        return json.dumps([self.tidegate.decision(self.name, name), status], indent=1)

    def change_template(self, name):
        """Change the pod template, as a new version of the image does."""
        change = {"spec": {"template": {"metadata": {"annotations": {"tidegate.dev/e2e-version": "2"}}}}}
        self.api.patch(f"{DEPLOYMENTS.format(self.name)}/{name}", change)

    def pods(self, name):
        return self.api.items(f"/api/v1/namespaces/{self.name}/pods", labelSelector=f"app={name}")

    def delete_pod(self, document):
        self.api.delete(f"/api/v1/namespaces/{self.name}/pods/{document['metadata']['name']}")

    def clear(self):
        """Delete all objects, ScaledObjects first: KEDA has a finalizer on them. The namespace stays, since a daemon
        that may not read it any more would start without all others.
        """
        if self._gateway is not None:
            self._targets.close(self._gateway.address)
        if self.api.get("/apis/keda.sh/v1alpha1") is not None:
            self.api.delete(SCALED_OBJECTS.format(self.name))
            until(lambda: self.api.items(SCALED_OBJECTS.format(self.name)), lambda left: not left)
        services = [
            f"services/{service['metadata']['name']}"
            for service in self.api.items(f"{CORE.format(self.name)}/services")
        ]
        for path in (HPAS.format(self.name), DEPLOYMENTS.format(self.name), f"{CORE.format(self.name)}/pods"):
            self.api.delete(path)
        for service in services:
            self.api.delete(f"{CORE.format(self.name)}/{service}")
        for key in [key for key in self.node.work if key[0] == self.name]:
            del self.node.work[key]

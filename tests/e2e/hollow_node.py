"""A node without a kubelet: its pods have no containers; this module sets their readiness, load and end.

It handles the pods of this node in every namespace, and no others. Each pod gets a loopback address with an engine's
target, which the daemon on this host can scrape. The load of a Deployment (`Work`) is spread over its ready pods. A
Terminating pod keeps its share until it ends, and the others get the rest. One more target exposes a GPU for each pod,
as dcgm-exporter does for a node. An engine with `sleeps` obeys POST /sleep and /wake_up, as vLLM in development mode.

Worked example: `node.work["ai", "llama"] = Work(page.vllm, requests=40)` with three pods: their targets show 14, 13 and
13 running requests, and change when one of the pods is deleted.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tests.conftest import Text

from .waiting import until

# On everything that outlives a killed run.
LABEL = "tidegate.dev/e2e"
LABELS = {LABEL: "true"}
MODEL_LABEL = "nvidia.com/gpu.product"
LOOK_S = 0.2
LEASE_S = 5.0
LOADING_S = 1.0
LEAVING_S = 2.0


@dataclass
class Work:
    """engine: writes an engine's metrics. requests: of all pods together. behaviour: "ok", "error", "hang" or
    "nothing". sleeps: whether it has vLLM's sleep mode.
    """

    engine: Callable[..., str]
    requests: int = 0
    behaviour: str = "ok"
    sleeps: bool = False


@dataclass
class Pod:
    path: str
    target: object
    born: float = field(default_factory=time.monotonic)
    ready: bool = False
    leaving_since: float | None = None
    share: int = 0


def moment():
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def path_of(pod):
    metadata = pod["metadata"]
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"


def pod_status(address, *, ready):
    now = moment()[:19] + "Z"
    states = {"Initialized": True, "PodScheduled": True, "ContainersReady": ready, "Ready": ready}
    conditions = [{"type": k, "status": str(v), "lastTransitionTime": now} for k, v in states.items()]
    addresses = {"podIP": address, "podIPs": [{"ip": address}]}
    return {"phase": "Running", **addresses, "conditions": conditions, "startTime": now}


class HollowNode:
    """work: {(namespace, label `app` of the pods): Work}, which tests may change at any time. model: of its GPUs."""

    def __init__(self, api, targets, name):
        self.name, self.model = name, f"E2E-{name[-6:]}"
        self.work = {}
        self._api, self._targets, self._pods = api, targets, {}
        self._over = threading.Event()
        self._failure = None
        self._leased = 0.0
        self._gpus = targets.open(targets.new_address())
        self._register()
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    def end(self):
        """Also the pods of namespaces that were deleted before."""
        until(lambda: 0 if self._failure else len(self._documents()), lambda left: left == 0)
        self._over.set()
        self._thread.join()
        self._api.delete(f"/api/v1/nodes/{self.name}")
        self._api.delete(f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{self.name}")

    def pod_spec(self, **container):
        """Of a pod on this node."""
        return {
            "nodeName": self.name,
            "tolerations": [{"operator": "Exists"}],
            "automountServiceAccountToken": False,
            "containers": [{"name": "server", "image": "example/server:1", **container}],
        }

    def allocate(self, gpus):
        """Change the number of its GPUs."""
        room = {"pods": "110", "cpu": "64", "memory": "256Gi", "nvidia.com/gpu": str(gpus)}
        self._api.patch(f"/api/v1/nodes/{self.name}/status", {"status": {"capacity": room, "allocatable": room}})

    def export_gpus(self, namespace):
        """Create a pod of dcgm-exporter, with the GPUs of this node."""
        ports = [{"name": "metrics", "containerPort": self._targets.port}]
        metadata = {"name": "dcgm-exporter", "labels": {"app.kubernetes.io/name": "dcgm-exporter"}}
        pods = f"/api/v1/namespaces/{namespace}/pods"
        self._api.post(pods, {"metadata": metadata, "spec": self.pod_spec(ports=ports)})
        self._api.patch(f"{pods}/dcgm-exporter/status", {"status": pod_status(self._gpus.address, ready=True)})

    def check(self):
        """Raises the exception of the node's thread, if any."""
        if self._failure is not None:
            raise self._failure

    def _register(self):
        taint = {"key": LABEL, "effect": "NoSchedule"}
        metadata = {"name": self.name, "labels": {**LABELS, MODEL_LABEL: self.model}}
        self._api.post("/api/v1/nodes", {"metadata": metadata, "spec": {"taints": [taint]}})
        ready = {"type": "Ready", "status": "True", "reason": "Hollow", "lastHeartbeatTime": moment()[:19] + "Z"}
        self._api.patch(f"/api/v1/nodes/{self.name}/status", {"status": {"conditions": [ready]}})
        self.allocate(64)
        self._lease()

    def _lease(self):
        """If its lease expires, a node is lost, and its pods become unready."""
        path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        spec = {"holderIdentity": self.name, "leaseDurationSeconds": 40, "renewTime": moment()}
        if self._api.patch(f"{path}/{self.name}", {"spec": spec}) is None:
            self._api.post(path, {"metadata": {"name": self.name}, "spec": spec})
        self._leased = time.monotonic()

    def _run(self):
        try:
            while not self._over.wait(LOOK_S):
                if time.monotonic() - self._leased > LEASE_S:
                    self._lease()
                self._look()
        except Exception as error:  # noqa: BLE001 - raised in the tests' thread by check()
            self._failure = error

    def _documents(self):
        return self._api.items("/api/v1/pods", fieldSelector=f"spec.nodeName={self.name}")

    def _look(self):
        there = {}
        for document in self._documents():
            metadata = document["metadata"]
            if "app" not in metadata.get("labels", {}):
                self._ends_at_once(document)
                continue
            there[metadata["uid"]] = document
            pod = self._pods.get(metadata["uid"]) or self._start(document)
            if "deletionTimestamp" in metadata:
                self._terminate(pod)
            elif not pod.ready and time.monotonic() - pod.born >= LOADING_S:
                self._put(pod, ready=True)
        for uid in [uid for uid in self._pods if uid not in there]:
            self._targets.close(self._pods.pop(uid).target.address)
        self._spread(there)

    def _ends_at_once(self, document):
        """A pod without a Deployment is managed by its test; here it only ends."""
        if "deletionTimestamp" in document["metadata"]:
            self._api.delete(path_of(document), gracePeriodSeconds=0)

    def _start(self, document):
        pod = self._pods[document["metadata"]["uid"]] = Pod(
            path_of(document), self._targets.open(self._targets.new_address())
        )
        self._put(pod, ready=False)
        return pod

    def _terminate(self, pod):
        """Terminating: no new requests, and after a while its requests are done."""
        pod.leaving_since = pod.leaving_since or time.monotonic()
        if time.monotonic() - pod.leaving_since >= LEAVING_S:
            self._api.delete(pod.path, gracePeriodSeconds=0)

    def _put(self, pod, *, ready):
        pod.ready = ready
        self._api.patch(f"{pod.path}/status", {"status": pod_status(pod.target.address, ready=ready)})

    def _spread(self, there):
        gpus, groups = Text.gpu("GPU-idle", engine=0.0), {}  # a target without content is a failed scrape
        for uid, document in there.items():
            key = document["metadata"]["namespace"], document["metadata"]["labels"]["app"]
            groups.setdefault(key, []).append(self._pods[uid])
            name = document["metadata"]["name"]
            gpus += Text.gpu(f"GPU-{uid}", [(key[0], name)], engine=0.9 if self._pods[uid].share else 0.0)
        self._gpus.body = gpus
        for key, pods in groups.items():
            if (work := self.work.get(key)) is None:
                continue
            takes = [pod for pod in pods if pod.ready and pod.leaving_since is None]
            rest = max(0, work.requests - sum(pod.share for pod in pods if pod.leaving_since is not None))
            for number, pod in enumerate(takes):
                pod.share = rest // len(takes) + (number < rest % len(takes))
            for pod in pods:
                pod.target.behaviour = work.behaviour if work.behaviour != "nothing" else "ok"
                state = {"awake": int(pod.target.calls[-1:] != ["sleep"])} if work.sleeps else {}
                metrics_text = work.engine(waiting=0, running=pod.share, finished=0, **state)
                pod.target.body = "" if work.behaviour == "nothing" else metrics_text

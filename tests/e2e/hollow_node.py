"""A node without a kubelet: its pods have no containers; this module sets their readiness, load and end.

It handles the pods of this node in every namespace, and no others. Each pod gets a loopback address with an engine's
target, which the daemon on this host can scrape. The load of a Deployment (`Work`) is spread over its ready pods. A
Terminating pod keeps its share until it ends, and the others get the rest. One more target exposes a GPU for each pod,
as dcgm-exporter does for a node.

Worked example: `node.work["ai", "llama"] = Work(page.vllm, requests=40)` with three pods: their targets show 14, 13 and
13 running requests, and change when one of the pods is deleted.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tests.conftest import Text

NAME = "tidegate-e2e"
LOOK_S = 0.1
LEASE_S = 5.0
LOADING_S = 1.0
LEAVING_S = 2.0


@dataclass
class Work:
    """engine: writes an engine's metrics. requests: of all pods together. behaviour: "ok", "error", "hang" or
    "nothing".
    """

    engine: Callable[..., str]
    requests: int = 0
    behaviour: str = "ok"


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


class HollowNode:
    """work: {(namespace, label `app` of the pods): Work}, which tests may change at any time."""

    def __init__(self, api, targets):
        self.work = {}
        self._api, self._targets, self._pods = api, targets, {}
        self._over = threading.Event()
        self._failure = None
        self._leased = 0.0
        self._gpus = targets.open(targets.new_address())
        self.gpus_url = f"http://{self._gpus.address}:{targets.port}/metrics"
        self._register()
        self._thread = threading.Thread(target=self._run, name=NAME)
        self._thread.start()

    def end(self):
        self._over.set()
        self._thread.join()
        self._api.delete(f"/api/v1/nodes/{NAME}")
        self._api.delete(f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{NAME}")

    def check(self):
        """Raises the exception of the node's thread, if any."""
        if self._failure is not None:
            raise self._failure

    def _register(self):
        taint = {"key": "tidegate.dev/e2e", "effect": "NoSchedule"}
        self._api.delete(f"/api/v1/nodes/{NAME}")
        self._api.post("/api/v1/nodes", {"metadata": {"name": NAME}, "spec": {"taints": [taint]}})
        room = {"pods": "110", "cpu": "64", "memory": "256Gi", "nvidia.com/gpu": "64"}
        ready = {"type": "Ready", "status": "True", "reason": "Hollow", "lastHeartbeatTime": moment()[:19] + "Z"}
        status = {"capacity": room, "allocatable": room, "conditions": [ready]}
        self._api.patch(f"/api/v1/nodes/{NAME}/status", {"status": status})
        self._lease()

    def _lease(self):
        """If its lease expires, a node is lost, and its pods become unready."""
        path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        spec = {"holderIdentity": NAME, "leaseDurationSeconds": 40, "renewTime": moment()}
        if self._api.patch(f"{path}/{NAME}", {"spec": spec}) is None:
            self._api.post(path, {"metadata": {"name": NAME}, "spec": spec})
        self._leased = time.monotonic()

    def _run(self):
        try:
            while not self._over.wait(LOOK_S):
                if time.monotonic() - self._leased > LEASE_S:
                    self._lease()
                self._look()
        except Exception as error:  # noqa: BLE001 - raised in the tests' thread by check()
            self._failure = error

    def _look(self):
        there = {}
        for document in self._api.items("/api/v1/pods", fieldSelector=f"spec.nodeName={NAME}"):
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
        now = moment()[:19] + "Z"
        states = {"Initialized": True, "PodScheduled": True, "ContainersReady": ready, "Ready": ready}
        conditions = [{"type": k, "status": str(v), "lastTransitionTime": now} for k, v in states.items()]
        address = pod.target.address
        status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": conditions}
        self._api.patch(f"{pod.path}/status", {"status": {**status, "startTime": now}})

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
                metrics_text = work.engine(waiting=0, running=pod.share, finished=0)
                pod.target.body = "" if work.behaviour == "nothing" else metrics_text

"""Builds Kubernetes objects as the API prints them, as small as possible but complete. `**more` is merged in.

`pod("chat-0", owner=("StatefulSet", "chat"), gpus=1)` is a ready pod; `pod("chat-0", ready=False, address=None)` is not
ready. An owner is (kind, name), from which its apiVersion and uid follow.
"""

from copy import deepcopy

CREATED = "2026-11-01T10:00:00Z"
API = {
    "Deployment": "apps/v1",
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
    "DaemonSet": "apps/v1",
    "Job": "batch/v1",
    "EndpointSlice": "discovery.k8s.io/v1",
    "HorizontalPodAutoscaler": "autoscaling/v2",
    "ScaledObject": "keda.sh/v1alpha1",
    "ScaledJob": "keda.sh/v1alpha1",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
    "Rollout": "argoproj.io/v1alpha1",
    "InferenceService": "serving.kserve.io/v1beta1",
    "InferenceSet": "kaito.sh/v1beta1",
    "Workspace": "kaito.sh/v1beta1",
    "ClusterQueue": "kueue.x-k8s.io/v1beta2",
    "LocalQueue": "kueue.x-k8s.io/v1beta2",
}


def uid(kind, name, namespace="ai"):
    return f"uid-{kind}-{namespace}-{name}".lower()


def merged(document, more):
    """`more` over `document`, mapping by mapping."""
    for key, value in more.items():
        below = document.get(key)
        document[key] = merged(dict(below), value) if isinstance(below, dict) and isinstance(value, dict) else value
    return document


def thing(kind, name, namespace="ai", *, owner=None, labels=None, annotations=None, more=None, **parts):
    """Any object: metadata, and `spec=`, `status=` and further fields as given."""
    metadata = {
        "name": name,
        "uid": uid(kind, name, namespace),
        "creationTimestamp": CREATED,
        "generation": 1,
        "managedFields": [{"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:metadata": {}}}],
    }
    if namespace is not None:
        metadata["namespace"] = namespace
    if labels:
        metadata["labels"] = dict(labels)
    if annotations:
        metadata["annotations"] = dict(annotations)
    if owner is not None:
        metadata["ownerReferences"] = [
            {
                "apiVersion": API.get(owner[0], "v1"),
                "kind": owner[0],
                "name": owner[1],
                "uid": uid(*owner, namespace),
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]
    return merged({"apiVersion": API.get(kind, "v1"), "kind": kind, "metadata": metadata, **parts}, more or {})


def pod(
    name,
    namespace="ai",
    *,
    owner=None,
    node="node-1",
    address="10.0.0.7",
    phase="Running",
    ready=True,
    leaving=False,
    gpus=0,
    gpu="nvidia.com/gpu",
    ports=None,
    labels=None,
    **more,
):
    """ports: {"metrics": 9400}. node=None: not scheduled yet, so without an address and Pending."""
    if node is None:
        address, phase, ready = None, "Pending", False
    resources = {"limits": {gpu: str(gpus)}, "requests": {gpu: str(gpus)}} if gpus else {}
    container = {
        "name": "server",
        "image": "example/server:1",
        "ports": [{"name": n, "containerPort": p, "protocol": "TCP"} for n, p in (ports or {}).items()],
        "resources": resources,
    }
    spec = {"containers": [container], "restartPolicy": "Always", "serviceAccountName": "default"}
    truth = {True: "True", False: "False"}
    conditions = [{"type": "PodScheduled", "status": truth[node is not None], "lastTransitionTime": CREATED}]
    status = {"phase": phase, "qosClass": "BestEffort", "conditions": conditions}
    if node is not None:
        spec["nodeName"] = node
        status["startTime"] = CREATED
        conditions.append({"type": "Ready", "status": truth[ready], "lastTransitionTime": CREATED})
    if address is not None:
        status["podIP"], status["podIPs"] = address, [{"ip": address}]
    document = thing("Pod", name, namespace, owner=owner, labels=labels, spec=spec, status=status, more=more)
    if leaving:
        document["metadata"]["deletionTimestamp"] = "2026-11-01T11:00:30Z"
        document["metadata"]["deletionGracePeriodSeconds"] = 30
    return document


def _scalable(kind, name, namespace, replicas, ready, more):
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}}
    status = {"replicas": replicas, "observedGeneration": 1}
    ready = replicas if ready is None else ready
    if ready:  # the API omits a zero
        status["readyReplicas"] = ready
    return thing(
        kind,
        name,
        namespace,
        labels=more.pop("labels", None),
        owner=more.pop("owner", None),
        annotations=more.pop("annotations", None),
        spec=spec,
        status=status,
        more=more,
    )


def deployment(name, namespace="ai", *, replicas=1, ready=None, **more):
    return _scalable("Deployment", name, namespace, replicas, ready, more)


def stateful_set(name, namespace="ai", *, replicas=1, ready=None, **more):
    return _scalable("StatefulSet", name, namespace, replicas, ready, more)


def leader_worker_set(name, namespace="ai", *, replicas=1, ready=None, size=2, **more):
    document = _scalable("LeaderWorkerSet", name, namespace, replicas, ready, more)
    document["spec"]["leaderWorkerTemplate"] = {"size": size}
    return document


def rollout(name, namespace="ai", *, replicas=1, ready=None, **more):
    return _scalable("Rollout", name, namespace, replicas, ready, more)


def replicaset(name, namespace="ai", *, owner=None, replicas=1, **more):
    return _scalable("ReplicaSet", name, namespace, replicas, None, {"owner": owner, **more})


def job(name, namespace="ai", *, owner=None, **more):
    return thing("Job", name, namespace, owner=owner, spec={"parallelism": 1}, status={"active": 1}, more=more)


def inference_service(name, namespace="ai", **more):
    return thing("InferenceService", name, namespace, spec={"predictor": {"minReplicas": 1}}, status={}, more=more)


def inference_set(name, namespace="ai", *, replicas=1, ready=None, **more):
    return _scalable("InferenceSet", name, namespace, replicas, ready, more)


def workspace(name, namespace="ai", *, owner=None, **more):
    return thing("Workspace", name, namespace, owner=owner, spec={}, status={}, more=more)


def scaled_object(name, namespace="ai", *, target=None, kind=None, minimum=None, maximum=None, triggers=(), **more):
    """target: the scale target, by default of the same name. kind: omitted, since KEDA's default is Deployment."""
    reference = {"name": target or name, **({"kind": kind, "apiVersion": API[kind]} if kind else {})}
    spec = {"scaleTargetRef": reference, "triggers": list(triggers)}
    if minimum is not None:
        spec["minReplicaCount"] = minimum
    if maximum is not None:
        spec["maxReplicaCount"] = maximum
    return thing("ScaledObject", name, namespace, spec=spec, status={"conditions": []}, more=more)


def scaled_job(name, namespace="ai", *, maximum=None, triggers=(), **more):
    spec = {"jobTargetRef": {"template": {"spec": {"containers": []}}}, "triggers": list(triggers)}
    if maximum is not None:
        spec["maxReplicaCount"] = maximum
    return thing("ScaledJob", name, namespace, spec=spec, status={}, more=more)


def trigger(kind="external-push", name=None, **metadata):
    """One of `triggers`: `trigger(engine="vllm")`."""
    metadata = {"scalerAddress": "tidegate.tidegate.svc:6000", **metadata}
    return {"type": kind, "metadata": metadata, **({"name": name} if name else {})}


def hpa(name, namespace="ai", *, target, kind="Deployment", minimum=1, maximum=10, owner=None, **more):
    spec = {
        "scaleTargetRef": {"kind": kind, "name": target, "apiVersion": API[kind]},
        "minReplicas": minimum,
        "maxReplicas": maximum,
        "metrics": [],
    }
    return thing("HorizontalPodAutoscaler", name, namespace, owner=owner, spec=spec, status={}, more=more)


def node(name="node-1", *, gpus=8, gpu="nvidia.com/gpu", ready=True, schedulable=True, **more):
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", **({gpu: str(gpus)} if gpus else {})}
    spec = {} if schedulable else {"unschedulable": True}
    condition = {"type": "Ready", "status": "True" if ready else "Unknown"}
    status = {"capacity": amounts, "allocatable": dict(amounts), "conditions": [condition]}
    return thing("Node", name, None, spec=spec, status=status, more=more)


def resource_quota(name, namespace="ai", *, gpus, gpu="nvidia.com/gpu", **more):
    spec = {"hard": {f"requests.{gpu}": str(gpus), "requests.cpu": "64"}}
    return thing("ResourceQuota", name, namespace, spec=spec, status={}, more=more)


def cluster_queue(name, *, gpus, reserved=0, gpu="nvidia.com/gpu", flavor="default", **more):
    flavors = [{"name": flavor, "resources": [{"name": gpu, "nominalQuota": str(gpus)}]}]
    spec = {"resourceGroups": [{"coveredResources": [gpu], "flavors": flavors}]}
    used = [{"name": flavor, "resources": [{"name": gpu, "total": str(reserved), "borrowed": "0"}]}]
    return thing("ClusterQueue", name, None, spec=spec, status={"flavorsReservation": used}, more=more)


def local_queue(name, namespace="ai", *, queue, **more):
    return thing("LocalQueue", name, namespace, spec={"clusterQueue": queue}, status={}, more=more)


def endpoint_slice(name, namespace="ai", *, service, addresses=(), unready=(), ports=None, family="IPv4", **more):
    """ports: {"": 8000} is the unnamed port."""
    endpoints = [
        {"addresses": [a], "conditions": {"ready": ready, "serving": ready, "terminating": False}}
        for ready, group in ((True, addresses), (False, unready))
        for a in group
    ]
    return thing(
        "EndpointSlice",
        name,
        namespace,
        labels={"kubernetes.io/service-name": service},
        addressType=family,
        endpoints=endpoints,
        ports=[{"name": n, "port": p, "protocol": "TCP"} for n, p in (ports or {"": 8000}).items()],
        more=more,
    )


def partly(document):
    """The object's metadata alone."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": deepcopy(document["metadata"]),
    }


def listed(resource, document):
    """The object as an item of a list: the API omits kind and apiVersion of built-in kinds there, but not of CRDs."""
    if resource.optional:
        return document
    return {key: value for key, value in document.items() if key not in {"kind", "apiVersion"}}


def status_object(code, reason, message):
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }

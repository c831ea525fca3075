"""Which kinds of objects Tidegate follows, and where the Kubernetes API keeps them. A table, and nothing else.

`metadata_only`: the API is asked for the metadata alone, because owner references are all we want of it. `optional`: a
cluster may well not have it (a CRD of something that is not installed), so that "404 Not Found" is an answer there, and
the answer is that there are none.

Worked example: `url(SCALEDOBJECTS, "ai")` is `/apis/keda.sh/v1alpha1/namespaces/ai/scaledobjects`, and
`url(SCALEDOBJECTS, None)` is `/apis/keda.sh/v1alpha1/scaledobjects`: those of all namespaces.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote


class Resource(NamedTuple):
    """name: its plural, as in the URL. path: the API group and version, as in the URL. kind: what its objects call
    themselves. namespaced: False for what belongs to the whole cluster.
    """

    name: str
    path: str
    kind: str
    namespaced: bool = True
    metadata_only: bool = False
    optional: bool = False

    @property
    def group(self) -> str:
        """The API group, as RBAC writes it: "" for the core."""
        return self.path.split("/")[2] if self.path.startswith("/apis/") else ""

    @property
    def version(self) -> str:
        """The API group and version, as an object's `apiVersion` writes it: "apps/v1", "v1"."""
        return self.path.removeprefix("/apis/").removeprefix("/api/")

    def __str__(self) -> str:
        """As kubectl takes it: "pods", "deployments.apps"."""
        return f"{self.name}.{self.group}" if self.group else self.name


PODS = Resource("pods", "/api/v1", "Pod")
NODES = Resource("nodes", "/api/v1", "Node", namespaced=False)
REPLICASETS = Resource("replicasets", "/apis/apps/v1", "ReplicaSet", metadata_only=True)
DEPLOYMENTS = Resource("deployments", "/apis/apps/v1", "Deployment")
STATEFULSETS = Resource("statefulsets", "/apis/apps/v1", "StatefulSet")
JOBS = Resource("jobs", "/apis/batch/v1", "Job", metadata_only=True)
SLICES = Resource("endpointslices", "/apis/discovery.k8s.io/v1", "EndpointSlice")
HPAS = Resource("horizontalpodautoscalers", "/apis/autoscaling/v2", "HorizontalPodAutoscaler")
SCALEDOBJECTS = Resource("scaledobjects", "/apis/keda.sh/v1alpha1", "ScaledObject", optional=True)
SCALEDJOBS = Resource("scaledjobs", "/apis/keda.sh/v1alpha1", "ScaledJob", optional=True)
LEADERWORKERSETS = Resource("leaderworkersets", "/apis/leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", optional=True)
ROLLOUTS = Resource("rollouts", "/apis/argoproj.io/v1alpha1", "Rollout", optional=True)
INFERENCESERVICES = Resource(
    "inferenceservices", "/apis/serving.kserve.io/v1beta1", "InferenceService", metadata_only=True, optional=True
)

RESOURCES = (
    PODS,
    NODES,
    REPLICASETS,
    DEPLOYMENTS,
    STATEFULSETS,
    JOBS,
    SLICES,
    HPAS,
    SCALEDOBJECTS,
    SCALEDJOBS,
    LEADERWORKERSETS,
    ROLLOUTS,
    INFERENCESERVICES,
)

# Listed when somebody checks a cluster, and never followed.
PODDISRUPTIONBUDGETS = Resource("poddisruptionbudgets", "/apis/policy/v1", "PodDisruptionBudget")
SERVICEMONITORS = Resource("servicemonitors", "/apis/monitoring.coreos.com/v1", "ServiceMonitor", optional=True)
VERTICALPODAUTOSCALERS = Resource(
    "verticalpodautoscalers", "/apis/autoscaling.k8s.io/v1", "VerticalPodAutoscaler", optional=True
)
PODMONITORS = Resource("podmonitors", "/apis/monitoring.coreos.com/v1", "PodMonitor", optional=True)
CHECKED = (
    DEPLOYMENTS,
    STATEFULSETS,
    LEADERWORKERSETS,
    ROLLOUTS,
    SCALEDOBJECTS,
    SCALEDJOBS,
    HPAS,
    PODDISRUPTIONBUDGETS,
    VERTICALPODAUTOSCALERS,
    SERVICEMONITORS,
    PODMONITORS,
)


def url(resource: Resource, namespace: str | None) -> str:
    """The path of its list. namespace: None is all of them; what belongs to no namespace is listed whole anyway."""
    if namespace is None or not resource.namespaced:
        return f"{resource.path}/{resource.name}"
    return f"{resource.path}/namespaces/{quote(namespace, safe='')}/{resource.name}"

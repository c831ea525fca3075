"""Lists the resources that Tidegate watches or checks, with their API paths.

Worked example: `url(SCALEDOBJECTS, "ai")` is `/apis/keda.sh/v1alpha1/namespaces/ai/scaledobjects`, and
`url(SCALEDOBJECTS, None)` is `/apis/keda.sh/v1alpha1/scaledobjects`: those of all namespaces.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote


class Resource(NamedTuple):
    """name: its plural, as in the URL. path: the API group and version, as in the URL.

    metadata_only: request the metadata alone, because only owner references are needed.
    optional:      a cluster may lack it (a CRD that is not installed): 404 means that there are none.
    older:         a version that has the same fields, of clusters that lack the one in `path`.
    """

    name: str
    path: str
    kind: str
    namespaced: bool = True
    metadata_only: bool = False
    optional: bool = False
    older: str = ""

    @property
    def group(self) -> str:
        """The API group as in RBAC: "" for the core."""
        return self.path.split("/")[2] if self.path.startswith("/apis/") else ""

    @property
    def before(self) -> Resource | None:
        """The same of the older version."""
        return self._replace(path=f"/apis/{self.group}/{self.older}", older="") if self.older else None

    @property
    def version(self) -> str:
        """The API group and version as in `apiVersion`: "apps/v1", "v1"."""
        return self.path.removeprefix("/apis/").removeprefix("/api/")

    def __str__(self) -> str:
        """As in kubectl: "pods", "deployments.apps"."""
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
# KAITO: an InferenceSet owns a Workspace for each replica, and a Workspace a StatefulSet.
INFERENCESETS = Resource("inferencesets", "/apis/kaito.sh/v1beta1", "InferenceSet", optional=True)
WORKSPACES = Resource("workspaces", "/apis/kaito.sh/v1beta1", "Workspace", metadata_only=True, optional=True)
QUOTAS = Resource("resourcequotas", "/api/v1", "ResourceQuota")
# Kueue. v1beta1 is served beside v1beta2 since 0.15, and alone before.
CLUSTERQUEUES, LOCALQUEUES, RESOURCEFLAVORS, COHORTS = KUEUE = tuple(
    Resource(f"{kind.lower()}s", "/apis/kueue.x-k8s.io/v1beta2", kind, namespaced, optional=True, older="v1beta1")
    for kind, namespaced in {
        "ClusterQueue": False,
        "LocalQueue": True,
        "ResourceFlavor": False,
        "Cohort": False,
    }.items()
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
    INFERENCESETS,
    WORKSPACES,
)

# Watched where GPUs are shared.
SHARED = (QUOTAS, *KUEUE)

# Listed by `tidegate lint` and never watched.
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


# Read and written one by one, and never watched.
CONFIGMAPS = Resource("configmaps", "/api/v1", "ConfigMap")
APISERVICES = Resource("apiservices", "/apis/apiregistration.k8s.io/v1", "APIService", namespaced=False)
LEASES = Resource("leases", "/apis/coordination.k8s.io/v1", "Lease")
EVENTS = Resource("events", "/apis/events.k8s.io/v1", "Event")


def url(resource: Resource, namespace: str | None, name: str = "") -> str:
    """The path of one object, or without a name of the list. namespace: None is all; ignored if cluster-scoped."""
    scope = "" if namespace is None or not resource.namespaced else f"/namespaces/{quote(namespace, safe='')}"
    collection = f"{resource.path}{scope}/{resource.name}"
    return f"{collection}/{quote(name, safe='')}" if name else collection


def permission(resource: Resource, namespace: str | None, *verbs: str, name: str = "") -> str:
    """The RBAC rule that grants Tidegate these verbs, in all namespaces (None) or one; name: for one object."""
    kind = "ClusterRole" if namespace is None or not resource.namespaced else f"Role in {namespace}"
    quoted = ", ".join(f'"{verb}"' for verb in verbs)
    names = f', resourceNames ["{name}"]' if name else ""
    rule = f'apiGroups ["{resource.group}"], resources ["{resource.name}"]{names}, verbs [{quoted}]'
    return f"give Tidegate's ServiceAccount a {kind} with {rule}"

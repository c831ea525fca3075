"""What may be asked of Kubernetes, and which gateways namespaces share.

It says what to look for and refuses to know a client: whoever asks the API server reads this.

Worked example: `kubernetes: {}` asks the API server of the cluster that Tidegate runs in, about all namespaces; pods of
dcgm-exporter are found by their labels, triggers of ScaledObjects and `tidegate.dev/` annotations make workloads.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import Field

from exporter import model
from exporter.catalog import KINDS

from .endpoint import Access, Endpoint, File, Many, Path, Port, Scheme, Section, Text, admission, page
from .kinds import GPUS
from .places import EVERYWHERE, GATEWAY_NAME, NAMESPACE_OR_ALL
from .scalars import duration, kubernetes_name

Namespaces: TypeAlias = Annotated[tuple[Annotated[str, kubernetes_name(63, "namespace")], ...], Many]


class DcgmExporter(Section):
    """How the pods of dcgm-exporter are asked. They are found by the labels of its own chart and of the GPU Operator,
    one per node. A `gpus` list, even of one page, turns the search off, so that no GPU is counted twice.
    """

    namespaces: Namespaces = ()
    """Only pods in these namespaces are believed. Empty: in any, and whoever may label a pod may then speak for a
    node's GPUs. Needed with a token or password in `access`, which each of these pods is sent."""
    port: Port | None = None
    """Port of the pages. Without it the port that the pod names for its metrics, else the kind's usual one."""
    path: Path | None = None
    """Path of the pages. Without it the kind's usual one."""
    scheme: Scheme = "http"
    """Scheme of the pages."""
    access: Access | None = None
    """How to be let in. Without it the pages are asked without credentials."""

    def page_at(self, host: str, named_port: int) -> str:
        """The URL of one pod. named_port: what the pod itself says."""
        path = KINDS[GPUS].path if self.path is None else self.path
        return page(self.scheme, host, named_port if self.port is None else self.port, path)

    def admission(self) -> model.Access:
        """How to be let in, in the exporter's words."""
        return admission(self.access or Access())


class Kubernetes(Section):
    """What is asked of the Kubernetes API. Credentials for engines' pods are not to be had here: a token would be sent
    to whatever pod says that it is an engine.
    """

    kubeconfig: File | None = None
    """Kubeconfig file, for running outside of the cluster. Without it: the ServiceAccount of Tidegate's own pod."""
    context: Text | None = None
    """Context of that file. Without it the file's current one."""
    namespaces: Namespaces = ()
    """Namespaces to watch, each by itself, for a Tidegate that may not see all. Empty: all, with one watch."""
    blind_after: Annotated[float, duration(at_least_s=1)] = 60.0
    """When the API server has not answered for so long, what it said is not known any more, and decisions that rest on
    it are held. Shorter makes a restart of the API server an outage; longer believes in pods that may be gone."""
    triggers: bool = True
    """Triggers of ScaledObjects and ScaledJobs make workloads. false: only workloads of this file."""
    annotations: bool = True
    """`tidegate.dev/` annotations on Deployments, StatefulSets, LeaderWorkerSets and Rollouts make workloads. false:
    only those of triggers and of this file."""
    events: bool = True
    """What happens to a workload (asleep, woken, held, capped ...) is also written as Events on what it scales, where
    `kubectl describe` shows it. false: nothing is written. It takes the right to create and patch Events."""
    dcgm_exporter: DcgmExporter | None = DcgmExporter()
    """How the pods of dcgm-exporter are asked. null: they are not looked for. Nor are they beside `gpus`."""


class SharedGateway(Section):
    """A gateway that triggers and annotations may name, in the namespaces that it is for."""

    name: Annotated[str, GATEWAY_NAME]
    """What they call it. In its namespaces it stands before a Service of the same name."""
    namespaces: Annotated[tuple[Annotated[str, NAMESPACE_OR_ALL], ...], Many, Field(min_length=1)]
    """The namespaces that may name it; `["*"]` is every one. Its queues are then no secret there."""
    page: Endpoint
    """Where its page is. It must live while the workloads are at zero."""

    def is_for(self, namespace: str) -> bool:
        """Workloads of that namespace may name it."""
        return namespace in self.namespaces or EVERYWHERE in self.namespaces

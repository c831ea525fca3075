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

from .access import Access, File, Many, Section, Text, admission
from .endpoint import Endpoint, Path, Port, Scheme, page
from .kinds import GPUS
from .places import EVERYWHERE, GATEWAY_NAME, NAMESPACE_OR_ALL
from .scalars import duration, kubernetes_name

Namespaces: TypeAlias = Annotated[tuple[Annotated[str, kubernetes_name(63, "namespace")], ...], Many]


class DcgmExporter(Section):
    """Discovery of dcgm-exporter pods, by the labels of its chart and of the GPU Operator. A `gpus` list disables it,
    so that no GPU counts twice.
    """

    namespaces: Namespaces = ()
    """Trusted namespaces. Empty: all; then a tenant that can label a pod can report GPU values. Required with a token
    or password in `access`, which each pod receives."""
    port: Port | None = None
    """Port. null: the metrics port that the pod names, else the kind's default."""
    path: Path | None = None
    """Path. null: the kind's default."""
    scheme: Scheme = "http"
    """Scheme."""
    access: Access | None = None
    """Credentials and TLS. null: none."""

    def page_at(self, host: str, named_port: int) -> str:
        """The URL of one pod. named_port: what the pod itself says."""
        path = KINDS[GPUS].path if self.path is None else self.path
        return page(self.scheme, host, named_port if self.port is None else self.port, path)

    def admission(self) -> model.Credentials:
        """How to be let in, in the exporter's words."""
        return admission(self.access or Access())


class Kubernetes(Section):
    """Kubernetes API access. Engine pods get no credentials, because any pod can claim to be an engine."""

    kubeconfig: File | None = None
    """Kubeconfig file, outside the cluster. null: the pod's ServiceAccount."""
    context: Text | None = None
    """Context of the kubeconfig. null: the current one."""
    namespaces: Namespaces = ()
    """Namespaces to watch, one watch each, for a Tidegate with limited rights. Empty: all, with one watch."""
    blind_after: Annotated[float, duration(at_least_s=1)] = 60.0
    """Time without an answer of the API server after which its data is unknown and dependent decisions are held.
    Shorter turns a restart of the API server into an outage; longer trusts pods that may be gone."""
    triggers: bool = True
    """Triggers of ScaledObjects and ScaledJobs define workloads."""
    annotations: bool = True
    """`tidegate.dev/` annotations on Deployments, StatefulSets, LeaderWorkerSets and Rollouts define workloads."""
    events: bool = True
    """Writes Events (asleep, woken, held, capped ...) on scale targets. Needs the right to create and patch Events."""
    dcgm_exporter: DcgmExporter | None = DcgmExporter()
    """Discovery of dcgm-exporter. null: none."""


class SharedGateway(Section):
    """Gateway for triggers and annotations of the listed namespaces."""

    name: Annotated[str, GATEWAY_NAME]
    """Its name in triggers. It takes precedence over a Service of the same name."""
    namespaces: Annotated[tuple[Annotated[str, NAMESPACE_OR_ALL], ...], Many, Field(min_length=1)]
    """Namespaces that may use it and can then read its queues; `["*"]` is all."""
    page: Endpoint
    """Its metrics endpoint, which must run while workloads are at zero."""

    def is_for(self, namespace: str) -> bool:
        """Workloads of that namespace may name it."""
        return namespace in self.namespaces or EVERYWHERE in self.namespaces

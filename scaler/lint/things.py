"""The objects of one run: what kind each is, what it is called, and which file it stands in. Pure.

A kind is known by its API group too: a `Rollout` of somebody else's group is no Rollout. Namespaces that are left
out are `default` to everybody alike.

Worked example: the document `{apiVersion: apps/v1, kind: Deployment, metadata: {name: chat}}` of the file `a.yaml` is
`Thing(..., file="a.yaml", kind="Deployment", namespace="default", name="chat")`, and reads "Deployment default/chat".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..config.documents import Value

# Of each kind that a rule reads, its API group; "" is the core's.
KINDS: Mapping[str, str] = {
    "ScaledObject": "keda.sh",
    "ScaledJob": "keda.sh",
    "HorizontalPodAutoscaler": "autoscaling",
    "Deployment": "apps",
    "StatefulSet": "apps",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io",
    "Rollout": "argoproj.io",
    "PodDisruptionBudget": "policy",
    "VerticalPodAutoscaler": "autoscaling.k8s.io",
    "ServiceMonitor": "monitoring.coreos.com",
    "PodMonitor": "monitoring.coreos.com",
}
# A Prometheus' own configuration, which says of no kind that it is.
PROMETHEUS = "Prometheus configuration"
_SCRAPES = re.compile(r"^[\"']?scrape_configs[\"']?\s*:", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Thing:
    """One object. kind: "" for what no rule reads."""

    value: Value
    file: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def key(self) -> tuple[str, str, str]:
        """What the cluster knows it by: the same twice is one object."""
        return self.kind, self.namespace, self.name


def is_prometheus(text: str) -> bool:
    return _SCRAPES.search(text) is not None


def things(document: Value, file: str) -> Iterator[Thing]:
    """The objects of a document: itself, or those of a List; none of an empty one."""
    kind, version = document.read("kind"), document.read("apiVersion")
    if kind == "List":
        for item in document.items("items"):
            yield from things(item, file)
    elif document.entries():  # an empty document is what two `---` in a row make
        group = version.rpartition("/")[0]
        if not kind and document.at("scrape_configs") is not None:
            kind = PROMETHEUS
        yield Thing(
            document,
            file,
            kind if KINDS.get(kind) == group or kind == PROMETHEUS else "",
            document.read("metadata", "namespace") or "default",
            document.read("metadata", "name"),
        )

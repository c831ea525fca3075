"""Builds objects of a cluster in one line each."""

from dataclasses import dataclass
from typing import Any

import pytest

from exporter.kubernetes.objects import Hpa, Ref, Scalable, ScaledObject, ScaledObjectTrigger
from scaler.config import Config, Endpoint, Workload
from scaler.workloads import Registry, RejectedCall, take

ADDRESS = "tidegate.tidegate.svc:6000"


def trigger(*, type="external-push", name=None, address=ADDRESS, **keys: str) -> ScaledObjectTrigger:  # noqa: A002 - KEDA's key
    """keys: the metadata; a double underscore is a dot."""
    metadata = {key.replace("__", "."): value for key, value in keys.items()}
    return ScaledObjectTrigger(type, name, {"scalerAddress": address, **metadata})


def scaled(
    name="chat", *triggers: ScaledObjectTrigger, namespace="ai", target=None, kind="ScaledObject", **counts
) -> ScaledObject:
    ref = Ref(namespace, kind, name)
    scales = target or (ref if kind == "ScaledJob" else Ref(namespace, "Deployment", name))
    return ScaledObject(ref, scales, triggers=triggers, **counts)


def deployment(name="chat", namespace="ai", kind="Deployment", owner=None, **keys: str) -> Scalable:
    annotations = {key.replace("__", "."): value for key, value in keys.items()}
    return Scalable(Ref(namespace, kind, name), owner, annotations=annotations)


def hpa(of="chat", minimum=1, maximum=10, namespace="ai", owner=None) -> Hpa:
    target = Ref(namespace, "Deployment", of)
    return Hpa(Ref(namespace, "HorizontalPodAutoscaler", of), target, minimum, maximum, owner)


def configured(name="chat", namespace="ai", **more) -> Workload:
    return Workload(namespace=namespace, name=name, engine="vllm", pods=Endpoint(dns=f"{name}.{namespace}.svc"), **more)


@dataclass
class Cluster:
    """config: with Kubernetes, and the fields that a test sets."""

    config: Config

    def take(self, *objects: Any) -> Registry:
        kinds = {kind: [each for each in objects if isinstance(each, kind)] for kind in (ScaledObject, Scalable, Hpa)}
        return take(self.config, *kinds.values())


def names(registry: Registry) -> list[str]:
    return [str(workload.key) for workload in registry.workloads]


def errors(registry: Registry) -> list[str]:
    return [str(problem) for problem in registry.object_errors if problem.severity == "error"]


def refusal(registry: Registry, name="chat", namespace="ai", **metadata: str):
    """The kind and the sentence of the rejection of such a call."""
    with pytest.raises(RejectedCall) as caught:
        registry.authorize(namespace, name, {"scalerAddress": ADDRESS, **metadata})
    return caught.value.refused.doubt, caught.value.refused.sentence


def detail(registry: Registry, name="chat", namespace="ai", **metadata: str) -> str:
    """The detail that only the operator sees of such a call."""
    with pytest.raises(RejectedCall) as caught:
        registry.authorize(namespace, name, {"scalerAddress": ADDRESS, **metadata})
    return caught.value.refused.detail

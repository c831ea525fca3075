"""Objects of a cluster as it has them, each said in a line."""

from dataclasses import dataclass
from typing import Any

import pytest

from exporter.kubernetes.objects import Hpa, Ref, Scalable, ScaledObject, ScaledObjectTrigger
from scaler.config import Config, Endpoint, Workload
from scaler.workloads import Registry, RejectedCall, take

ADDRESS = "tidegate.tidegate.svc:6000"


def trigger(*, type="external-push", name=None, address=ADDRESS, **words: str) -> ScaledObjectTrigger:  # noqa: A002 - KEDA's word
    """words: a double underscore is a dot."""
    metadata = {key.replace("__", "."): value for key, value in words.items()}
    return ScaledObjectTrigger(type, name, {"scalerAddress": address, **metadata})


def scaled(
    name="chat", *triggers: ScaledObjectTrigger, namespace="ai", target=None, kind="ScaledObject", **counts
) -> ScaledObject:
    ref = Ref(namespace, kind, name)
    scales = target or (ref if kind == "ScaledJob" else Ref(namespace, "Deployment", name))
    return ScaledObject(ref, scales, triggers=triggers, **counts)


def deployment(name="chat", namespace="ai", kind="Deployment", owner=None, **words: str) -> Scalable:
    annotations = {key.replace("__", "."): value for key, value in words.items()}
    return Scalable(Ref(namespace, kind, name), owner, annotations=annotations)


def hpa(of="chat", minimum=1, maximum=10, namespace="ai", owner=None) -> Hpa:
    target = Ref(namespace, "Deployment", of)
    return Hpa(Ref(namespace, "HorizontalPodAutoscaler", of), target, minimum, maximum, owner)


def configured(name="chat", namespace="ai", **more) -> Workload:
    return Workload(namespace=namespace, name=name, engine="vllm", pods=Endpoint(dns=f"{name}.{namespace}.svc"), **more)


@dataclass
class Cluster:
    """config: with Kubernetes, and whatever more a test says."""

    config: Config

    def take(self, *objects: Any) -> Registry:
        kinds = {kind: [each for each in objects if isinstance(each, kind)] for kind in (ScaledObject, Scalable, Hpa)}
        return take(self.config, *kinds.values())


def names(census: Registry) -> list[str]:
    return [str(workload.key) for workload in census.workloads]


def said(census: Registry) -> list[str]:
    return [str(trouble) for trouble in census.object_errors if trouble.severity == "error"]


def refusal(census: Registry, name="chat", namespace="ai", **metadata: str):
    """The doubt and the sentence of a call that must not be believed."""
    with pytest.raises(RejectedCall) as caught:
        census.authorize(namespace, name, {"scalerAddress": ADDRESS, **metadata})
    return caught.value.refused.doubt, caught.value.refused.sentence


def detail(census: Registry, name="chat", namespace="ai", **metadata: str) -> str:
    """What the operator may know of such a call, and the caller may not."""
    with pytest.raises(RejectedCall) as caught:
        census.authorize(namespace, name, {"scalerAddress": ADDRESS, **metadata})
    return caught.value.refused.detail

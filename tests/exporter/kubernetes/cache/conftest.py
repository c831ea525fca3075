"""A cluster fed with objects: `told(pod(…), deployment(…))`; all other resources are listed and empty."""

import pytest

from exporter.kubernetes.cache import Cluster
from exporter.kubernetes.objects import Ref
from exporter.kubernetes.resources import RESOURCES

BLIND_S = 60.0
T0 = 1000.0
BY_KIND = {resource.kind: resource for resource in RESOURCES}


def tell(cluster, *documents, now=T0, type="MODIFIED"):  # noqa: A002
    for document in documents:
        cluster.apply(BY_KIND[document["kind"]], type, document, now)


def forget(cluster, *documents, now=T0):
    tell(cluster, *documents, now=now, type="DELETED")


def empty():
    """Everything has been listed, and there was nothing."""
    cluster = Cluster(blind_s=BLIND_S)
    for resource in RESOURCES:
        cluster.replace(resource, None, [], T0)
    cluster.take_changes()
    return cluster


@pytest.fixture
def cluster():
    return empty()


@pytest.fixture
def told(cluster):
    def tell_it(*documents, now=T0):
        tell(cluster, *documents, now=now)
        return cluster

    return tell_it


@pytest.fixture
def ref():
    """`ref("Deployment", "chat")` in namespace ai."""
    return lambda kind, name, namespace="ai": Ref(namespace, kind, name)


@pytest.fixture
def names():
    """Names of pods, or None where they are not known."""
    return lambda pods: None if pods is None else [pod.key.pod for pod in pods]

"""Builds a cluster cache from objects: `apply(pod(…), deployment(…))`; all other resources are listed and empty."""

import pytest

from exporter.kubernetes.cache import Cluster
from exporter.kubernetes.objects import Ref
from exporter.kubernetes.resources import RESOURCES, SHARED

BLIND_S = 60.0
T0 = 1000.0
BY_KIND = {resource.kind: resource for resource in (*RESOURCES, *SHARED)}


def apply_to(cluster, *documents, now=T0, type="MODIFIED"):  # noqa: A002
    for document in documents:
        cluster.apply(BY_KIND[document["kind"]], type, document, now)


def delete_from(cluster, *documents, now=T0):
    apply_to(cluster, *documents, now=now, type="DELETED")


def empty():
    """Returns a cache in which every resource is listed and empty."""
    cluster = Cluster(blind_s=BLIND_S)
    for resource in RESOURCES:
        cluster.replace(resource, None, [], T0)
    cluster.take_changes()
    return cluster


@pytest.fixture
def cluster():
    return empty()


@pytest.fixture
def apply(cluster):
    def apply_all(*documents, now=T0):
        apply_to(cluster, *documents, now=now)
        return cluster

    return apply_all


@pytest.fixture
def ref():
    """`ref("Deployment", "chat")`: a Ref in namespace ai."""
    return lambda kind, name, namespace="ai": Ref(namespace, kind, name)


@pytest.fixture
def names():
    """`names(pods)`: the names of the pods. Returns None if the pods are unknown."""
    return lambda pods: None if pods is None else [pod.key.pod for pod in pods]

"""An Event is written on the scaled object, so that `kubectl describe deployment` shows it."""

import pytest

from exporter.kubernetes.cache import Cluster
from exporter.kubernetes.events import Subject
from exporter.kubernetes.objects import Ref
from exporter.kubernetes.resources import DEPLOYMENTS, INFERENCESERVICES, SCALEDJOBS, SCALEDOBJECTS, STATEFULSETS
from exporter.model import WorkloadKey
from scaler.api.events import EventObject, event_object
from tests.fakes import objects

LLM = WorkloadKey("ai", "llm")


@pytest.fixture
def cluster():
    cluster = Cluster(blind_s=60.0)
    for resource, document in (
        (DEPLOYMENTS, objects.deployment("llama")),
        (STATEFULSETS, objects.stateful_set("db")),
        (INFERENCESERVICES, objects.inference_service("kserved")),
        (SCALEDOBJECTS, objects.scaled_object("llm", target="llama")),
        (SCALEDJOBS, objects.scaled_job("batch")),
    ):
        cluster.apply(resource, "ADDED", document, 1000.0)
    return cluster


def subject(version, kind, name):
    return Subject(version, Ref("ai", kind, name), objects.uid(kind, name))


LLAMA = subject("apps/v1", "Deployment", "llama")
SCALED = subject("keda.sh/v1alpha1", "ScaledObject", "llm")


def test_event_is_on_the_scale_target_and_names_the_scaled_object(cluster):
    assert event_object(cluster, {LLM: Ref("ai", "Deployment", "llama")}, LLM) == EventObject(LLAMA, SCALED)
    second = WorkloadKey("ai", "llm", "decode")
    assert event_object(cluster, {second: Ref("ai", "Deployment", "llama")}, second) == EventObject(LLAMA, SCALED)


@pytest.mark.parametrize(
    ("version", "kind", "name"),
    [("apps/v1", "StatefulSet", "db"), ("serving.kserve.io/v1beta1", "InferenceService", "kserved")],
)
def test_event_of_an_annotated_workload_is_on_that_workload(cluster, version, kind, name):
    workload = WorkloadKey("ai", name)
    assert event_object(cluster, {workload: Ref("ai", kind, name)}, workload) == EventObject(
        subject(version, kind, name)
    )


def test_event_of_a_scaled_job_is_on_the_scaled_job(cluster):
    workload = WorkloadKey("ai", "batch")
    expected = EventObject(subject("keda.sh/v1alpha1", "ScaledJob", "batch"))
    assert event_object(cluster, {workload: Ref("ai", "ScaledJob", "batch")}, workload) == expected


def test_event_for_an_unwatched_target_is_on_the_scaled_object(cluster):
    for target in (Ref("ai", "Mill", "llama"), Ref("ai", "Deployment", "absent")):
        assert event_object(cluster, {LLM: target}, LLM) == EventObject(SCALED)
    assert event_object(cluster, {}, LLM) == EventObject(SCALED)


def test_workload_without_an_object_has_no_event_object(cluster):
    assert event_object(cluster, {}, WorkloadKey("ai", "unknown")) is None
    assert event_object(cluster, {}, WorkloadKey("other", "llm")) is None

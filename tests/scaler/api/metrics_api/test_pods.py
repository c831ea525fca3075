"""The metrics API serves values of single pods to HPAs with `type: Pods` and to kubectl."""

import pytest

from exporter.kubernetes.objects import Ref
from exporter.kubernetes.resources import DEPLOYMENTS, PODS, REPLICASETS
from exporter.model import PodKey, Role, Target, WorkloadKey
from tests.fakes import objects

CHAT = WorkloadKey("ai", "chat")
PATH = "/apis/custom.metrics.k8s.io/{}/namespaces/{}/pods/{}/tidegate-{}"


def path_of(metric="queue", name="*", query="", version="v1beta2", namespace="ai"):
    return PATH.format(version, namespace, name, metric) + query


def engine(name):
    return Target(f"http://{name}:8000/metrics", "vllm", Role.PODS, CHAT, pod=PodKey("ai", name))


NODE = Target("http://node:9400/metrics", "dcgm", Role.GPUS)


def chat_pod(name, at, **more):
    """Returns a pod of Deployment `chat`."""
    return objects.pod(name, owner=("ReplicaSet", "chat-7d"), status={"startTime": at}, **more)


@pytest.fixture
def pods(api):
    """Deployment `chat` with pods chat-7d-aaaaa and chat-7d-bbbbb without samples, and an unrelated pod."""
    api.workloads.decide("chat", 2)
    api.update_registry()
    api.pods.decided_by({CHAT: Ref("ai", "Deployment", "chat")})
    api.pods.apply(DEPLOYMENTS, objects.deployment("chat", replicas=2))
    api.pods.apply(REPLICASETS, objects.replicaset("chat-7d", owner=("Deployment", "chat")))
    for name in ("chat-7d-aaaaa", "chat-7d-bbbbb"):
        labels = {"app": "chat", "tier": name[-1], "pod-template-hash": "7d", "spot": ""}
        api.pods.apply(PODS, chat_pod(name, "1970-01-01T00:00:00Z", labels=labels))
    api.pods.apply(PODS, objects.pod("stranger", labels={"app": "other"}))
    return api.pods


@pytest.fixture
def both(pods, page):
    """Both pods have samples: 3 + 5 requests and 1 + 1."""
    pods.land(engine("chat-7d-aaaaa"), page.vllm(waiting=3, running=5))
    pods.land(engine("chat-7d-bbbbb"), page.vllm(waiting=1, running=1))
    return pods


@pytest.fixture
async def hpa(api):
    return await api.aggregator()


def values_of(answer):
    return {item["describedObject"]["name"]: item["value"] for item in answer.document["items"]}


@pytest.mark.parametrize(
    ("metric", "expected"), [("queue", ["8", "2"]), ("waiting", ["3", "1"]), ("running", ["5", "1"])]
)
@pytest.mark.parametrize("name", ["*", "%2A"])
async def test_autoscaler_gets_the_value_of_each_pod_by_labels(hpa, both, metric, expected, name):
    # The path of client-go's custom_metrics/versioned_client.go.
    answer = await hpa.forward(path_of(metric, name, "?labelSelector=app%3Dchat"))
    assert (answer.status, answer.document["kind"]) == (200, "MetricValueList")
    assert dict(zip(("chat-7d-aaaaa", "chat-7d-bbbbb"), expected, strict=True)) == values_of(answer)


@pytest.mark.parametrize(
    ("version", "named"),
    [
        ("v1beta1", {"metricName": "tidegate-queue", "window": 0, "selector": None}),
        ("v1beta2", {"metric": {"name": "tidegate-queue"}, "windowSeconds": 0}),
    ],
)
async def test_value_describes_its_pod_as_kubernetes_does_with_the_measurement_time(api, hpa, both, version, named):
    api.clock.time += 2.0
    answer = await hpa.forward(path_of(name="chat-7d-aaaaa", version=version))
    described = {"kind": "Pod", "namespace": "ai", "name": "chat-7d-aaaaa", "apiVersion": "v1"}
    expected = {"describedObject": described, **named, "timestamp": "1970-01-01T00:16:40Z", "value": "8"}
    assert (200, [expected]) == (answer.status, answer.document["items"])


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ("tier%3Da", "a"),
        ("tier%20in%20(b,c),app", "b"),
        ("spot,!nothing", "ab"),
        ("pod-template-hash%3D7d,tier!%3Da", "b"),
    ],
)
async def test_selector_matches_any_labels_of_the_pods(hpa, both, selector, chosen):
    answer = await hpa.forward(path_of(query=f"?labelSelector={selector}"))
    assert {f"chat-7d-{letter * 5}" for letter in chosen} == set(values_of(answer))


async def test_gpu_activity_is_in_thousandths_and_excludes_shared_gpus(hpa, both, page):
    first_gpus = page.gpu("GPU-1", ["chat-7d-aaaaa"], engine=0.25) + page.gpu("GPU-2", ["chat-7d-aaaaa"], engine=0.5)
    both.land(NODE, first_gpus + page.gpu("GPU-3", ["chat-7d-bbbbb", "stranger"], engine=1.0))
    assert values_of(await hpa.forward(path_of("gpu-engine-active"))) == {"chat-7d-aaaaa": "375m"}
    refused = await hpa.forward(path_of("gpu-engine-active", "chat-7d-bbbbb"))
    assert (refused.status, refused.document["reason"]) == (503, "ServiceUnavailable")
    assert "no target has it for a GPU that only this pod may use" in refused.document["message"]


async def test_pods_of_another_namespace_are_not_returned(api, hpa, pods, page):
    ours, theirs = Ref("ai", "Deployment", "chat"), Ref("lab", "Deployment", "chat")
    pods.decided_by({CHAT: ours, WorkloadKey("lab", "chat"): theirs})
    pods.apply(REPLICASETS, objects.replicaset("chat-7d", "lab", owner=("Deployment", "chat")))
    began = {"startTime": "1970-01-01T00:00:00Z"}
    pods.apply(PODS, objects.pod("chat-7d-ccccc", "lab", owner=("ReplicaSet", "chat-7d"), status=began))
    first_gpus = page.gpu("GPU-1", ["chat-7d-aaaaa"], engine=0.25)
    pods.land(NODE, first_gpus + page.gpu("GPU-2", [("lab", "chat-7d-ccccc")], engine=0.5))
    assert values_of(await hpa.forward(path_of("gpu-engine-active"))) == {"chat-7d-aaaaa": "250m"}
    assert values_of(await hpa.forward(path_of("gpu-engine-active", namespace="lab"))) == {"chat-7d-ccccc": "500m"}


async def test_gpu_value_from_before_the_start_of_a_pod_is_not_attributed_to_it(hpa, both, page):
    both.apply(PODS, chat_pod("chat-7d-aaaaa", "1970-01-01T00:16:20Z"))  # started 20 s ago, and values may be 30 s old
    both.land(NODE, page.gpu("GPU-1", ["chat-7d-aaaaa"], engine=0.25))
    assert (await hpa.forward(path_of("gpu-engine-active", "chat-7d-aaaaa"))).status == 503


async def test_pod_without_a_fresh_value_is_omitted_and_never_zero(api, hpa, both, page):
    api.clock.time += 16.0
    both.land(engine("chat-7d-bbbbb"), page.vllm(waiting=0, running=0))
    assert values_of(await hpa.forward(path_of())) == {"chat-7d-bbbbb": "0"}
    answer = await hpa.forward(path_of(name="chat-7d-aaaaa"))
    assert (answer.status, answer.document["reason"]) == (503, "ServiceUnavailable")
    expected = "ai/chat-7d-aaaaa: tidegate-queue is unknown; no fresh readings from 'http://chat-7d-aaaaa:8000/metrics'"
    assert expected == answer.document["message"]


async def test_list_without_any_value_is_an_error_and_not_an_empty_list(api, hpa, both):
    api.clock.time += 16.0
    answer = await hpa.forward(path_of())
    assert (answer.status, answer.document["status"]) == (503, "Failure")
    assert answer.document["message"].startswith(
        "ai/chat-7d-aaaaa and 1 more pods: tidegate-queue is unknown; no fresh"
    )
    assert "bbbbb:8000" in answer.document["message"]
    assert answer.retry_after is None


async def test_unscraped_pod_of_a_workload_is_unknown_and_not_absent(hpa, pods):
    for path in (
        path_of(),
        path_of(name="chat-7d-aaaaa"),
        path_of("gpu-engine-active", query="?labelSelector=app%3Dchat"),
    ):
        answer = await hpa.forward(path)
        assert (answer.status, answer.document["reason"]) == (503, "ServiceUnavailable")
        assert "no response of it or of its GPUs has been read" in answer.document["message"]


@pytest.mark.parametrize(
    ("name", "query", "namespace"),
    [
        ("stranger", "", "ai"),
        ("absent", "", "ai"),
        ("*", "?labelSelector=app%3Dother", "ai"),
        ("chat-7d-aaaaa", "?labelSelector=tier%3Db", "ai"),
        ("*", "?metricLabelSelector=workload%3Dcode", "ai"),
        ("*", "", "lab"),
    ],
)
async def test_pod_of_no_workload_gets_404(hpa, both, name, query, namespace):
    answer = await hpa.forward(path_of(name=name, query=query, namespace=namespace))
    assert (answer.status, answer.document["reason"]) == (404, "NotFound")


async def test_missing_pod_gets_503_while_the_registry_is_incomplete(api, hpa, both):
    api.server.take(None)
    assert (await hpa.forward(path_of(name="absent"))).status == 503
    api.update_registry()
    assert (await hpa.forward(path_of(name="absent"))).status == 404
    both.cluster.mark_lost(PODS, api.clock.now())
    api.clock.time += 3601.0
    assert (await hpa.forward(path_of(name="absent"))).status == 503


async def test_deleted_pod_has_no_value(api, hpa, both):
    both.cluster.apply(PODS, "DELETED", objects.pod("chat-7d-aaaaa"), api.clock.now())
    assert values_of(await hpa.forward(path_of())) == {"chat-7d-bbbbb": "2"}
    assert (await hpa.forward(path_of(name="chat-7d-aaaaa"))).status == 404


async def test_pods_of_an_observed_workload_are_refused(api, hpa, both):
    api.workloads.decide("chat", 2, observed=True)
    answer = await hpa.forward(path_of())
    assert (answer.status, answer.document["reason"]) == (403, "Forbidden")
    assert "mode: observe" in answer.document["message"]


async def test_pod_of_two_workloads_has_the_largest_value_and_none_while_one_is_missing(api, hpa, pods, page):
    decode, ref = WorkloadKey("ai", "chat", "decode"), Ref("ai", "Deployment", "chat")
    pods.decided_by({CHAT: ref, decode: ref})
    first = engine("chat-7d-aaaaa")
    second = Target(first.url, "vllm", Role.PODS, decode, pod=first.pod)
    pods.land(first, page.vllm(waiting=2, running=0))
    pods.expect(second)
    assert (await hpa.forward(path_of(name="chat-7d-aaaaa"))).status == 503
    pods.land(second, page.vllm(waiting=7, running=0))
    assert values_of(await hpa.forward(path_of())) == {"chat-7d-aaaaa": "7"}
    assert values_of(await hpa.forward(path_of(query="?metricLabelSelector=workload%3Dchat"))) == {"chat-7d-aaaaa": "2"}


async def test_field_selector_is_refused(hpa, both):
    answer = await hpa.forward(path_of(query="?fieldSelector=spec.nodeName%3Dnode-1"))
    assert (answer.status, answer.document["reason"]) == (400, "BadRequest")


async def test_access_review_names_a_subresource_of_pods(api, hpa, both):
    api.kubernetes.reviews.clear()
    await hpa.forward(path_of(query="?labelSelector=app%3Dchat"))
    [(kind, spec)] = api.kubernetes.reviews
    attributes = spec["resourceAttributes"]
    assert kind == "SubjectAccessReview"
    expected = {"verb": "get", "group": "custom.metrics.k8s.io", "resource": "pods", "subresource": "tidegate-queue"}
    assert expected == {key: attributes[key] for key in expected}
    assert (attributes["namespace"], attributes["name"]) == ("ai", "*")

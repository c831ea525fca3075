"""The metrics API serves decisions of the Board to HPAs, or errors, and never an undecided 0."""

import pytest
from structlog.testing import capture_logs

from exporter.kubernetes.objects import Ref
from exporter.model import WorkloadKey
from scaler.controllers.hpa import HpaMemory, HpaMetric, HpaSpec, Limit, step
from scaler.model import Evidence, Objective, Reason
from tests.fakes.aggregator import certificate

EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1/namespaces/ai/tidegate-replicas"
CUSTOM = "/apis/custom.metrics.k8s.io/{}/namespaces/ai/{}"


def evidence(*objectives):
    return Evidence(objectives=tuple(Objective(name, None, 4.0, replicas) for name, replicas in objectives))


@pytest.fixture
async def hpa(api):
    return await api.aggregator()


@pytest.fixture
def decide(api):
    def decide(*args, **more):
        api.workloads.decide(*args, **more)
        api.update_registry()

    return decide


async def test_answer_rests_on_the_evidence_of_the_last_sweep(api, hpa, decide):
    decide("chat", 3, evidence=evidence(("work", 2.5)))

    async def renew():
        decide("chat", 3, evidence=evidence(("work", 2.75)))

    api.workloads.publisher.renew = renew
    answer = await hpa.forward(CUSTOM.format("v1beta2", "deployments.apps/chat/tidegate-demand"))
    assert answer.document["items"][0]["value"] == "2750m"


async def test_value_is_the_decided_replicas_with_the_measurement_time(hpa, decide):
    decide("chat", 3, measured_at=1767225599.9)
    answer = await hpa.forward(f"{EXTERNAL}?labelSelector=workload%3Dchat")
    assert answer.status == 200
    expected = {
        "metricName": "tidegate-replicas",
        "metricLabels": {"workload": "chat"},
        "timestamp": "2025-12-31T23:59:59Z",
        "window": 0,
        "value": "3",
    }
    assert answer.document == {
        "kind": "ExternalMetricValueList",
        "apiVersion": "external.metrics.k8s.io/v1beta1",
        "metadata": {},
        "items": [expected],
    }


async def test_time_is_that_of_the_decision_without_a_reading(hpa, decide):
    decide("chat", 1, decided_at=60.0)
    [item] = (await hpa.forward(EXTERNAL)).document["items"]
    assert item["timestamp"] == "1970-01-01T00:01:00Z"


async def test_request_without_a_selector_lists_its_namespace(hpa, decide):
    decide("chat", 3)
    decide("code", 0)
    decide("chat", 7, namespace="lab")
    items = (await hpa.forward(EXTERNAL)).document["items"]
    assert [(item["metricLabels"]["workload"], item["value"]) for item in items] == [("chat", "3"), ("code", "0")]


async def test_second_trigger_has_a_separate_label_and_is_not_added_to_the_first(hpa, decide):
    decide("chat", 3)
    decide("chat", 5, trigger="decode")
    assert await hpa.external("ai", "tidegate-replicas", "workload=chat") == 3
    assert await hpa.external("ai", "tidegate-replicas", "workload=chat/decode") == 5


async def test_held_decision_has_the_held_replicas(hpa, decide):
    decide("chat", 4, reason=Reason.HELD, held_since=900.0, measured_at=880.0)
    assert await hpa.external("ai", "tidegate-replicas", "workload=chat") == 4


async def test_unknown_workload_gets_404(hpa, decide):
    decide("chat", 3)
    answer = await hpa.forward(f"{EXTERNAL}?labelSelector=workload%3Dchta")
    message = answer.document.pop("message")
    assert answer.status == 404
    assert answer.document == {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "NotFound", "code": 404,
    }  # fmt: skip
    assert "matchLabels: {workload: NAME}" in message


async def test_missing_workload_gets_503_before_the_first_registry(api, hpa):
    api.server.take(None)
    answer = await hpa.forward(EXTERNAL)
    assert (answer.status, answer.document["reason"]) == (503, "ServiceUnavailable")


async def test_unknown_decision_gets_503_with_the_stale_targets(hpa, decide, clock):
    decide("chat", None, evidence=Evidence(stale=("http://10.0.0.7:8000/metrics",)))
    clock.advance(30.0)
    answer = await hpa.forward(f"{EXTERNAL}?labelSelector=workload%3Dchat")
    assert (answer.status, answer.document["status"]) == (503, "Failure")
    expected = "ai/chat: unknown for 30 s; no fresh readings from 'http://10.0.0.7:8000/metrics'"
    assert expected == answer.document["message"]
    # client-go would wait for Retry-After and block a worker of the HPA controller.
    assert answer.retry_after is None


async def test_undecided_workload_gets_503(api, hpa):
    api.workloads.add(WorkloadKey("ai", "chat"))
    api.update_registry()
    answer = await hpa.forward(f"{EXTERNAL}?labelSelector=workload%3Dchat")
    assert (
        answer.status,
        answer.document["message"],
    ) == (503, "ai/chat: no decision yet; waiting for readings")


async def test_unknown_workload_in_a_list_is_an_error_and_not_a_smaller_sum(hpa, decide):
    decide("chat", 3)
    decide("code", None)
    assert await hpa.external("ai", "tidegate-replicas") is None
    assert await hpa.external("ai", "tidegate-replicas", "workload=chat") == 3


async def test_both_apis_return_the_published_replicas(hpa, decide):
    decide("chat", 11, published=12)
    assert await hpa.external("ai", "tidegate-replicas", "workload=chat") == 12
    path = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/ai/deployments.apps/chat/tidegate-replicas"
    (item,) = (await hpa.forward(path)).document["items"]
    assert item["value"] == "12"


async def test_observed_workload_is_refused(hpa, decide):
    decide("chat", 3, observed=True)
    answer = await hpa.forward(EXTERNAL)
    assert (answer.status, answer.document["reason"]) == (403, "Forbidden")
    assert "mode: observe" in answer.document["message"]


@pytest.mark.parametrize(
    "path",
    [
        "/apis/external.metrics.k8s.io/v1beta1/tidegate-replicas",
        "/apis/external.metrics.k8s.io/v1beta1/namespaces/ai/tidegate-demand",
        "/apis/external.metrics.k8s.io/v1beta2/namespaces/ai/tidegate-replicas",
        "/apis/external.metrics.k8s.io/v1beta1/namespaces/ai/tidegate-replicas/chat",
        "/apis/custom.metrics.k8s.io/v1beta2/namespaces/ai/pods/*/tidegate-replicas",
        "/apis/custom.metrics.k8s.io/v1beta2/namespaces/ai/deployments.apps/*/tidegate-queue",
        "/apis/custom.metrics.k8s.io/v1beta2/namespaces/ai/metrics/tidegate-replicas",
        "/apis/metrics.k8s.io/v1beta1/namespaces/ai/pods",
        "/metrics",
        "/",
    ],
)
async def test_unknown_path_gets_404(hpa, path):
    answer = await hpa.forward(path)
    assert (answer.status, answer.document["reason"]) == (404, "NotFound")


async def test_invalid_selector_gets_400(hpa, decide):
    decide("chat", 3)
    answer = await hpa.forward(f"{EXTERNAL}?labelSelector=workload%3E3")
    assert (answer.status, answer.document["reason"]) == (400, "BadRequest")
    assert "got 'workload>3'" in answer.document["message"]


@pytest.mark.parametrize(
    ("version", "named"),
    [
        ("v1beta1", {"metricName": "tidegate-demand", "window": 0, "selector": None}),
        ("v1beta2", {"metric": {"name": "tidegate-demand"}, "windowSeconds": 0}),
    ],
)
async def test_demand_is_served_for_the_scale_target_in_both_versions(hpa, decide, version, named):
    decide("llm", 3, target="chat", evidence=evidence(("work", 2.75), ("kv_cache", None)), measured_at=60.0)
    answer = await hpa.forward(CUSTOM.format(version, "deployments.apps/chat/tidegate-demand"))
    described = {"kind": "Deployment", "namespace": "ai", "name": "chat", "apiVersion": "apps/v1"}
    expected = {"describedObject": described, **named, "timestamp": "1970-01-01T00:01:00Z", "value": "2750m"}
    assert (200, [expected]) == (answer.status, answer.document["items"])


async def test_demand_is_that_of_the_largest_objective(hpa, decide):
    decide("chat", 5, evidence=evidence(("work", 2.5), ("kv_cache", 4.2)))
    answer = await hpa.forward(CUSTOM.format("v1beta2", "deployments.apps/chat/tidegate-demand"))
    assert [item["value"] for item in answer.document["items"]] == ["4200m"]


@pytest.mark.parametrize(
    "more",
    [
        {"evidence": evidence(("work", None), ("gpu_engine", 1.0))},
        {"evidence": evidence(("work", 2.0)), "held_since": 990.0},
        {"evidence": evidence(("kv_cache", 2.0))},
        {},
    ],
)
async def test_partly_unknown_demand_is_an_error_while_the_replicas_are_served(hpa, decide, more):
    decide("chat", 3, **more)
    demand = await hpa.forward(CUSTOM.format("v1beta2", "deployments.apps/chat/tidegate-demand"))
    replicas = await hpa.forward(CUSTOM.format("v1beta2", "deployments.apps/chat/tidegate-replicas"))
    assert (demand.status, replicas.status) == (503, 200)
    assert demand.document["message"].startswith("ai/chat: demand is unknown")


async def test_object_with_several_workloads_has_the_largest_value(hpa, decide):
    decide("chat", 3)
    decide("chat", 5, trigger="decode", target="chat")
    path = CUSTOM.format("v1beta2", "deployments.apps/chat/tidegate-replicas")
    assert [item["value"] for item in (await hpa.forward(path)).document["items"]] == ["5"]
    one = await hpa.forward(f"{path}?metricLabelSelector=workload%3Dchat")
    assert [item["value"] for item in one.document["items"]] == ["3"]
    decide("chat", None, trigger="decode", target="chat")
    assert (await hpa.forward(path)).status == 503


async def test_star_lists_all_objects_of_a_kind(hpa, decide):
    decide("chat", 3)
    decide("code", 2)
    decide("batch", 9, kind="StatefulSet")
    answer = await hpa.forward(CUSTOM.format("v1beta2", "deployments.apps/*/tidegate-replicas"))
    found = [(item["describedObject"]["name"], item["value"]) for item in answer.document["items"]]
    assert found == [("chat", "3"), ("code", "2")]


async def test_selector_of_object_labels_is_refused(hpa, decide):
    decide("chat", 3)
    path = CUSTOM.format("v1beta2", "deployments.apps/*/tidegate-replicas?labelSelector=app%3Dchat")
    answer = await hpa.forward(path)
    assert (answer.status, answer.document["reason"]) == (400, "BadRequest")


async def test_object_that_no_workload_scales_gets_404(api, hpa, decide):
    decide("chat", 3)
    api.workloads.add(WorkloadKey("ai", "code"), Ref("ai", "StatefulSet", "code"))
    answer = await hpa.forward(CUSTOM.format("v1beta2", "deployments.apps/code/tidegate-replicas"))
    assert (answer.status, answer.document["reason"]) == (404, "NotFound")


async def test_autoscaler_follows_the_decisions_and_keeps_the_replicas_during_an_outage(hpa, decide):
    """The HPA scales up to 3, stays at 3 during an outage, goes on towards 7, and scales down only after a decision."""
    spec, memory, replicas, orders = HpaSpec(max_replicas=10, tolerance=0.0, window_s=0.0), HpaMemory(), 1, []
    for now, decided in enumerate([3, None, 7, None, 2]):
        decide("chat", decided)
        value = await hpa.external("ai", "tidegate-replicas", "workload=chat")
        outcome, memory = step(spec, memory, [HpaMetric(value, 1.0)], replicas, replicas, float(now))
        replicas = outcome.replicas
        orders.append((replicas, outcome.limit is Limit.ERROR))
    # One sync may double the replicas or reach 4, whichever is more: from 3 it reaches 6, not 7.
    assert orders == [(3, False), (3, True), (6, False), (6, True), (2, False)]


async def test_every_request_is_observed_with_its_group_and_status(api, hpa, decide):
    decide("chat", 3)
    await hpa.forward("/apis/external.metrics.k8s.io/v1beta1")
    await hpa.forward(EXTERNAL)
    stranger = await api.connect(certificate(api.proxy_ca, "stranger"))
    await stranger.forward(EXTERNAL)
    group = "external.metrics.k8s.io"
    assert [("discovery", "200"), (group, "200"), (group, "401")] == [each[:2] for each in api.observed]


async def test_bug_gets_500_and_is_logged(api, hpa, decide):
    class Broken:
        @property
        def board(self):
            raise ZeroDivisionError

    decide("chat", 3)
    api.server._publisher = Broken()
    with capture_logs() as logs:
        answer = await hpa.forward(EXTERNAL)
    assert (answer.status, answer.document["reason"]) == (500, "InternalError")
    assert [log["event"] for log in logs] == ["metrics API request failed"]

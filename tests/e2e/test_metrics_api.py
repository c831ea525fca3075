"""An HPA without KEDA, through the API server's aggregation: external and object metrics, and scale to zero."""

from http import HTTPStatus

import pytest

from .api import ApiFailure
from .tenant import DEPLOYMENTS, QUICK
from .waiting import until

TARGET = {"type": "AverageValue", "averageValue": "1"}


def external(name):
    metric = {"name": "tidegate-replicas", "selector": {"matchLabels": {"workload": name}}}
    return {"type": "External", "external": {"metric": metric, "target": TARGET}}


def on_the_object(name):
    described = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    metric = {"name": "tidegate-replicas"}
    return {"type": "Object", "object": {"describedObject": described, "metric": metric, "target": TARGET}}


def annotations(tenant, **metadata):
    return {f"tidegate.dev/{key}": value for key, value in tenant.metadata(**metadata).items()}


@pytest.mark.parametrize("metric", [external, on_the_object])
def test_hpa_follows_the_load_and_keeps_replicas_while_the_daemon_is_dead(tenant, page, registered, metric):
    tenant.deployment("llama", page.vllm, requests=40, annotations=annotations(tenant, **QUICK))
    tenant.autoscaler("llama", metric("llama"), maximum=9)
    tenant.until_replicas("llama", 3)
    tenant.set_load("llama", requests=70)
    tenant.until_replicas("llama", 5)
    tenant.stays_at("llama", 5, 5)
    tenant.tidegate.kill()
    tenant.stays_at("llama", 5, 25)
    tenant.tidegate.start()
    tenant.stays_at("llama", 5, 25)
    tenant.set_load("llama", requests=20)
    tenant.until_replicas("llama", 2)


@pytest.mark.parametrize("metric", [external, on_the_object])
def test_hpa_scales_to_zero_and_back_if_the_cluster_allows_it(tenant, page, registered, metric):
    front = tenant.gateway("front", page.epp(held=0, ready=1))
    metadata = annotations(tenant, gateway="front", **QUICK)
    tenant.deployment("llama", page.vllm, requests=40, replicas=3, annotations=metadata)
    try:
        tenant.autoscaler("llama", metric("llama"), minimum=0, maximum=9)
    except ApiFailure as failure:
        if failure.status == HTTPStatus.UNPROCESSABLE_ENTITY and "minReplicas" in str(failure):
            pytest.skip("this cluster refuses minReplicas: 0 (HPAScaleToZero is off)")
        raise
    tenant.until_replicas("llama", 3)
    tenant.set_load("llama", requests=0)
    tenant.until_replicas("llama", 0)
    tenant.stays_at("llama", 0, 20)
    front.body = page.epp(held=20, ready=0)
    tenant.until_replicas("llama", 2)


def test_unknown_workload_is_an_error_for_the_hpa_and_no_zero(tenant, page, registered):
    tenant.deployment("llama", page.vllm, requests=40, replicas=4)
    tenant.autoscaler("llama", external("llama"), maximum=9)
    tenant.stays_at("llama", 4, 25)
    path = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{tenant.name}/tidegate-replicas"
    status, document = tenant.api.request("GET", f"{path}?labelSelector=workload%3Dllama")
    assert (status, document["kind"], document["reason"]) == (HTTPStatus.NOT_FOUND, "Status", "NotFound")
    # Tidegate publishes the same metric once an annotation names the engine.
    change = {"metadata": {"annotations": annotations(tenant, **QUICK)}}
    tenant.api.patch(f"{DEPLOYMENTS.format(tenant.name)}/llama", change)
    tenant.until_replicas("llama", 3)


def test_api_group_of_another_provider_is_logged_and_so_is_its_registration(tidegate, request):
    external = "v1beta1.external.metrics.k8s.io"

    def lines_of(event):
        return [line for line in tidegate.logged(event) if line["api_service"] == external]

    tidegate.stop()
    tidegate.start()
    (error,) = until(lambda: lines_of("API group has another provider"), bool)
    assert error["ours"] == "Service tidegate-e2e/tidegate"
    request.getfixturevalue("registered")
    until(lambda: lines_of("API group registered"), bool)  # checked every minute

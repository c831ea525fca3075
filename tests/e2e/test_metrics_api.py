"""An HPA without KEDA, through the API server's aggregation: external and object metrics, and to zero."""

from http import HTTPStatus

import pytest

from .api import ApiFailure
from .place import DEPLOYMENTS, QUICK
from .waiting import until

TARGET = {"type": "AverageValue", "averageValue": "1"}


def external(name):
    metric = {"name": "tidegate-replicas", "selector": {"matchLabels": {"workload": name}}}
    return {"type": "External", "external": {"metric": metric, "target": TARGET}}


def on_the_object(name):
    described = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    metric = {"name": "tidegate-replicas"}
    return {"type": "Object", "object": {"describedObject": described, "metric": metric, "target": TARGET}}


def annotations(place, **words):
    return {f"tidegate.dev/{key}": value for key, value in place.words(**words).items()}


@pytest.mark.parametrize("metric", [external, on_the_object])
def test_an_hpa_follows_the_load_up_and_down_and_stays_while_the_daemon_is_dead(place, page, registered, metric):
    place.deployment("llama", page.vllm, requests=40, annotations=annotations(place, **QUICK))
    place.autoscaler("llama", metric("llama"), maximum=9)
    place.until_replicas("llama", 3)
    place.has("llama", requests=70)
    place.until_replicas("llama", 5)
    place.stays_at("llama", 5, 5)
    place.tidegate.kill()
    place.stays_at("llama", 5, 25)
    place.tidegate.start()
    place.stays_at("llama", 5, 25)
    place.has("llama", requests=20)
    place.until_replicas("llama", 2)


@pytest.mark.parametrize("metric", [external, on_the_object])
def test_an_hpa_goes_to_zero_and_back_where_the_cluster_lets_it(place, page, registered, metric):
    front = place.gateway("front", page.epp(held=0, ready=1))
    words = annotations(place, gateway="front", **QUICK)
    place.deployment("llama", page.vllm, requests=40, replicas=3, annotations=words)
    try:
        place.autoscaler("llama", metric("llama"), minimum=0, maximum=9)
    except ApiFailure as failure:
        if failure.status == HTTPStatus.UNPROCESSABLE_ENTITY and "minReplicas" in str(failure):
            pytest.skip("this cluster refuses minReplicas: 0 (HPAScaleToZero is off)")
        raise
    place.until_replicas("llama", 3)
    place.has("llama", requests=0)
    place.until_replicas("llama", 0)
    place.stays_at("llama", 0, 20)
    front.text = page.epp(held=20, ready=0)
    place.until_replicas("llama", 2)


def test_what_nobody_knows_is_an_error_to_the_hpa_and_no_zero(place, page, registered):
    place.deployment("llama", page.vllm, requests=40, replicas=4)
    place.autoscaler("llama", external("llama"), maximum=9)
    place.stays_at("llama", 4, 25)
    path = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{place.name}/tidegate-replicas"
    status, document = place.api.ask("GET", f"{path}?labelSelector=workload%3Dllama")
    assert (status, document["kind"], document["reason"]) == (HTTPStatus.NOT_FOUND, "Status", "NotFound")
    # It asks for the same once somebody says which engine it is.
    change = {"metadata": {"annotations": annotations(place, **QUICK)}}
    place.api.patch(f"{DEPLOYMENTS.format(place.name)}/llama", change)
    place.until_replicas("llama", 3)


def test_a_group_that_is_kedas_is_said_and_that_it_has_become_ours_too(tidegate, request):
    external = "v1beta1.external.metrics.k8s.io"

    def said(event):
        return [line for line in tidegate.logged(event) if line["api_service"] == external]

    tidegate.stop()
    tidegate.start()
    (error,) = until(lambda: said("API group has another provider"), bool)
    assert error["ours"] == "Service tidegate-e2e/tidegate"
    request.getfixturevalue("registered")
    until(lambda: said("API group registered"), bool)  # looked at every minute

"""An HPA without KEDA, through the API server's aggregation: external and object metrics, and scale to zero."""

from http import HTTPStatus

import pytest

from .api import ZERO_REFUSED, ApiFailure
from .release import METRICS_API
from .tenant import DEPLOYMENTS, QUICK
from .test_shipped_objects import assert_permitted
from .waiting import stays, until

VALUES = METRICS_API
TAKES = ("external-metrics",)
USES = ()
EVERYWHERE = True

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


BOTH = {"external": external, "object": on_the_object}


def test_api_group_of_another_provider_is_logged(tidegate, release):
    """KEDA's, until the next test registers Tidegate's."""
    (error,) = until(lambda: lines_of(tidegate, "API group has another provider"), bool)
    assert error["ours"] == f"Service {release.namespace}/tidegate"


def test_hpas_follow_the_load_and_keep_replicas_while_the_daemon_is_dead(tenant, page, registered):
    for name, metric in BOTH.items():
        tenant.deployment(name, page.vllm, requests=40, annotations=annotations(tenant, **QUICK))
        tenant.autoscaler(name, metric(name), maximum=9)
    all_follow(tenant, requests=40, replicas=3)
    all_follow(tenant, requests=70, replicas=5)
    both_stay(tenant, 5, 5)
    tenant.tidegate.kill()
    both_stay(tenant, 5, 25)
    tenant.tidegate.start()
    both_stay(tenant, 5, 25)
    all_follow(tenant, requests=20, replicas=2)


def test_hpas_scale_to_zero_and_back_if_the_cluster_allows_it(tenant, page, registered):
    front = tenant.gateway("front", page.epp(held=0, ready=1))
    metadata = annotations(tenant, gateway="front", **QUICK)
    for name, metric in BOTH.items():
        tenant.deployment(name, page.vllm, requests=40, replicas=3, annotations=metadata)
        try:
            tenant.autoscaler(name, metric(name), minimum=0, maximum=9)
        except ApiFailure as failure:
            if failure.is_of_zero:
                pytest.skip(ZERO_REFUSED)
            raise
    all_follow(tenant, requests=40, replicas=3)
    all_follow(tenant, requests=0, replicas=0)
    both_stay(tenant, 0, 20)
    front.body = page.epp(held=20, ready=0)
    for name in BOTH:
        tenant.until_replicas(name, 2)


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


def test_registration_is_logged(tidegate, registered):
    until(lambda: lines_of(tidegate, "API group registered"), bool)  # checked every minute


def test_service_account_has_every_permission_for_the_metrics_api(tidegate, registered):
    assert_permitted(tidegate)


def lines_of(tidegate, event):
    name = "v1beta1.external.metrics.k8s.io"
    return [line for line in tidegate.logged(event) if line["api_service"] == name]


def all_follow(tenant, *, requests, replicas):
    for name in BOTH:
        tenant.set_load(name, requests=requests)
    for name in BOTH:
        tenant.until_replicas(name, replicas)


def both_stay(tenant, replicas, seconds):
    def ask():
        return [tenant.replicas(name) for name in BOTH]

    stays(ask, [replicas] * len(BOTH), seconds, lambda: [tenant.describe(name) for name in BOTH])

"""KEDA calls Tidegate over mutual TLS, with the certificates and the ClusterTriggerAuthentication of the chart."""

import pytest

from .release import AUTHENTICATION, KEDA_MTLS
from .tenant import QUICK, SCALED_OBJECTS
from .waiting import until

VALUES = KEDA_MTLS
# For the push: with this interval a poll would come far too late.
POLLING_S = 120
PUSHED_WITHIN_S = 20.0


@pytest.fixture(scope="module")
def address(release, ports):
    """`scalerAddress` with the name that the certificate is for."""
    return release.scaler_address(ports["grpc"])


def test_keda_calls_with_the_certificate_of_a_cluster_trigger_authentication(tenant, page, address):
    front = tenant.gateway("front", page.epp(held=0, ready=0))
    tenant.deployment("llama", page.vllm, replicas=0)
    metadata = {"scalerAddress": address, "gateway": "front", **QUICK}
    tenant.scaled_object("llama", minimum=0, maximum=9, polling=POLLING_S, authentication=AUTHENTICATION, **metadata)
    front.body = page.epp(held=1, ready=0)
    tenant.until_replicas("llama", 1, within=PUSHED_WITHIN_S)  # by StreamIsActive
    tenant.set_load("llama", requests=40)
    front.body = page.epp(held=0, ready=1)
    tenant.until_replicas("llama", 3)  # by GetMetrics, for the HPA


def test_trigger_without_the_certificate_gets_no_answer_and_scales_nothing(tenant, page, address):
    tenant.deployment("llama", page.vllm, requests=40, replicas=2)
    tenant.scaled_object(
        "llama",
        minimum=1,
        maximum=9,
        awaits_hpa=False,
        scalerAddress=address,
        enableTLS="true",
        unsafeSsl="true",
        **QUICK,
    )
    until(lambda: ready_condition(tenant, "llama"), lambda status: status == "False")
    tenant.stays_at("llama", 2, 10)


def ready_condition(tenant, name):
    """The status of the ScaledObject's condition Ready."""
    document = tenant.api.get(f"{SCALED_OBJECTS.format(tenant.name)}/{name}")
    conditions = document.get("status", {}).get("conditions", [])
    return next((each["status"] for each in conditions if each["type"] == "Ready"), None)

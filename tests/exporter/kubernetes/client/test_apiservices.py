"""The client reads which Service holds the APIService of a version of an API group."""

import pytest

from exporter.kubernetes import auth
from exporter.kubernetes.auth import ServiceReference
from exporter.kubernetes.client import TimeLimits
from exporter.kubernetes.protocol import ApiFailure, Forbidden

NAME = "v1beta1.external.metrics.k8s.io"
KEDA_KEYS = {"namespace": "keda", "name": "keda-operator-metrics-apiserver", "port": 443}


async def test_holder_is_the_service_that_the_api_service_names(fake, client):
    fake.api_services[NAME] = {"group": "external.metrics.k8s.io", "version": "v1beta1", "service": KEDA_KEYS}
    assert await client.holder(NAME) == ServiceReference("keda", "keda-operator-metrics-apiserver")


async def test_unregistered_api_service_has_no_holder(client):
    assert await client.holder(NAME) is None


async def test_holder_of_a_built_in_group_is_the_api_server(fake, client):
    fake.api_services["v1.apps"] = {"group": "apps", "version": "v1"}
    holder = await client.holder("v1.apps")
    assert (holder, str(holder)) == (ServiceReference(), "the API server itself")


async def test_forbidden_read_names_the_missing_permission(fake, client):
    fake.fail("APIService", 403)
    with pytest.raises(Forbidden) as caught:
        await client.holder(NAME)
    assert f'resources ["apiservices"], resourceNames ["{NAME}"], verbs ["get"]' in str(caught.value)


async def test_missing_response_is_a_failure_and_not_an_absence(fake, connected):
    client = await connected(TimeLimits(review_s=0.2))
    fake.fail("APIService", 500)
    with pytest.raises(ApiFailure) as caught:
        await client.holder(NAME)
    assert caught.value.status == 500
    fake.mend()
    fake.hang()
    with pytest.raises(ApiFailure, match=r"no answer within 0\.2 s$"):
        await client.holder(NAME)


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b"7",
        b"{}",
        b'{"spec": []}',
        b'{"spec": {"group": "g", "service": 7}}',
        b'{"spec": {"group": "g", "service": {}}}',
        b'{"spec": {"group": "g", "service": {"namespace": "keda"}}}',
        b"[" * 9999,
    ],
)
def test_malformed_api_service_is_a_failure(body):
    with pytest.raises(ApiFailure, match=f"^get apiservice {NAME}: "):
        auth.holder(NAME, body)

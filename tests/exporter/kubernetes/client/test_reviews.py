"""The client sends TokenReviews and SubjectAccessReviews, and reads the front proxy's ConfigMap."""

import pytest

from exporter.kubernetes import auth
from exporter.kubernetes.auth import AccessRequest, AccessVerdict, User
from exporter.kubernetes.client import TimeLimits
from exporter.kubernetes.protocol import ApiFailure, Forbidden

ANN = User("ann", "7", ("dev", "ops"), (("scopes", ("a", "b")),))
ACCESS = AccessRequest("list", "external.metrics.k8s.io", "tidegate-replicas", "ai", "v1beta1")
REQUESTS = {
    "TokenReview": lambda client: client.token_review("t"),
    "SubjectAccessReview": lambda client: client.access_review(ANN, ACCESS),
    "ConfigMap": lambda client: client.config_map("kube-system", "x"),
}


async def test_token_review_returns_the_user_of_a_token(fake, client):
    fake.users["t"] = {"username": "ann", "uid": "7", "groups": ["dev", "ops"], "extra": {"scopes": ["a", "b"]}}
    assert [await client.token_review("t"), await client.token_review("expired")] == [ANN, None]
    assert fake.reviews == [("TokenReview", {"token": "t"}), ("TokenReview", {"token": "expired"})]


async def test_access_review_sends_all_attributes_of_the_user(fake, client):
    fake.allowed = lambda spec: spec["user"] == "ann"
    assert [(await client.access_review(user, ACCESS)).allowed for user in (ANN, User("bob"))] == [True, False]
    (_, review), _ = fake.reviews
    assert review == {
        "user": "ann",
        "uid": "7",
        "groups": ["dev", "ops"],
        "extra": {"scopes": ["a", "b"]},
        "resourceAttributes": {
            "verb": "list",
            "group": "external.metrics.k8s.io",
            "version": "v1beta1",
            "resource": "tidegate-replicas",
            "subresource": "",
            "namespace": "ai",
            "name": "",
        },
    }


async def test_config_map_is_read_as_its_data(fake, client):
    fake.config_maps["kube-system", "x"] = {"a": "1"}
    assert await client.config_map("kube-system", "x") == {"a": "1"}


async def test_client_sends_its_token_with_every_request(fake, connected):
    client = await connected(token="ours")
    fake.config_maps["kube-system", "x"] = {}
    await client.config_map("kube-system", "x")
    await client.access_review(ANN, ACCESS)
    assert fake.shown == ["Bearer ours"] * 2


@pytest.mark.parametrize("kind", REQUESTS)
async def test_response_after_the_time_limit_is_a_failure(fake, connected, kind):
    client = await connected(TimeLimits(review_s=0.2))
    fake.hang()
    with pytest.raises(ApiFailure, match=r"no answer within 0\.2 s$"):
        await REQUESTS[kind](client)


@pytest.mark.parametrize("kind", REQUESTS)
async def test_dropped_connection_is_a_failure(fake, client, kind):
    fake.refuse()
    with pytest.raises(ApiFailure):
        await REQUESTS[kind](client)


@pytest.mark.parametrize(
    ("kind", "permission"),
    [
        ("TokenReview", "ClusterRole system:auth-delegator"),
        ("SubjectAccessReview", "ClusterRole system:auth-delegator"),
        ("ConfigMap", 'Role in kube-system with apiGroups [""], resources ["configmaps"], verbs ["get"]'),
    ],
)
async def test_forbidden_request_names_the_missing_permission(fake, client, kind, permission):
    fake.fail(kind, 403)
    with pytest.raises(Forbidden) as caught:
        await REQUESTS[kind](client)
    assert permission in str(caught.value)
    assert "a fake failure 403" in str(caught.value)


@pytest.mark.parametrize("kind", REQUESTS)
async def test_other_error_status_is_a_failure_with_that_status(fake, client, kind):
    fake.fail(kind, 500)
    with pytest.raises(ApiFailure) as caught:
        await REQUESTS[kind](client)
    assert caught.value.status == 500


@pytest.mark.parametrize("body", [b"<html>", b"7", b'{"status":7}', b'{"status":{"authenticated":true}}', b"[" * 9999])
def test_malformed_review_is_a_failure(body):
    with pytest.raises(ApiFailure):
        auth.user(body)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ('{"allowed": true}', AccessVerdict(allowed=True)),
        ('{"allowed": true, "denied": true, "reason": "no"}', AccessVerdict(allowed=False, reason="no")),
        ('{"allowed": "true"}', AccessVerdict(allowed=False)),
        ("null", AccessVerdict(allowed=False)),
    ],
)
def test_access_is_allowed_only_by_an_explicit_true(status, expected):
    assert expected == auth.verdict(f'{{"status": {status}}}'.encode())


@pytest.mark.parametrize("status", ['{"authenticated": "true"}', '{"authenticated": false, "user": {"username": "a"}}'])
def test_unauthenticated_token_has_no_user(status):
    assert auth.user(f'{{"status": {status}}}'.encode()) is None

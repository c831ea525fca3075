"""Questions about people, and the one ConfigMap: what the client asks, and what it makes of the answers."""

import pytest

from exporter.kubernetes import auth
from exporter.kubernetes.auth import AccessRequest, AccessVerdict, User
from exporter.kubernetes.client import TimeLimits
from exporter.kubernetes.protocol import ApiFailure, Forbidden

ANN = User("ann", "7", ("dev", "ops"), (("scopes", ("a", "b")),))
ACCESS = AccessRequest("list", "external.metrics.k8s.io", "tidegate-replicas", "ai", "v1beta1")
QUESTIONS = {
    "TokenReview": lambda client: client.token_review("t"),
    "SubjectAccessReview": lambda client: client.access_review(ANN, ACCESS),
    "ConfigMap": lambda client: client.config_map("kube-system", "x"),
}


async def test_token_is_the_users_that_the_api_server_says(fake, client):
    fake.users["t"] = {"username": "ann", "uid": "7", "groups": ["dev", "ops"], "extra": {"scopes": ["a", "b"]}}
    assert [await client.token_review("t"), await client.token_review("expired")] == [ANN, None]
    assert fake.reviews == [("TokenReview", {"token": "t"}), ("TokenReview", {"token": "expired"})]


async def test_all_that_is_known_of_a_user_goes_into_the_question_what_they_may(fake, client):
    fake.allowed = lambda spec: spec["user"] == "ann"
    assert [(await client.access_review(user, ACCESS)).allowed for user in (ANN, User("bob"))] == [True, False]
    (_, asked), _ = fake.reviews
    assert asked == {
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


async def test_config_map_is_its_data(fake, client):
    fake.config_maps["kube-system", "x"] = {"a": "1"}
    assert await client.config_map("kube-system", "x") == {"a": "1"}


async def test_client_shows_its_own_token_when_it_asks(fake, connected):
    client = await connected(token="ours")
    fake.config_maps["kube-system", "x"] = {}
    await client.config_map("kube-system", "x")
    await client.access_review(ANN, ACCESS)
    assert fake.shown == ["Bearer ours"] * 2


@pytest.mark.parametrize("kind", QUESTIONS)
async def test_no_answer_in_time_is_a_failure(fake, connected, kind):
    client = await connected(TimeLimits(review_s=0.2))
    fake.hang()
    with pytest.raises(ApiFailure, match=r"no answer within 0\.2 s$"):
        await QUESTIONS[kind](client)


@pytest.mark.parametrize("kind", QUESTIONS)
async def test_connection_that_is_dropped_is_a_failure(fake, client, kind):
    fake.refuse()
    with pytest.raises(ApiFailure):
        await QUESTIONS[kind](client)


@pytest.mark.parametrize(
    ("kind", "right"),
    [
        ("TokenReview", "ClusterRole system:auth-delegator"),
        ("SubjectAccessReview", "ClusterRole system:auth-delegator"),
        ("ConfigMap", 'Role in kube-system with apiGroups [""], resources ["configmaps"], verbs ["get"]'),
    ],
)
async def test_what_rbac_does_not_allow_us_is_said_with_what_would(fake, client, kind, right):
    fake.fail(kind, 403)
    with pytest.raises(Forbidden) as caught:
        await QUESTIONS[kind](client)
    assert right in str(caught.value)
    assert "a fake failure 403" in str(caught.value)


@pytest.mark.parametrize("kind", QUESTIONS)
async def test_any_other_status_is_a_failure_of_that_status(fake, client, kind):
    fake.fail(kind, 500)
    with pytest.raises(ApiFailure) as caught:
        await QUESTIONS[kind](client)
    assert caught.value.status == 500


@pytest.mark.parametrize("body", [b"<html>", b"7", b'{"status":7}', b'{"status":{"authenticated":true}}', b"[" * 9999])
def test_what_is_no_review_is_nobody_and_a_failure(body):
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
def test_only_a_plain_yes_is_one(status, expected):
    assert expected == auth.verdict(f'{{"status": {status}}}'.encode())


@pytest.mark.parametrize("status", ['{"authenticated": "true"}', '{"authenticated": false, "user": {"username": "a"}}'])
def test_who_is_not_authenticated_is_nobody(status):
    assert auth.user(f'{{"status": {status}}}'.encode()) is None

"""The front proxy authenticates by its certificate, other callers by a token; RBAC authorizes both."""

import asyncio

import aiohttp
import pytest
import trustme

from scaler.api.metrics_api.auth import AT_ONCE
from tests.fakes.aggregator import HPA, authentication, certificate

from .conftest import CONFIG_MAP

PATH = "/apis/external.metrics.k8s.io/v1beta1/namespaces/ai/tidegate-replicas"
DISCOVERY = "/apis/external.metrics.k8s.io/v1beta1"


@pytest.fixture(autouse=True)
def decided(api):
    api.workloads.decide("chat", 3)
    api.update_registry()


def refusal(answer):
    assert answer.document["kind"] == "Status"
    assert answer.document["code"] == answer.status
    return answer.status, answer.document["reason"]


def reviewed(api, kind):
    return [spec for of, spec in api.kubernetes.reviews if of == kind]


async def test_front_proxy_names_the_user(api):
    proxy = await api.aggregator()
    assert (await proxy.forward(PATH)).status == 200
    [spec] = reviewed(api, "SubjectAccessReview")
    assert (spec["user"], spec["groups"]) == (HPA, ["system:authenticated"])
    expected = {
        "verb": "list",
        "group": "external.metrics.k8s.io",
        "version": "v1beta1",
        "resource": "tidegate-replicas",
        "subresource": "",
        "namespace": "ai",
        "name": "",
    }
    assert expected == spec["resourceAttributes"]


async def test_forged_headers_without_a_certificate_are_refused(api):
    stranger = await api.connect()
    assert refusal(await stranger.forward(PATH, "root", ("system:masters",))) == (401, "Unauthorized")
    assert refusal(await stranger.forward(DISCOVERY, "root", ("system:masters",))) == (401, "Unauthorized")
    assert api.kubernetes.reviews == []


async def test_token_has_priority_over_forged_headers(api):
    api.kubernetes.users["t"] = {"username": "ann", "uid": "7", "groups": ["dev"], "extra": {"scopes": ["a", "b"]}}
    person = await api.connect()
    forged = [("Authorization", "Bearer t"), ("X-Remote-User", HPA), ("X-Remote-Group", "system:masters")]
    assert refusal(await person.get(PATH, forged)) == (403, "Forbidden")
    [spec] = reviewed(api, "SubjectAccessReview")
    assert tuple(spec[k] for k in ("user", "uid", "groups", "extra")) == ("ann", "7", ["dev"], {"scopes": ["a", "b"]})


async def test_certificate_of_a_foreign_ca_gets_no_connection(api):
    stranger = await api.connect(certificate(trustme.CA()))
    with pytest.raises(aiohttp.ClientError):
        await stranger.forward(PATH)
    assert api.kubernetes.reviews == []


async def test_certificate_with_another_name_is_not_authenticated(api):
    other = await api.connect(certificate(api.proxy_ca, "some-kubelet"))
    answer = await other.forward(PATH, "root", ("system:masters",))
    assert refusal(answer) == (401, "Unauthorized")
    assert "requestheader-allowed-names" in answer.document["message"]


async def test_empty_allowed_names_allow_every_name_of_that_ca(api):
    api.kubernetes.config_maps[CONFIG_MAP] = authentication(api.proxy_ca, names=())
    await api.read_again()
    other = await api.connect(certificate(api.proxy_ca, "some-proxy"))
    assert (await other.forward(PATH)).status == 200


async def test_front_proxy_without_a_user_is_refused(api):
    proxy = await api.aggregator()
    assert refusal(await proxy.get(PATH, [("X-Remote-Group", "system:masters")])) == (401, "Unauthorized")


async def test_replaced_ca_admits_the_new_proxy_and_refuses_the_old_one_on_its_open_connection(api):
    old = await api.aggregator()
    assert (await old.forward(PATH)).status == 200
    replaced = trustme.CA()
    api.kubernetes.config_maps[CONFIG_MAP] = authentication(api.proxy_ca, replaced)
    await api.read_again()
    new = await api.connect(certificate(replaced))
    assert [(await old.forward(PATH)).status, (await new.forward(PATH)).status] == [200, 200]
    api.kubernetes.config_maps[CONFIG_MAP] = authentication(replaced)
    await api.read_again()
    assert refusal(await old.forward(PATH)) == (401, "Unauthorized")  # on the open connection
    with pytest.raises(aiohttp.ClientError):
        await old.forward(PATH)  # on a new connection
    # The connection was opened when both CAs were trusted, so its client is asked once to reconnect.
    assert [(await new.forward(PATH)).status, (await new.forward(PATH)).status] == [401, 200]


async def test_certificate_that_expires_on_an_open_connection_is_refused(api, clock):
    proxy = await api.aggregator()
    assert (await proxy.forward(PATH)).status == 200
    clock.time = 1e12
    assert refusal(await proxy.forward(PATH)) == (401, "Unauthorized")


async def test_unreadable_configmap_changes_nothing_and_is_reported_once(api):
    api.kubernetes.fail("ConfigMap", 403)
    await api.read_again()
    await api.read_again(5.0)
    proxy = await api.aggregator()
    assert (await proxy.forward(PATH)).status == 200
    [problem] = api.problems["front proxy"]
    assert "get configmap kube-system/extension-apiserver-authentication: HTTP 403" in problem
    api.kubernetes.mend()
    await api.read_again(5.0)
    assert [problem, None] == api.problems["front proxy"]


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("requestheader-client-ca-file", "hello", "must be PEM"),
        ("requestheader-client-ca-file", "", "nothing can be forwarded"),
        ("requestheader-allowed-names", "front-proxy-client", "must be a JSON list of strings"),
        (
            "requestheader-client-ca-file",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            "requestheader-client-ca-file",
        ),
    ],
)
async def test_invalid_configmap_is_reported(api, key, value, expected):
    api.kubernetes.config_maps[CONFIG_MAP] = authentication(api.proxy_ca) | {key: value}
    await api.read_again()
    [problem] = api.problems["front proxy"]
    assert expected in problem


async def test_expired_token_gets_401(api):
    person = await api.connect()
    assert refusal(await person.get(PATH, [("Authorization", "Bearer expired")])) == (401, "Unauthorized")


@pytest.mark.parametrize("value", ["Basic dDp0", "Bearer", "Bearer  ", "t"])
async def test_invalid_bearer_token_causes_no_review(api, value):
    person = await api.connect()
    assert refusal(await person.get(PATH, [("Authorization", value)])) == (401, "Unauthorized")
    assert api.kubernetes.reviews == []


async def test_user_without_permission_gets_403_with_the_missing_permission(api):
    proxy = await api.aggregator()
    answer = await proxy.forward(PATH, "ann")
    assert refusal(answer) == (403, "Forbidden")
    assert (
        "User 'ann' cannot list resource tidegate-replicas in API group external.metrics.k8s.io in namespace 'ai'"
        in answer.document["message"]
    )


async def test_permission_for_one_namespace_does_not_cover_another(api):
    api.workloads.decide("chat", 3, namespace="lab")
    api.update_registry()
    api.kubernetes.allowed = lambda spec: spec["resourceAttributes"]["namespace"] == "lab"
    proxy = await api.aggregator()
    assert [(await proxy.forward(path)).status for path in (PATH, PATH.replace("/ai/", "/lab/"))] == [403, 200]


async def test_system_masters_read_everything_without_a_review(api):
    proxy = await api.aggregator()
    assert (await proxy.forward(PATH, "root", ("system:masters",))).status == 200
    assert api.kubernetes.reviews == []


async def test_custom_metric_is_reviewed_as_a_subresource_of_its_object(api):
    proxy = await api.aggregator()
    path = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/ai/deployments.apps/chat/tidegate-replicas"
    assert (await proxy.forward(path)).status == 200
    [spec] = reviewed(api, "SubjectAccessReview")
    expected = ("get", "custom.metrics.k8s.io", "deployments.apps", "tidegate-replicas", "chat")
    keys = ("verb", "group", "resource", "subresource", "name")
    assert expected == tuple(spec["resourceAttributes"][key] for key in keys)


async def test_reviews_are_cached_for_ten_seconds(api, clock):
    api.kubernetes.users["t"] = {"username": HPA}
    person = await api.connect()
    headers = [("Authorization", "Bearer t")]
    assert [(await person.get(PATH, headers)).status for _ in range(5)] == [200] * 5
    assert [kind for kind, _ in api.kubernetes.reviews] == ["TokenReview", "SubjectAccessReview"]
    api.kubernetes.users.clear()
    clock.advance(9.9)
    assert (await person.get(PATH, headers)).status == 200
    clock.advance(0.2)
    assert (await person.get(PATH, headers)).status == 401


async def test_concurrent_requests_of_one_user_cause_one_review(api):
    proxy = await api.aggregator()
    answers = await asyncio.gather(*(proxy.forward(PATH) for _ in range(100)))
    assert {200} == {answer.status for answer in answers}
    assert len(api.kubernetes.reviews) == 1


async def test_flood_of_invented_tokens_is_bounded_and_fails_no_cached_caller(api):
    api.kubernetes.users["t"] = {"username": HPA}
    person, flood = await api.connect(), await api.connect()
    good = [("Authorization", "Bearer t")]
    assert (await person.get(PATH, good)).status == 200
    api.kubernetes.hang()
    asking = [asyncio.create_task(flood.get(PATH, [("Authorization", f"Bearer {n}")])) for n in range(AT_ONCE)]
    await api.kubernetes.until(lambda: len(reviewed(api, "TokenReview")) == AT_ONCE + 1)
    assert refusal(await person.get(PATH, [("Authorization", "Bearer one-more")])) == (429, "TooManyRequests")
    assert (await person.get(PATH, good)).status == 200
    api.kubernetes.mend()
    assert {401} == {answer.status for answer in await asyncio.gather(*asking)}


@pytest.mark.parametrize("kind", ["TokenReview", "SubjectAccessReview"])
async def test_every_caller_gets_503_while_reviews_fail(api, kind):
    api.kubernetes.users["t"] = {"username": HPA}
    api.kubernetes.fail(kind, 500)
    person = await api.connect()
    headers = [("Authorization", "Bearer t")]
    assert refusal(await person.get(PATH, headers)) == (503, "ServiceUnavailable")
    api.kubernetes.mend()  # a failure is not cached
    assert (await person.get(PATH, headers)).status == 200


async def test_only_get_is_allowed(api):
    proxy = await api.aggregator()
    answer = await proxy.get(PATH, [("X-Remote-User", HPA)], method="DELETE")
    assert refusal(answer) == (405, "MethodNotAllowed")

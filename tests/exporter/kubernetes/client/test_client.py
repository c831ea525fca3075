"""The client sends single list and watch requests and reads their responses."""

import asyncio
from contextlib import aclosing

import aiohttp
import pytest

from exporter.kubernetes.client import TimeLimits
from exporter.kubernetes.protocol import OPENED, ApiFailure, Event, Forbidden, Garbled, Gone, NotFound
from exporter.kubernetes.resources import NODES, PODS, REPLICASETS, RESOURCES, SCALEDOBJECTS, url
from tests.fakes.objects import node, pod, replicaset, scaled_object


async def first(watch, count):
    """Returns the first `count` items of a watch and closes it."""
    received = []
    async with aclosing(watch) as items:
        async for item in items:
            received.append(item)
            if len(received) == count:
                break
    return received


def named(documents):
    return [document["metadata"]["name"] for document in documents]


async def test_list_is_read_page_by_page(fake, client):
    fake.put(*(pod(f"chat-{n}") for n in range(5)))
    fake.page_objects = 2
    pages = [await client.page(PODS, None, "")]
    while pages[-1].after:
        pages.append(await client.page(PODS, None, pages[-1].after))
    assert [named(page.items) for page in pages] == [["chat-0", "chat-1"], ["chat-2", "chat-3"], ["chat-4"]]
    assert {fake.version} == {page.version for page in pages}
    assert {"125"} == {a.query["limit"] for a in fake.requests}


async def test_list_is_of_one_namespace_and_nodes_have_none(fake, client):
    fake.put(pod("chat-0", "ai"), pod("chat-0", "lab"), node("node-1"))
    page = await client.page(PODS, "lab", "")
    assert [document["metadata"]["namespace"] for document in page.items] == ["lab"]
    assert named((await client.page(NODES, "lab", "")).items) == ["node-1"]


async def test_managed_fields_are_removed_from_lists(fake, client):
    fake.put(pod("chat-0"))
    [document] = (await client.page(PODS, None, "")).items
    assert "managedFields" not in document["metadata"]


@pytest.mark.parametrize("resource", RESOURCES, ids=str)
async def test_every_resource_can_be_listed_and_watched(fake, client, resource):
    assert (await client.page(resource, "ai", "")).items == []
    assert await first(client.watch(resource, "ai", fake.version), 1) == [OPENED]
    assert url(resource, "ai").startswith(resource.path)


async def test_only_metadata_is_requested_for_kinds_that_need_no_more(fake, client):
    fake.put(replicaset("chat-1", owner=("Deployment", "chat")))
    [listed] = (await client.page(REPLICASETS, None, "")).items
    _, event = await first(client.watch(REPLICASETS, None, "1000"), 2)
    assert {"kind", "apiVersion", "metadata"} == set(listed) == set(event.document)
    assert "PartialObjectMetadata" == listed["kind"] == event.document["kind"]
    assert listed["metadata"]["ownerReferences"][0]["name"] == "chat"


async def test_watch_begins_with_opened_and_has_the_events_after_its_version(fake, client):
    fake.put(pod("old-0"))
    since = fake.version
    fake.put(pod("new-0"))
    fake.delete(pod("old-0"))
    opened, added, deleted = await first(client.watch(PODS, None, since), 3)
    assert opened == OPENED
    assert (added.type, added.document["metadata"]["name"], added.version) == ("ADDED", "new-0", "1002")
    assert (deleted.type, deleted.document["metadata"]["name"], deleted.version) == ("DELETED", "old-0", "1003")


async def test_watch_has_these_query_parameters(fake, client):
    await first(client.watch(PODS, None, "1000"), 1)
    [request] = fake.requests
    expected = {"watch": "true", "resourceVersion": "1000", "allowWatchBookmarks": "true", "timeoutSeconds": "240"}
    assert expected == request.query
    assert request.headers["User-Agent"].startswith("tidegate/")


async def test_object_of_three_megabytes_is_one_line(fake, client):
    fake.put(pod("chat-0", metadata={"annotations": {"long": "x" * 3_000_000}}))
    _, event = await first(client.watch(PODS, None, "1000"), 2)
    assert len(event.document["metadata"]["annotations"]["long"]) == 3_000_000


@pytest.mark.parametrize(
    "line", [b"<html>", b"7", b'{"type":"ADDED"}', b'{"type":"ADDED","object":7}', b"\xff\xfe", b"[" * 100_000]
)
async def test_unreadable_line_costs_only_itself(fake, client, line):
    watch = client.watch(PODS, None, fake.version)
    assert await anext(watch) == OPENED
    await fake.until(lambda: fake.watching == 1)
    fake.send_line(PODS, line)
    fake.put(pod("chat-0"))
    garbled, event = await anext(watch), await anext(watch)
    await watch.aclose()
    assert isinstance(garbled, Garbled)
    assert garbled.detail.startswith("watch pods of all namespaces: a line that")
    assert isinstance(event, Event)


@pytest.mark.parametrize("mid_line", [True, False])
async def test_interrupted_watch_ends_and_drops_a_partial_line(fake, client, mid_line):
    watch = client.watch(PODS, None, fake.version)
    assert await anext(watch) == OPENED
    await fake.until(lambda: fake.watching == 1)
    fake.put(pod("chat-0"))
    assert (await anext(watch)).type == "ADDED"
    fake.disconnect(mid_line=mid_line)
    assert [item async for item in watch] == []


async def test_silent_watch_ends(fake, connected):
    client = await connected(TimeLimits(silence_s=0.2))
    fake.put(pod("chat-0"))
    watch = client.watch(PODS, None, "1000")
    assert [await anext(watch), (await anext(watch)).type] == [OPENED, "ADDED"]
    fake.hang()
    assert [item async for item in watch] == []


@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_server_that_accepts_a_request_and_does_not_respond_is_a_failure(fake, connected, verb):
    client = await connected(TimeLimits(answer_s=0.2))
    fake.hang()
    with pytest.raises(ApiFailure, match=f"^{verb} pods of namespace ai: no answer within 0.2 s$") as caught:
        await (client.page(PODS, "ai", "") if verb == "list" else anext(client.watch(PODS, "ai", "1000")))
    assert caught.value.status is None


async def test_slow_list_is_awaited(fake, client):
    fake.put(pod("chat-0"))
    fake.slow_lists(0.1)
    assert named((await client.page(PODS, None, "")).items) == ["chat-0"]


@pytest.mark.parametrize("in_stream", [True, False])
async def test_expired_version_is_gone_as_event_and_as_status(fake, client, in_stream):
    fake.gone_in_stream = in_stream
    fake.put(pod("chat-0"))
    fake.compact()
    with pytest.raises(Gone, match="too old resource version: 1000"):
        await first(client.watch(PODS, None, "1000"), 2)


async def test_rest_of_an_expired_list_is_gone(fake, client):
    fake.put(pod("chat-0"), pod("chat-1"))
    fake.page_objects = 1
    page = await client.page(PODS, None, "")
    fake.compact()
    with pytest.raises(Gone):
        await client.page(PODS, None, page.after)


async def test_kind_that_is_not_installed_is_not_found(fake, client):
    fake.uninstall(SCALEDOBJECTS)
    with pytest.raises(NotFound, match=r"^list scaledobjects\.keda\.sh of all namespaces: HTTP 404"):
        await client.page(SCALEDOBJECTS, None, "")
    fake.install(SCALEDOBJECTS)
    fake.put(scaled_object("chat"))
    [document] = (await client.page(SCALEDOBJECTS, None, "")).items
    assert document["kind"] == "ScaledObject"


@pytest.mark.parametrize(("namespace", "role"), [(None, "ClusterRole"), ("ai", "Role in ai")])
async def test_refusal_names_the_role_and_the_user(fake, client, namespace, role):
    fake.forbid(SCALEDOBJECTS)
    with pytest.raises(Forbidden) as caught:
        await client.page(SCALEDOBJECTS, namespace, "")
    expected = f'a {role} with apiGroups ["keda.sh"], resources ["scaledobjects"], verbs ["list", "watch"]'
    assert expected in caught.value.detail
    assert 'User "system:serviceaccount:tidegate:tidegate" cannot list' in caught.value.detail


async def test_overloaded_server_sets_the_retry_delay(fake, client):
    fake.fail(PODS, 429, retry_after=7)
    with pytest.raises(ApiFailure, match="HTTP 429: the API server says: a fake failure 429") as caught:
        await client.page(PODS, None, "")
    assert (caught.value.status, caught.value.retry_after_s) == (429, 7.0)


async def test_dropped_connection_is_a_failure_with_a_cause(fake, client):
    fake.refuse()
    with pytest.raises(ApiFailure, match=r"^list pods of all namespaces: .+") as caught:
        await client.page(PODS, None, "")
    assert caught.value.status is None


async def test_kubeconfig_token_is_sent_and_a_wrong_one_is_reported(fake, connected):
    fake.tokens = {"right"}
    assert (await (await connected(token="right")).page(PODS, None, "")).items == []
    with pytest.raises(ApiFailure, match="HTTP 401, it does not know us: is the token"):
        await (await connected(token="wrong")).page(PODS, None, "")


async def test_cancelled_watch_closes_its_connection(fake, client):
    async def follow():
        async with aclosing(client.watch(PODS, None, fake.version)) as items:
            async for _ in items:
                pass

    task = asyncio.create_task(follow())
    await fake.until(lambda: fake.watching == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await fake.until(lambda: fake.watching == 0)


async def test_hundred_and_twenty_watches_leave_room_for_a_list(fake, client):
    watches = [client.watch(PODS, None, fake.version) for _ in range(120)]
    assert [await anext(watch) for watch in watches] == [OPENED] * 120
    assert (await client.page(PODS, None, "")).items == []
    for watch in watches:
        await watch.aclose()


async def test_fake_identifies_itself_as_a_fake(fake):
    async with aiohttp.ClientSession() as session, session.get(f"{fake.url}/version") as response:
        assert response.headers["Server"] == "fake-kubernetes"
        assert (await response.json())["gitVersion"] == "v1.37.0-fake"

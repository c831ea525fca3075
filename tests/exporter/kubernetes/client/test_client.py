"""One question at a time: what the client asks, and what it makes of the answers."""

import asyncio
from contextlib import aclosing

import aiohttp
import pytest

from exporter.kubernetes.client import TimeLimits
from exporter.kubernetes.protocol import OPENED, ApiFailure, Event, Forbidden, Garbled, Gone, NotFound
from exporter.kubernetes.resources import NODES, PODS, REPLICASETS, RESOURCES, SCALEDOBJECTS, url
from tests.fakes.objects import node, pod, replicaset, scaled_object


async def first(watch, count):
    """The first so many items of a watch, which is then closed."""
    found = []
    async with aclosing(watch) as items:
        async for item in items:
            found.append(item)
            if len(found) == count:
                break
    return found


def named(documents):
    return [document["metadata"]["name"] for document in documents]


async def test_a_list_is_read_page_by_page(fake, client):
    fake.put(*(pod(f"chat-{n}") for n in range(5)))
    fake.page_objects = 2
    pages = [await client.page(PODS, None, "")]
    while pages[-1].after:
        pages.append(await client.page(PODS, None, pages[-1].after))
    assert [named(page.items) for page in pages] == [["chat-0", "chat-1"], ["chat-2", "chat-3"], ["chat-4"]]
    assert {fake.version} == {page.version for page in pages}
    assert {"250"} == {a.query["limit"] for a in fake.requests}


async def test_a_namespace_is_listed_alone_and_nodes_are_of_none(fake, client):
    fake.put(pod("chat-0", "ai"), pod("chat-0", "lab"), node("node-1"))
    page = await client.page(PODS, "lab", "")
    assert [document["metadata"]["namespace"] for document in page.items] == ["lab"]
    assert named((await client.page(NODES, "lab", "")).items) == ["node-1"]


async def test_the_bookkeeping_of_kubectl_is_left_out_of_lists(fake, client):
    fake.put(pod("chat-0"))
    [document] = (await client.page(PODS, None, "")).items
    assert "managedFields" not in document["metadata"]


@pytest.mark.parametrize("resource", RESOURCES, ids=str)
async def test_every_resource_can_be_listed_and_watched(fake, client, resource):
    assert (await client.page(resource, "ai", "")).items == []
    assert await first(client.watch(resource, "ai", fake.version), 1) == [OPENED]
    assert url(resource, "ai").startswith(resource.path)


async def test_only_metadata_is_asked_for_where_that_is_all_we_want(fake, client):
    fake.put(replicaset("chat-1", owner=("Deployment", "chat")))
    [listed] = (await client.page(REPLICASETS, None, "")).items
    _, event = await first(client.watch(REPLICASETS, None, "1000"), 2)
    assert {"kind", "apiVersion", "metadata"} == set(listed) == set(event.document)
    assert "PartialObjectMetadata" == listed["kind"] == event.document["kind"]
    assert listed["metadata"]["ownerReferences"][0]["name"] == "chat"


async def test_a_watch_begins_with_opened_and_tells_what_came_after_its_version(fake, client):
    fake.put(pod("old-0"))
    since = fake.version
    fake.put(pod("new-0"))
    fake.delete(pod("old-0"))
    opened, added, deleted = await first(client.watch(PODS, None, since), 3)
    assert opened == OPENED
    assert (added.type, added.document["metadata"]["name"], added.version) == ("ADDED", "new-0", "1002")
    assert (deleted.type, deleted.document["metadata"]["name"], deleted.version) == ("DELETED", "old-0", "1003")


async def test_what_a_watch_asks_for(fake, client):
    await first(client.watch(PODS, None, "1000"), 1)
    [asked] = fake.requests
    expected = {"watch": "true", "resourceVersion": "1000", "allowWatchBookmarks": "true", "timeoutSeconds": "240"}
    assert expected == asked.query
    assert asked.headers["User-Agent"].startswith("tidegate/")


async def test_an_object_of_three_megabytes_is_one_line(fake, client):
    fake.put(pod("chat-0", metadata={"annotations": {"long": "x" * 3_000_000}}))
    _, event = await first(client.watch(PODS, None, "1000"), 2)
    assert len(event.document["metadata"]["annotations"]["long"]) == 3_000_000


@pytest.mark.parametrize(
    "line", [b"<html>", b"7", b'{"type":"ADDED"}', b'{"type":"ADDED","object":7}', b"\xff\xfe", b"[" * 100_000]
)
async def test_a_line_that_cannot_be_read_costs_the_line(fake, client, line):
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
async def test_a_watch_that_is_cut_ends_and_half_a_line_is_nothing(fake, client, mid_line):
    watch = client.watch(PODS, None, fake.version)
    assert await anext(watch) == OPENED
    await fake.until(lambda: fake.watching == 1)
    fake.put(pod("chat-0"))
    assert (await anext(watch)).type == "ADDED"
    fake.disconnect(mid_line=mid_line)
    assert [item async for item in watch] == []


async def test_a_watch_that_says_nothing_for_too_long_ends(fake, connected):
    client = await connected(TimeLimits(silence_s=0.2))
    fake.put(pod("chat-0"))
    watch = client.watch(PODS, None, "1000")
    assert [await anext(watch), (await anext(watch)).type] == [OPENED, "ADDED"]
    fake.hang()
    assert [item async for item in watch] == []


@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_a_server_that_takes_the_request_and_says_nothing_is_a_failure(fake, connected, verb):
    client = await connected(TimeLimits(answer_s=0.2))
    fake.hang()
    with pytest.raises(ApiFailure, match=f"^{verb} pods of namespace ai: no answer within 0.2 s$") as caught:
        await (client.page(PODS, "ai", "") if verb == "list" else anext(client.watch(PODS, "ai", "1000")))
    assert caught.value.status is None


async def test_a_list_that_is_slow_is_waited_for(fake, client):
    fake.put(pod("chat-0"))
    fake.slow_lists(0.1)
    assert named((await client.page(PODS, None, "")).items) == ["chat-0"]


@pytest.mark.parametrize("in_stream", [True, False])
async def test_a_forgotten_version_is_gone_whichever_way_it_is_said(fake, client, in_stream):
    fake.gone_in_stream = in_stream
    fake.put(pod("chat-0"))
    fake.compact()
    with pytest.raises(Gone, match="too old resource version: 1000"):
        await first(client.watch(PODS, None, "1000"), 2)


async def test_the_rest_of_a_forgotten_list_is_gone(fake, client):
    fake.put(pod("chat-0"), pod("chat-1"))
    fake.page_objects = 1
    page = await client.page(PODS, None, "")
    fake.compact()
    with pytest.raises(Gone):
        await client.page(PODS, None, page.after)


async def test_a_kind_that_the_cluster_does_not_have_is_absent(fake, client):
    fake.uninstall(SCALEDOBJECTS)
    with pytest.raises(NotFound, match=r"^list scaledobjects\.keda\.sh of all namespaces: HTTP 404"):
        await client.page(SCALEDOBJECTS, None, "")
    fake.install(SCALEDOBJECTS)
    fake.put(scaled_object("chat"))
    [document] = (await client.page(SCALEDOBJECTS, None, "")).items
    assert document["kind"] == "ScaledObject"


@pytest.mark.parametrize(("namespace", "role"), [(None, "ClusterRole"), ("ai", "Role in ai")])
async def test_a_refusal_says_what_to_give_whom(fake, client, namespace, role):
    fake.forbid(SCALEDOBJECTS)
    with pytest.raises(Forbidden) as caught:
        await client.page(SCALEDOBJECTS, namespace, "")
    wanted = f'a {role} with apiGroups ["keda.sh"], resources ["scaledobjects"], verbs ["list", "watch"]'
    assert wanted in caught.value.detail
    assert 'User "system:serviceaccount:tidegate:tidegate" cannot list' in caught.value.detail


async def test_an_overloaded_server_says_how_long_to_leave_it_alone(fake, client):
    fake.fail(PODS, 429, retry_after=7)
    with pytest.raises(ApiFailure, match="HTTP 429: the API server says: a fake failure 429") as caught:
        await client.page(PODS, None, "")
    assert (caught.value.status, caught.value.retry_after_s) == (429, 7.0)


async def test_a_connection_that_is_dropped_is_a_failure_with_words(fake, client):
    fake.refuse()
    with pytest.raises(ApiFailure, match=r"^list pods of all namespaces: .+") as caught:
        await client.page(PODS, None, "")
    assert caught.value.status is None


async def test_the_kubeconfig_token_is_sent_and_a_wrong_one_says_so(fake, connected):
    fake.tokens = {"right"}
    assert (await (await connected(token="right")).page(PODS, None, "")).items == []
    with pytest.raises(ApiFailure, match="HTTP 401, it does not know us: is the token"):
        await (await connected(token="wrong")).page(PODS, None, "")


async def test_a_watch_that_is_cancelled_lets_go_of_its_connection(fake, client):
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


async def test_a_hundred_and_twenty_watches_leave_room_for_a_list(fake, client):
    watches = [client.watch(PODS, None, fake.version) for _ in range(120)]
    assert [await anext(watch) for watch in watches] == [OPENED] * 120
    assert (await client.page(PODS, None, "")).items == []
    for watch in watches:
        await watch.aclose()


async def test_the_fake_says_that_it_is_one(fake):
    async with aiohttp.ClientSession() as session, session.get(f"{fake.url}/version") as response:
        assert response.headers["Server"] == "fake-kubernetes"
        assert (await response.json())["gitVersion"] == "v1.37.0-fake"

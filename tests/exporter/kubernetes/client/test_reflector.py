"""The reflector keeps a store in sync with the fake API through the real client."""

import asyncio
import json

import pytest

from exporter.kubernetes.protocol import OPENED, Event, ListPage
from exporter.kubernetes.reflector import GOOD_WATCH_S, REFUSED_DELAY_S
from exporter.kubernetes.resources import NODES, PODS
from tests.fakes.objects import node, pod


async def test_existing_objects_are_listed_and_changes_are_watched(fake, store, following, up_to_date):
    fake.put(pod("chat-0"), pod("chat-1"))
    async with following():
        await up_to_date("chat-0", "chat-1")
        fake.put(pod("chat-2"))
        fake.delete(pod("chat-0"))
        await up_to_date("chat-1", "chat-2")
    assert (fake.lists, len(fake.requests_for("watch"))) == (1, 1)
    assert store.problems == []


async def test_all_pages_are_one_list(fake, store, following, up_to_date):
    fake.put(*(pod(f"chat-{n}") for n in range(7)))
    fake.page_objects = 3
    async with following():
        await up_to_date(*(f"chat-{n}" for n in range(7)))
    assert (len(store.times_of("replace")), len(fake.requests_for("list"))) == (1, 3)


async def test_ended_watch_resumes_from_the_last_event_without_a_list(fake, store, following, up_to_date):
    async with following():
        await up_to_date()
        fake.put(pod("chat-0"))
        await up_to_date("chat-0")
        fake.disconnect()
        await fake.until(lambda: len(fake.requests_for("watch")) == 2 and fake.watching == 1)
        fake.put(pod("chat-1"))
        await up_to_date("chat-0", "chat-1")
    assert fake.lists == 1
    assert [request.version for request in fake.requests_for("watch")] == ["1000", "1001"]
    assert (store.times_of("lost"), store.problems) == ([], [])


async def test_bookmark_moves_the_version_to_resume_from(fake, store, turn, following, up_to_date):
    async with following():
        await up_to_date()
        fake.put(node("node-1"), node("node-2"))  # no events for a watch of pods
        count = len(store.times_of("current"))
        fake.bookmark()
        await turn.until(lambda: len(store.times_of("current")) > count)
        fake.compact()
        fake.disconnect()
        await fake.until(lambda: len(fake.requests_for("watch")) == 2 and fake.watching == 1)
    assert fake.requests_for("watch")[-1].version == "1002"
    assert fake.lists == 1


async def test_next_watch_repeats_an_interrupted_line(fake, following, up_to_date):
    fake.put(pod("chat-0"))
    async with following():
        await up_to_date("chat-0")
        fake.put(pod("chat-1"))
        await up_to_date("chat-0", "chat-1")
        fake.disconnect(mid_line=True)
        fake.put(pod("chat-2"))
        await up_to_date("chat-0", "chat-1", "chat-2")
    assert fake.lists == 1


@pytest.mark.parametrize("in_stream", [True, False])
async def test_expired_version_causes_a_new_list(fake, store, clock, following, up_to_date, in_stream):
    fake.gone_in_stream = in_stream
    fake.put(pod("chat-0"), pod("chat-1"))
    async with following():
        await up_to_date("chat-0", "chat-1")
        fake.refuse()
        await clock.nap()
        fake.delete(pod("chat-0"))
        fake.put(pod("chat-2"))
        fake.compact()
        fake.mend()
        await clock.rush(lambda: store.names == ["chat-1", "chat-2"])
        await up_to_date("chat-1", "chat-2")
    assert fake.lists == 2


async def test_object_deleted_during_a_list_is_not_kept(fake, store, clock, following, up_to_date):
    fake.put(*(pod(f"chat-{n}") for n in range(4)))
    fake.page_objects = 2
    fake.slow_lists(0.05)
    async with following():
        await fake.until(lambda: len(fake.requests_for("list")) == 2)
        fake.delete(pod("chat-1"))
        fake.delete(pod("chat-3"))
        await up_to_date("chat-0", "chat-2")
    assert fake.lists == 1


async def test_expired_list_starts_again(fake, clock, following, up_to_date):
    fake.put(pod("chat-0"), pod("chat-1"))
    fake.page_objects = 1
    fake.slow_lists(0.05)
    async with following():
        await fake.until(lambda: len(fake.requests_for("list")) == 1)
        await fake.until(lambda: bool(fake._checkpoints))
        fake.delete(pod("chat-1"))
        fake.compact()
        assert await clock.nap() == 1.0
        await up_to_date("chat-0")
    assert fake.lists == 2


async def test_unreadable_line_is_reported_and_causes_a_list(fake, store, turn, following, up_to_date):
    async with following():
        await up_to_date()
        fake.send_line(PODS, b"<html>a proxy in the way</html>")
        fake.put(pod("chat-0"))
        await up_to_date("chat-0")
        assert len(store.problems) == 1
        assert "a proxy in the way" in store.problems[0]
        fake.disconnect()
        await turn.until(lambda: len(store.problems) == 2)
    assert None is store.problems[1]
    assert fake.lists == 2


async def test_unreadable_line_causes_a_list_also_after_an_error(fake, clock, following, up_to_date):
    async with following():
        await up_to_date()
        fake.send_line(PODS, b"<html>")
        fake.send_line(PODS, b'{"type":"ERROR","object":{"kind":"Status","code":500}}')
        await clock.nap()
        await fake.until(lambda: fake.lists == 2)


async def test_repeated_old_event_changes_nothing(fake, store, turn, following, up_to_date):
    async with following():
        await up_to_date()
        fake.put(pod("chat-0"))
        fake.put(pod("chat-0", ready=False))
        await up_to_date("chat-0")
        old = pod("chat-0", metadata={"resourceVersion": "1001"})
        fake.send_line(PODS, json.dumps({"type": "DELETED", "object": old}).encode())
        fake.send_line(PODS, json.dumps({"type": "MODIFIED", "object": old}).encode())
        fake.put(pod("chat-1"))
        await up_to_date("chat-0", "chat-1")
    assert store.held["ai", "chat-0"]["status"]["conditions"][-1]["status"] == "False"
    assert [what for what, _ in store.log if what.isupper()] == ["ADDED", "MODIFIED", "ADDED"]


async def test_api_with_decreasing_versions_is_listed_again(fake, store, clock, following, up_to_date):
    fake.put(pod("chat-0"))
    async with following():
        await up_to_date("chat-0")
        fake.send_line(PODS, b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"17"}}}')
        await clock.nap()
        await fake.until(lambda: fake.lists == 2)
        await up_to_date("chat-0")
    assert fake.lists == 2


async def test_event_without_a_version_is_applied_and_does_not_move_the_watch(following, store, clock, turn):
    class VersionlessApi:
        """Implements `Api`: some events of its watch have no version."""

        def __init__(self):
            self.versions = []

        async def page(self, resource, namespace, after):
            return ListPage([], "opaque", "")

        async def watch(self, resource, namespace, version):
            self.versions.append(version)
            yield OPENED
            yield Event("ADDED", pod("chat-0"), "also opaque")
            yield Event("ADDED", pod("chat-1"), "")
            await asyncio.Event().wait() if len(self.versions) > 1 else None

    api = VersionlessApi()
    async with following(api=api):
        await turn.until(lambda: len(store.times_of("ADDED")) == 4)
    assert api.versions == ["opaque", "also opaque"]
    assert store.names == ["chat-0", "chat-1"]


async def test_namespaces_are_watched_and_lost_separately(fake, store, clock, turn, following, up_to_date):
    fake.put(pod("chat-0", "ai"), pod("chat-9", "lab"), pod("chat-5", "elsewhere"))
    async with following(PODS, "ai", "lab"):
        await up_to_date("chat-0", "chat-9", watching=2)
        clock.advance(GOOD_WATCH_S)
        fake.forbid(PODS)
        fake.disconnect()
        await turn.until(lambda: len(store.problems) == 2)
        assert (len(store.times_of("refused")), store.times_of("lost")) == (2, [])
        count = len(store.times_of("current"))
        fake.mend()
        clock.advance(REFUSED_DELAY_S)
        await turn.until(lambda: len(store.problems) == 4)
        assert count + 2 <= len(store.times_of("current"))
        fake.delete(pod("chat-9", "lab"))
        await up_to_date("chat-0", watching=2)
    assert {"ai", "lab"} == {request.namespace for request in fake.requests}


async def test_nodes_are_followed(fake, following, up_to_date):
    fake.put(node("node-1"))
    async with following(NODES):
        await up_to_date("node-1")


async def test_cancelled_reflector_leaves_no_watch_behind(fake, following, up_to_date):
    async with following():
        await up_to_date()
    await fake.until(lambda: fake.watching == 0)

"""An API server that is away, refuses, or lacks the thing: what the store and people are told, and how often."""

from exporter.kubernetes.reflector import ABSENT_DELAY_S, GOOD_WATCH_S, REFUSED_DELAY_S
from exporter.kubernetes.resources import PODS, SCALEDOBJECTS
from tests.fakes.objects import pod, scaled_object


async def test_an_api_server_that_is_away_is_lost_once_said_once_and_tried_ever_more_slowly(
    fake, store, clock, following, up_to_date
):
    fake.put(pod("chat-0"))
    async with following():
        await up_to_date("chat-0")
        clock.advance(GOOD_WATCH_S)
        fake.refuse()
        assert [await clock.nap() for _ in range(7)] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
        assert store.said("lost") == [1000.0 + GOOD_WATCH_S]
        assert len(store.published) == 1
        assert store.published[0].startswith("watch pods of all namespaces: ")
        fake.mend()
        await clock.rush(lambda: len(store.published) == 2)
        fake.put(pod("chat-1"))
        await up_to_date("chat-0", "chat-1")
        fake.refuse()
        assert await clock.nap() == 1.0  # an event was heard since: from the beginning
    assert None is store.published[1]
    assert fake.lists == 1


async def test_no_answer_and_an_error_take_turns_and_are_said_once(fake, store, clock, following):
    fake.fail(PODS, 503)
    async with following():
        await clock.nap()
        fake.refuse()
        await clock.nap()
        fake.mend()
        fake.fail(PODS, 429)
        await clock.nap()
    assert store.published == ["list pods of all namespaces: HTTP 503: the API server says: a fake failure 503"]


async def test_who_is_asked_to_come_back_later_comes_back_later(fake, clock, following):
    fake.fail(PODS, 429, retry_after=9)
    async with following():
        assert [await clock.nap(), await clock.nap()] == [9.0, 9.0]


async def test_nobody_is_kept_away_for_an_hour_by_one_header(fake, clock, following):
    fake.fail(PODS, 503, retry_after=3600)
    async with following():
        assert await clock.nap() == REFUSED_DELAY_S


async def test_a_missing_right_is_said_once_and_tried_slowly(fake, store, clock, following, up_to_date):
    fake.put(pod("chat-0"))
    fake.forbid(PODS)
    async with following():
        assert [await clock.nap() for _ in range(3)] == [REFUSED_DELAY_S] * 3
        assert len(store.published) == 1
        assert 'verbs ["list", "watch"]' in store.published[0]
        fake.mend()
        await up_to_date("chat-0")
    assert None is store.published[1]
    assert store.said("lost") == [1000.0]


async def test_a_right_to_list_without_one_to_watch_is_said_once(fake, store, clock, following):
    fake.forbid(PODS, "watch")
    async with following():
        assert [await clock.nap() for _ in range(3)] == [REFUSED_DELAY_S] * 3
    assert fake.lists == 1
    assert len(store.published) == 1


async def test_a_refusal_after_no_answer_is_another_trouble(fake, store, clock, following):
    fake.refuse()
    async with following():
        await clock.nap()
        fake.mend()
        fake.forbid(PODS)
        await clock.nap()
    assert ["HTTP 403" in problem for problem in store.published] == [False, True]


async def test_a_kind_that_is_not_installed_is_known_to_be_absent_and_looked_for_again(
    fake, store, clock, following, up_to_date
):
    fake.uninstall(SCALEDOBJECTS)
    async with following(SCALEDOBJECTS):
        assert await clock.asleep() == ABSENT_DELAY_S
        assert store.said("absent") == [1000.0]
        fake.install(SCALEDOBJECTS)
        fake.put(scaled_object("chat"))
        clock.advance(ABSENT_DELAY_S)
        await up_to_date("chat")
        clock.advance(GOOD_WATCH_S)
        fake.uninstall(SCALEDOBJECTS)
        assert await clock.asleep() == ABSENT_DELAY_S
        assert (len(store.said("absent")), store.names) == (2, [])
        fake.install(SCALEDOBJECTS)
        fake.put(scaled_object("talk"))
        clock.advance(ABSENT_DELAY_S)
        await up_to_date("talk")
        assert len(store.said("replace")) == 2  # what a version meant to the first of them says nothing here
    assert (store.published, store.said("lost")) == ([], [])


async def test_a_kind_that_every_cluster_has_is_not_absent_but_lost(fake, store, clock, following):
    fake.uninstall(PODS)
    async with following():
        assert await clock.nap() == REFUSED_DELAY_S
    assert (store.said("absent"), store.said("lost")) == ([], [1000.0])
    assert "the cluster has no such resource" in store.published[0]


async def test_a_watch_that_opens_is_heard_even_if_nothing_happens(fake, store, clock, turn, following, up_to_date):
    async with following():
        await up_to_date()
        fake.refuse()
        await clock.rush(lambda: store.published)
        fake.mend()
        heard = len(store.said("heard"))
        await clock.rush(lambda: len(store.said("heard")) > heard)
        await up_to_date()
    assert None is store.published[-1]
    assert fake.lists == 1


async def test_a_server_that_ends_every_watch_at_once_is_not_asked_without_pause(fake, store, clock, following):
    async with following():
        for seconds in (1.0, 2.0, 4.0):
            await fake.until(lambda: fake.watching == 1)
            fake.disconnect()
            assert seconds == await clock.nap()
    assert (store.published, store.said("lost")) == ([], [])


async def test_a_quiet_watch_that_lasted_is_followed_by_the_next_at_once(fake, clock, following, up_to_date):
    async with following():
        await up_to_date()
        for _ in range(3):
            await fake.until(lambda: fake.watching == 1)
            clock.advance(240.0)
            fake.disconnect()
            await fake.until(lambda: fake.watching == 0)
        await fake.until(lambda: len(fake.requests_for("watch")) == 4)
    assert clock.slept == []


async def test_a_watch_that_was_good_before_the_api_broke_it_off_begins_the_delays_anew(
    fake, store, clock, turn, following, up_to_date
):
    fake.fail(PODS, 500)
    async with following():
        assert [await clock.nap() for _ in range(3)] == [1.0, 2.0, 4.0]
        fake.mend()
        await up_to_date()
        fake.put(pod("chat-0"))
        fake.send_line(PODS, b'{"type":"ERROR","object":{"kind":"Status","code":500,"message":"etcd is not well"}}')
        assert await clock.nap() == 1.0
        await up_to_date("chat-0")
        await turn.until(lambda: store.published[-1] is None)
    assert ["a fake failure 500" in store.published[0], "etcd is not well" in store.published[2]] == [True, True]
    assert fake.requests_for("watch")[-1].version == "1001"

"""The reflector retries and reports once if the API server is down, refuses, or lacks a kind."""

from exporter.kubernetes.reflector import ABSENT_DELAY_S, GOOD_WATCH_S, REFUSED_DELAY_S
from exporter.kubernetes.resources import LOCALQUEUES, PODS, SCALEDOBJECTS
from tests.fakes.objects import local_queue, pod, scaled_object


async def test_outage_is_reported_once_and_retried_with_growing_delays(fake, store, clock, following, up_to_date):
    fake.put(pod("chat-0"))
    async with following():
        await up_to_date("chat-0")
        clock.advance(GOOD_WATCH_S)
        fake.refuse()
        assert [await clock.nap() for _ in range(7)] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
        assert store.times_of("lost") == [1000.0 + GOOD_WATCH_S]
        assert len(store.problems) == 1
        assert store.problems[0].startswith("watch pods of all namespaces: ")
        fake.mend()
        await clock.rush(lambda: len(store.problems) == 2)
        fake.put(pod("chat-1"))
        await up_to_date("chat-0", "chat-1")
        fake.refuse()
        assert await clock.nap() == 1.0  # an event arrived in between, so the delays start again
    assert None is store.problems[1]
    assert fake.lists == 1


async def test_alternating_outage_and_error_are_reported_once(fake, store, clock, following):
    fake.fail(PODS, 503)
    async with following():
        await clock.nap()
        fake.refuse()
        await clock.nap()
        fake.mend()
        fake.fail(PODS, 429)
        await clock.nap()
    assert store.problems == ["list pods of all namespaces: HTTP 503: the API server says: a fake failure 503"]


async def test_retry_after_header_sets_the_delay(fake, clock, following):
    fake.fail(PODS, 429, retry_after=9)
    async with following():
        assert [await clock.nap(), await clock.nap()] == [9.0, 9.0]


async def test_delay_of_a_retry_after_header_is_bounded(fake, clock, following):
    fake.fail(PODS, 503, retry_after=3600)
    async with following():
        assert await clock.nap() == REFUSED_DELAY_S


async def test_missing_permission_is_reported_once_and_retried_slowly(fake, store, clock, following, up_to_date):
    fake.put(pod("chat-0"))
    fake.forbid(PODS)
    async with following():
        assert [await clock.nap() for _ in range(3)] == [REFUSED_DELAY_S] * 3
        assert len(store.problems) == 1
        assert 'verbs ["list", "watch"]' in store.problems[0]
        fake.mend()
        await up_to_date("chat-0")
    assert None is store.problems[1]
    assert (store.times_of("refused")[0], store.times_of("lost")) == (1000.0, [])


async def test_missing_permission_to_watch_is_reported_once(fake, store, clock, following):
    fake.forbid(PODS, "watch")
    async with following():
        assert [await clock.nap() for _ in range(3)] == [REFUSED_DELAY_S] * 3
    assert fake.lists == 1
    assert len(store.problems) == 1


async def test_refusal_after_an_outage_is_a_separate_problem(fake, store, clock, following):
    fake.refuse()
    async with following():
        await clock.nap()
        fake.mend()
        fake.forbid(PODS)
        await clock.nap()
    assert ["HTTP 403" in problem for problem in store.problems] == [False, True]


async def test_kind_that_is_not_installed_is_absent_and_retried(fake, store, clock, following, up_to_date):
    fake.uninstall(SCALEDOBJECTS)
    async with following(SCALEDOBJECTS):
        assert await clock.asleep() == ABSENT_DELAY_S
        assert store.times_of("absent") == [1000.0]
        fake.install(SCALEDOBJECTS)
        fake.put(scaled_object("chat"))
        clock.advance(ABSENT_DELAY_S)
        await up_to_date("chat")
        clock.advance(GOOD_WATCH_S)
        fake.uninstall(SCALEDOBJECTS)
        assert await clock.asleep() == ABSENT_DELAY_S
        assert (len(store.times_of("absent")), store.names) == (2, [])
        fake.install(SCALEDOBJECTS)
        fake.put(scaled_object("talk"))
        clock.advance(ABSENT_DELAY_S)
        await up_to_date("talk")
        assert len(store.times_of("replace")) == 2  # a reinstalled kind has new versions, so it is listed again
    assert (store.problems, store.times_of("lost")) == ([], [])


async def test_kind_of_an_older_version_is_followed_and_absent_only_without_both(
    fake, store, clock, following, up_to_date
):
    queue = local_queue("main", queue="gpus", apiVersion="kueue.x-k8s.io/v1beta1")
    fake.uninstall(LOCALQUEUES)
    fake.install(LOCALQUEUES.before)
    fake.put(queue)
    async with following(LOCALQUEUES):
        await up_to_date("main")
        fake.delete(queue)
        await up_to_date()
        clock.advance(GOOD_WATCH_S)
        fake.uninstall(LOCALQUEUES.before)
        assert await clock.asleep() == ABSENT_DELAY_S
        fake.install(LOCALQUEUES)
        fake.put(local_queue("new", queue="gpus"))
        clock.advance(ABSENT_DELAY_S)
        await up_to_date("new")
    assert (store.problems, store.times_of("lost"), len(store.times_of("absent"))) == ([], [], 1)


async def test_missing_built_in_kind_is_lost_and_not_absent(fake, store, clock, following):
    fake.uninstall(PODS)
    async with following():
        assert await clock.nap() == REFUSED_DELAY_S
    assert (store.times_of("absent"), store.times_of("lost")) == ([], [1000.0])
    assert "the cluster has no such resource" in store.problems[0]


async def test_opened_watch_is_current_without_events(fake, store, clock, turn, following, up_to_date):
    async with following():
        await up_to_date()
        fake.refuse()
        await clock.rush(lambda: store.problems)
        fake.mend()
        count = len(store.times_of("current"))
        await clock.rush(lambda: len(store.times_of("current")) > count)
        await up_to_date()
    assert None is store.problems[-1]
    assert fake.lists == 1


async def test_watches_that_end_at_once_are_retried_with_delays(fake, store, clock, following):
    async with following():
        for seconds in (1.0, 2.0, 4.0):
            await fake.until(lambda: fake.watching == 1)
            fake.disconnect()
            assert seconds == await clock.nap()
    assert (store.problems, store.times_of("lost")) == ([], [])


async def test_long_watch_without_events_is_resumed_at_once(fake, clock, following, up_to_date):
    async with following():
        await up_to_date()
        for _ in range(3):
            await fake.until(lambda: fake.watching == 1)
            clock.advance(240.0)
            fake.disconnect()
            await fake.until(lambda: fake.watching == 0)
        await fake.until(lambda: len(fake.requests_for("watch")) == 4)
    assert clock.slept == []


async def test_successful_watch_resets_the_delays(fake, store, clock, turn, following, up_to_date):
    fake.fail(PODS, 500)
    async with following():
        assert [await clock.nap() for _ in range(3)] == [1.0, 2.0, 4.0]
        fake.mend()
        await up_to_date()
        fake.put(pod("chat-0"))
        fake.send_line(PODS, b'{"type":"ERROR","object":{"kind":"Status","code":500,"message":"etcd is not well"}}')
        assert await clock.nap() == 1.0
        await up_to_date("chat-0")
        await turn.until(lambda: store.problems[-1] is None)
    assert ["a fake failure 500" in store.problems[0], "etcd is not well" in store.problems[2]] == [True, True]
    assert fake.requests_for("watch")[-1].version == "1001"

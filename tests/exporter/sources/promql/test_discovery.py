"""Who is listed, and when nobody knows. The server is a fake: it says what a test wants."""

import asyncio

import pytest

from exporter.model import Failure, FailureKind, Role
from exporter.sources.http import HttpLimits
from exporter.sources.promql.discovery import MOST_STEPS

WAITING = {"__name__": "vllm:num_requests_waiting", "model_name": "m"}


def of(name, at=(10, 20), up=(1, 1), waiting=(3, 4), job="engines"):
    """The series of one pod's target; `waiting` None is: it has none."""
    own = {"job": job, "instance": f"{name}:8000", "namespace": "ai", "pod": name}
    series = [({"__name__": "up", **own}, list(zip(at, up, strict=False)))]
    if waiting is not None:
        series.append(({**WAITING, **own}, list(zip(at, waiting, strict=False))))
    return series


def names(targets):
    listing = targets.listing()
    return None if listing is None else [target.pod.pod for target in listing.targets]


async def fetched(client, targets):
    return {target.pod.pod: await client.fetch(target.url, target.access) for target in targets.listing().targets}


async def test_before_the_first_answer_nothing_is_known(ask, fake):
    targets = ask(fake.url)
    assert targets.listing() is None
    assert targets.failure is None


async def test_list_is_the_same_from_look_to_look_and_follows_who_comes_and_goes(ask, fake):
    targets = ask(fake.url)
    fake.data(*of("chat-1"), *of("chat-0"))
    await targets.refresh(0.0)
    first = targets.listing()
    assert names(targets) == ["chat-0", "chat-1"]
    assert (first.due, first.leaving) == (2, frozenset())
    fake.data(*of("chat-0"), *of("chat-1", waiting=(8, 9)))
    await targets.refresh(5.0)
    assert targets.listing() == first
    fake.data(*of("chat-0"), *of("chat-2"))
    await targets.refresh(10.0)
    assert names(targets) == ["chat-0", "chat-2"]


async def test_pages_of_a_look_lie_on_the_shelf_and_those_of_the_gone_do_not(ask, client, fake):
    targets = ask(fake.url)
    fake.data(*of("chat-0"), *of("chat-1"))
    await targets.refresh(0.0)
    page = b'vllm:num_requests_waiting{model_name="m"} 4.0 20000\n'
    assert await fetched(client, targets) == {"chat-0": page, "chat-1": page}
    fake.data(*of("chat-0"))
    await targets.refresh(5.0)
    assert list(client.pages.values()) == [page]


async def test_who_does_not_answer_the_server_is_listed_and_answers_nobody(ask, client, fake):
    targets = ask(fake.url)
    fake.data(*of("chat-0"), *of("chat-1", up=(1, 0)), *of("chat-2", up=(0, 0), waiting=None), *of("x", waiting=None))
    await targets.refresh(0.0)
    kinds = {name: getattr(page, "kind", "page") for name, page in (await fetched(client, targets)).items()}
    refused, empty = FailureKind.REFUSED, FailureKind.EMPTY
    assert kinds == {"chat-0": "page", "chat-1": refused, "chat-2": refused, "x": empty}


async def test_what_shares_the_selector_and_is_none_of_ours_is_not_listed(ask, fake):
    targets = ask(fake.url)
    fake.data(*of("chat-0"), *of("redis-0", waiting=None, job="redis"))
    await targets.refresh(0.0)
    assert names(targets) == ["chat-0"]


async def test_when_all_fail_they_are_still_listed(ask, fake):
    targets = ask(fake.url)
    fake.data(*of("chat-0"), *of("chat-1"))
    await targets.refresh(0.0)
    fake.data(*of("chat-0", up=(0, 0), waiting=None), *of("chat-1", up=(0, 0), waiting=None))
    await targets.refresh(1000.0)
    assert names(targets) == ["chat-0", "chat-1"]


async def test_answer_that_names_nobody_is_not_an_answer_nobody(ask, client, fake):
    targets = ask(fake.url, keep_s=30.0, selector='pod="typo"')
    fake.data()
    await targets.refresh(0.0)
    assert targets.listing() is None
    assert targets.failure == f'{fake.url}: no series of kind vllm within 60 s (selector: pod="typo")'
    fake.data(*of("chat-0"))
    await targets.refresh(10.0)
    assert targets.failure is None
    fake.data()
    await targets.refresh(40.0)
    assert names(targets) == ["chat-0"]
    assert (await fetched(client, targets))["chat-0"].kind is FailureKind.EMPTY
    await targets.refresh(41.0)
    assert targets.listing() is None


async def test_server_that_has_scraped_nobody_twice_does_not_know_everybody(ask, fake):
    targets = ask(fake.url)
    fake.data(*of("chat-0", at=(10,)))
    await targets.refresh(0.0)
    assert targets.listing() is None
    assert "no target was scraped twice within 60 s" in targets.failure
    fake.data(*of("chat-0"), *of("chat-1", at=(15,)))
    await targets.refresh(5.0)
    assert names(targets) == ["chat-0", "chat-1"]


async def test_without_an_up_those_with_a_fresh_sample_are_listed(ask, fake):
    targets = ask(fake.url)
    fake.data(of("chat-0")[1], of("chat-1", at=(10,))[1])
    await targets.refresh(0.0)
    assert names(targets) == ["chat-0", "chat-1"]


@pytest.mark.parametrize("fault", ["status", "warning", "nonsense", "hang"])
async def test_while_the_server_fails_the_list_stands_for_a_while_and_no_page_does(ask, client, fake, http, fault):
    targets = ask(fake.url, keep_s=30.0)
    fake.data(*of("chat-0"))
    await targets.refresh(0.0)
    kind = FailureKind.UNREADABLE
    if fault == "status":
        fake.status, kind = 503, FailureKind.STATUS
    elif fault == "warning":
        fake.data(*of("chat-0"), *of("chat-1"), warnings=["no store for chat-2"])
        kind = FailureKind.PARTIAL
    elif fault == "nonsense":
        fake.says = b"<html>"
    else:
        fake.held, http.limits = asyncio.Event(), HttpLimits(timeout_s=0.05, body_bytes=1000)
        kind = FailureKind.TIMEOUT
    await targets.refresh(30.0)
    assert names(targets) == ["chat-0"]
    assert (await fetched(client, targets))["chat-0"].kind is kind
    assert targets.failure.startswith(f"{fake.url}: ")
    await targets.refresh(30.1)
    assert targets.listing() is None


async def test_two_queries_do_not_take_each_others_pages_off_the_shelf(ask, client, fake):
    mine, theirs = ask(fake.url, selector='a="b"'), ask(fake.url, selector='a="c"')
    fake.data(*of("chat-0"))
    await mine.refresh(0.0)
    await theirs.refresh(0.0)
    fake.status = 500
    await theirs.refresh(5.0)
    assert isinstance((await fetched(client, mine))["chat-0"], bytes)
    assert isinstance((await fetched(client, theirs))["chat-0"], Failure)


@pytest.mark.parametrize(("role", "owns"), [(Role.PODS, True), (Role.GATEWAY, False), (Role.GPUS, False)])
async def test_only_a_list_of_pods_is_a_workloads(ask, fake, chat, role, owns):
    targets = ask(fake.url, role=role)
    assert targets.owner == (chat if owns else None)
    fake.data(*of("chat-0"))
    await targets.refresh(0.0)
    (target,) = targets.listing().targets
    assert target.owner == (None if role is Role.GPUS else chat)
    assert (target.pod is not None) == (role is Role.PODS)


def window(form):
    """The time a question is about: (from, to], seconds."""
    until, (_, length) = float(form["time"]), form["query"].removesuffix("ms]").rsplit("[", 1)
    return until - float(length) / 1000.0, until


async def test_past_is_a_frame_for_each_step_with_what_was_known_then(ask, fake):
    targets = ask(fake.url, max_age_s=15.0)
    fake.data(*of("chat-0", at=(10, 20, 30), up=(1, 1, 1), waiting=(1, 2, 3)), *of("chat-1", at=(10, 20), up=(1, 0)))
    frames = await targets.history(0.0, 50.0, 10.0)
    said = [[page.split()[1] for page in frame.pages.values()] for frame in frames]
    assert [frame.at for frame in frames] == [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]
    assert said == [[], [b"1.0", b"3.0"], [b"2.0"], [b"3.0"], [b"3.0"], []]
    ((_, form, _),) = fake.asked
    assert window(form) == (-15.0, 50.0)
    # One list and the past speak of the same targets.
    await targets.refresh(0.0)
    assert list(frames[1].pages) == list(targets.listing().targets)


async def test_past_too_large_for_one_answer_is_asked_for_in_halves(ask, fake, http):
    targets = ask(fake.url, max_age_s=15.0)
    fake.data(*of("chat-0", at=(10, 20, 30), up=(1, 1, 1), waiting=(1, 2, 3)))
    whole, answer, fits = await targets.history(0.0, 40.0, 10.0), fake.says, []

    def says(form):
        since, until = window(form)
        if until - since > 30.0:
            return b"a" * 2000
        fits.append((since, until))
        return answer

    fake.says = says
    http.limits = HttpLimits(timeout_s=20.0, body_bytes=1000)
    assert await targets.history(0.0, 40.0, 10.0) == whole
    assert fits == [(-15.0, 10.0), (5.0, 20.0), (15.0, 40.0)]


async def test_past_that_cannot_be_had_is_a_failure(ask, fake, http):
    targets = ask(fake.url)
    fake.status = 500
    assert (await targets.history(0.0, 10.0, 5.0)).kind is FailureKind.STATUS
    fake.status, fake.says = 200, b"a" * 2000
    http.limits = HttpLimits(timeout_s=20.0, body_bytes=1000)
    assert (await targets.history(0.0, 10.0, 5.0)).kind is FailureKind.TOO_LARGE


@pytest.mark.parametrize(("since", "until", "step"), [(0, 10, 0), (0, 10, -1), (10, 0, 1), (0, MOST_STEPS + 1, 1)])
async def test_past_of_too_many_steps_or_none_is_refused(ask, fake, since, until, step):
    with pytest.raises(ValueError, match=f"must be 0..{MOST_STEPS} steps, got"):
        await ask(fake.url).history(float(since), float(until), float(step))
    assert fake.asked == []


async def test_pages_of_a_list_that_is_not_asked_for_any_more_leave_the_shelf(ask, client, fake):
    fake.data(*of("chat-0"))
    before, after = ask(fake.url), ask(fake.url)
    await before.refresh(0.0)
    await after.refresh(1.0)
    del before  # a reload: the new list has laid the same page meanwhile
    assert len(client.pages) == 1
    del after
    assert client.pages == {}
    assert len(client._semaphores) == 0

"""PromqlTargets lists targets from `up` and fresh samples, and keeps the list for a while. The server is a fake."""

import asyncio

import pytest

from exporter.model import Failure, FailureKind, Role
from exporter.sources.http import HttpLimits
from exporter.sources.promql.discovery import MOST_STEPS

WAITING = {"__name__": "vllm:num_requests_waiting", "model_name": "m"}


def of(name, at=(10, 20), up=(1, 1), waiting=(3, 4), job="engines"):
    """Returns the series of one pod's target; without `waiting` if that is None."""
    labels = {"job": job, "instance": f"{name}:8000", "namespace": "ai", "pod": name}
    series = [({"__name__": "up", **labels}, list(zip(at, up, strict=False)))]
    if waiting is not None:
        series.append(({**WAITING, **labels}, list(zip(at, waiting, strict=False))))
    return series


def names(targets):
    listing = targets.listing()
    return None if listing is None else [target.pod.pod for target in listing.targets]


async def fetched(client, targets):
    return {target.pod.pod: await client.fetch(target.url, target.access) for target in targets.listing().targets}


async def test_list_is_unknown_before_the_first_response(ask, fake):
    targets = ask(fake.url)
    assert targets.listing() is None
    assert targets.failure is None


async def test_list_is_stable_and_follows_new_and_removed_targets(ask, fake):
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


async def test_pages_of_listed_targets_are_stored_and_others_are_removed(ask, client, fake):
    targets = ask(fake.url)
    fake.data(*of("chat-0"), *of("chat-1"))
    await targets.refresh(0.0)
    page = b'vllm:num_requests_waiting{model_name="m"} 4.0 20000\n'
    assert await fetched(client, targets) == {"chat-0": page, "chat-1": page}
    fake.data(*of("chat-0"))
    await targets.refresh(5.0)
    assert list(client.pages.values()) == [page]


async def test_target_that_prometheus_cannot_scrape_is_listed_with_a_failure(ask, client, fake):
    targets = ask(fake.url)
    fake.data(*of("chat-0"), *of("chat-1", up=(1, 0)), *of("chat-2", up=(0, 0), waiting=None), *of("x", waiting=None))
    await targets.refresh(0.0)
    kinds = {name: getattr(page, "kind", "page") for name, page in (await fetched(client, targets)).items()}
    refused, empty = FailureKind.REFUSED, FailureKind.EMPTY
    assert kinds == {"chat-0": "page", "chat-1": refused, "chat-2": refused, "x": empty}


async def test_target_of_another_kind_is_not_listed(ask, fake):
    targets = ask(fake.url)
    fake.data(*of("chat-0"), *of("redis-0", waiting=None, job="redis"))
    await targets.refresh(0.0)
    assert names(targets) == ["chat-0"]


async def test_targets_are_listed_even_if_all_fail(ask, fake):
    targets = ask(fake.url)
    fake.data(*of("chat-0"), *of("chat-1"))
    await targets.refresh(0.0)
    fake.data(*of("chat-0", up=(0, 0), waiting=None), *of("chat-1", up=(0, 0), waiting=None))
    await targets.refresh(1000.0)
    assert names(targets) == ["chat-0", "chat-1"]


async def test_response_without_series_is_a_failure_and_not_an_empty_list(ask, client, fake):
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


async def test_list_is_unknown_until_a_target_was_scraped_twice(ask, fake):
    targets = ask(fake.url)
    fake.data(*of("chat-0", at=(10,)))
    await targets.refresh(0.0)
    assert targets.listing() is None
    assert "no target was scraped twice within 60 s" in targets.failure
    fake.data(*of("chat-0"), *of("chat-1", at=(15,)))
    await targets.refresh(5.0)
    assert names(targets) == ["chat-0", "chat-1"]


async def test_targets_without_up_are_listed_by_fresh_samples(ask, fake):
    targets = ask(fake.url)
    fake.data(of("chat-0")[1], of("chat-1", at=(10,))[1])
    await targets.refresh(0.0)
    assert names(targets) == ["chat-0", "chat-1"]


@pytest.mark.parametrize("fault", ["status", "warning", "nonsense", "hang"])
async def test_list_is_kept_for_a_while_and_pages_fail_at_once_while_the_server_fails(ask, client, fake, http, fault):
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
        fake.response = b"<html>"
    else:
        fake.held, http.limits = asyncio.Event(), HttpLimits(timeout_s=0.05, body_bytes=1000)
        kind = FailureKind.TIMEOUT
    await targets.refresh(30.0)
    assert names(targets) == ["chat-0"]
    assert (await fetched(client, targets))["chat-0"].kind is kind
    assert targets.failure.startswith(f"{fake.url}: ")
    await targets.refresh(30.1)
    assert targets.listing() is None


async def test_failed_query_does_not_remove_pages_of_another_query(ask, client, fake):
    mine, theirs = ask(fake.url, selector='a="b"'), ask(fake.url, selector='a="c"')
    fake.data(*of("chat-0"))
    await mine.refresh(0.0)
    await theirs.refresh(0.0)
    fake.status = 500
    await theirs.refresh(5.0)
    assert isinstance((await fetched(client, mine))["chat-0"], bytes)
    assert isinstance((await fetched(client, theirs))["chat-0"], Failure)


@pytest.mark.parametrize(("role", "owns"), [(Role.PODS, True), (Role.GATEWAY, False), (Role.GPUS, False)])
async def test_only_a_list_of_pods_has_an_owner(ask, fake, chat, role, owns):
    targets = ask(fake.url, role=role)
    assert targets.owner == (chat if owns else None)
    fake.data(*of("chat-0"))
    await targets.refresh(0.0)
    (target,) = targets.listing().targets
    assert target.owner == (None if role is Role.GPUS else chat)
    assert (target.pod is not None) == (role is Role.PODS)


def window(form):
    """Returns the time range (since, until] of a query, in seconds."""
    until, (_, length) = float(form["time"]), form["query"].removesuffix("ms]").rsplit("[", 1)
    return until - float(length) / 1000.0, until


async def test_history_has_a_frame_per_step_with_the_values_of_that_time(ask, fake):
    targets = ask(fake.url, max_age_s=15.0)
    fake.data(*of("chat-0", at=(10, 20, 30), up=(1, 1, 1), waiting=(1, 2, 3)), *of("chat-1", at=(10, 20), up=(1, 0)))
    frames = await targets.history(0.0, 50.0, 10.0)
    values = [[page.split()[1] for page in frame.pages.values()] for frame in frames]
    assert [frame.at for frame in frames] == [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]
    assert values == [[], [b"1.0", b"3.0"], [b"2.0"], [b"3.0"], [b"3.0"], []]
    ((_, form, _),) = fake.requests
    assert window(form) == (-15.0, 50.0)
    # The list and the history have the same targets.
    await targets.refresh(0.0)
    assert list(frames[1].pages) == list(targets.listing().targets)


async def test_history_too_large_for_one_response_is_queried_in_halves(ask, fake, http):
    targets = ask(fake.url, max_age_s=15.0)
    fake.data(*of("chat-0", at=(10, 20, 30), up=(1, 1, 1), waiting=(1, 2, 3)))
    whole, answer, fits = await targets.history(0.0, 40.0, 10.0), fake.response, []

    def respond(form):
        since, until = window(form)
        if until - since > 30.0:
            return b"a" * 2000
        fits.append((since, until))
        return answer

    fake.response = respond
    http.limits = HttpLimits(timeout_s=20.0, body_bytes=1000)
    assert await targets.history(0.0, 40.0, 10.0) == whole
    assert fits == [(-15.0, 10.0), (5.0, 20.0), (15.0, 40.0)]


async def test_history_of_a_failing_server_is_a_failure(ask, fake, http):
    targets = ask(fake.url)
    fake.status = 500
    assert (await targets.history(0.0, 10.0, 5.0)).kind is FailureKind.STATUS
    fake.status, fake.response = 200, b"a" * 2000
    http.limits = HttpLimits(timeout_s=20.0, body_bytes=1000)
    assert (await targets.history(0.0, 10.0, 5.0)).kind is FailureKind.TOO_LARGE


@pytest.mark.parametrize(("since", "until", "step"), [(0, 10, 0), (0, 10, -1), (10, 0, 1), (0, MOST_STEPS + 1, 1)])
async def test_history_with_an_invalid_number_of_steps_is_refused(ask, fake, since, until, step):
    with pytest.raises(ValueError, match=f"must be 0..{MOST_STEPS} steps, got"):
        await ask(fake.url).history(float(since), float(until), float(step))
    assert fake.requests == []


async def test_pages_of_a_dropped_list_are_removed(ask, client, fake):
    fake.data(*of("chat-0"))
    before, after = ask(fake.url), ask(fake.url)
    await before.refresh(0.0)
    await after.refresh(1.0)
    del before  # a reload: the new list has stored the same page
    assert len(client.pages) == 1
    del after
    assert client.pages == {}
    assert len(client._semaphores) == 0

"""A ScaledJob in a cluster: its number is the work in hand, as KEDA hears it over gRPC."""

import grpc

from tests.fakes import objects
from tests.fakes.scaled_job import ScaledJobSpec, jobs_started

from .waiting import asked_again

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


def job(place, name, text):
    """A Job of the ScaledJob `tune`, its pod at work, with a page."""
    place.put(objects.job(name, place.name, owner=("ScaledJob", "tune")))
    pod = place.pod(f"{name}-x", owner=("Job", name))
    pod.listens(text)
    pod.put()
    return pod


def scaled_job(place, **words):
    trigger = place.trigger(engine="vllm", gateway="front", **{"objectives.work": "1", **words})
    document = objects.scaled_job("tune", place.name, maximum=8, triggers=[trigger])
    place.put(document)
    return document


async def test_jobs_are_asked_for_while_there_is_work_and_none_when_it_is_done(place, page, tidegate, keda):
    front, tune = place.service("front", page.epp(held=0, ready=0)), scaled_job(place)
    await keda.until((0, False), tune)

    front.text = page.epp(held=2, ready=0)
    await keda.until((2, True), tune)
    pods = [job(place, f"tune-{number}", page.vllm(waiting=0, running=1)) for number in range(2)]
    await tidegate.until_evidence(place.name, "tune", running=2.0)
    front.text = page.epp(held=0, ready=1)
    await asked_again(front)
    assert await keda.answer(tune) == (2, True)  # nothing waits, and two are at work: KEDA has two

    # One has nothing more to do, and ends; then the other: the answer goes down with the work, and never up.
    async with keda.watching(tune) as seen:
        for pod in pods:
            pod.says(page.vllm(waiting=0, running=0, finished=1))
        await keda.until((0, False), tune)
        for pod in pods:
            pod.ends()
        await asked_again(front, times=10)
        assert await keda.answer(tune) == (0, False)
    numbers = [answer[0] for answer in seen if answer != UNAVAILABLE]
    assert numbers == sorted(numbers, reverse=True)
    assert {jobs_started(ScaledJobSpec(), number, running=number) for number in numbers} == {0}


async def test_a_job_that_says_nothing_is_an_error_and_starts_none(place, page, tidegate, keda):
    front, tune = place.service("front", page.epp(held=1, ready=0)), scaled_job(place)
    await keda.until((1, True), tune)
    pod = job(place, "tune-0", page.vllm(waiting=0, running=1))
    front.text = page.epp(held=0, ready=1)
    await tidegate.until_evidence(place.name, "tune", running=1.0)

    pod.hangs()
    await keda.until(UNAVAILABLE, tune)
    front.text = page.epp(held=2, ready=1)  # what is seen to wait is asked for all the same
    await keda.until((2, True), tune)
    pod.ends()
    front.text = page.epp(held=0, ready=0)
    await keda.until((0, False), tune)


async def test_what_is_written_of_keeping_warm_holds(place, page, keda):
    front, tune = place.service("front", page.epp(held=1, ready=0)), scaled_job(place, keep_warm="10m")
    await keda.until((1, True), tune)
    front.text = page.epp(held=0, ready=0)
    await asked_again(front, times=10)
    assert await keda.answer(tune) == (1, True)

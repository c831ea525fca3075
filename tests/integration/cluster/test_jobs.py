"""A ScaledJob in a cluster: its number is the work in hand, as published over gRPC."""

import grpc

from tests.fakes import objects
from tests.fakes.scaled_job import ScaledJobSpec, jobs_started
from tests.fakes.waiting import until_scraped

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


def job(tenant, name, text):
    """A Job of the ScaledJob `tune` with its running pod, which is a target."""
    tenant.put(objects.job(name, tenant.name, owner=("ScaledJob", "tune")))
    pod = tenant.pod(f"{name}-x", owner=("Job", name))
    pod.listen(text)
    pod.put()
    return pod


def scaled_job(tenant, **metadata):
    trigger = tenant.trigger(engine="vllm", gateway="front", **{"objectives.work": "1", **metadata})
    document = objects.scaled_job("tune", tenant.name, maximum=8, triggers=[trigger])
    tenant.put(document)
    return document


async def test_number_of_jobs_follows_the_work_to_zero(tenant, page, tidegate, keda):
    front, tune = tenant.service("front", page.epp(held=0, ready=0)), scaled_job(tenant)
    await keda.until((0, False), tune)

    front.body = page.epp(held=2, ready=0)
    await keda.until((2, True), tune)
    pods = [job(tenant, f"tune-{number}", page.vllm(waiting=0, running=1)) for number in range(2)]
    await tidegate.until_evidence(tenant.name, "tune", running=2.0)
    front.body = page.epp(held=0, ready=1)
    await until_scraped(front)
    assert await keda.answer(tune) == (2, True)  # no request waits, and two run: KEDA has two Jobs

    # One Job finishes its work and ends, then the other: the number falls with the work, and never rises.
    async with keda.watching(tune) as responses:
        for pod in pods:
            pod.serve(page.vllm(waiting=0, running=0, finished=1))
        await keda.until((0, False), tune)
        for pod in pods:
            pod.remove()
        await until_scraped(front, times=10)
        assert await keda.answer(tune) == (0, False)
    numbers = [answer[0] for answer in responses if answer != UNAVAILABLE]
    assert numbers == sorted(numbers, reverse=True)
    assert {jobs_started(ScaledJobSpec(), number, running=number) for number in numbers} == {0}


async def test_unreachable_job_is_an_error_and_starts_no_job(tenant, page, tidegate, keda):
    front, tune = tenant.service("front", page.epp(held=1, ready=0)), scaled_job(tenant)
    await keda.until((1, True), tune)
    pod = job(tenant, "tune-0", page.vllm(waiting=0, running=1))
    front.body = page.epp(held=0, ready=1)
    await tidegate.until_evidence(tenant.name, "tune", running=1.0)

    pod.hang()
    await keda.until(UNAVAILABLE, tune)
    front.body = page.epp(held=2, ready=1)  # the requests known to wait still count
    await keda.until((2, True), tune)
    pod.remove()
    front.body = page.epp(held=0, ready=0)
    await keda.until((0, False), tune)


async def test_keep_warm_settings_hold(tenant, page, keda):
    front, tune = tenant.service("front", page.epp(held=1, ready=0)), scaled_job(tenant, keep_warm="10m")
    await keda.until((1, True), tune)
    front.body = page.epp(held=0, ready=0)
    await until_scraped(front, times=10)
    assert await keda.answer(tune) == (1, True)

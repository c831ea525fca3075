"""Pages that a real Prometheus scraped are read as if they were scraped directly."""

import time

from exporter.model import Attribution, Failure, FailureKind, Gpu, PodKey, Quantity, Queue, Role


def complete(count):
    """Returns a condition: `count` pages exist, each with some of our families."""
    return lambda found: len(found) == count and all(isinstance(page, bytes) for page in found.values())


async def test_page_of_an_engine_is_read_through_prometheus_with_its_scrape_time(
    prometheus, pages, ask, look, pod, page, read
):
    pages["chat-0"], pages["chat-1"] = page.vllm(waiting=3, running=2, finished=7), page.vllm(waiting=0, running=1)
    requested_at = time.time()
    targets = ask(prometheus, selector='namespace="ai"')
    found = await look(targets, complete(2))
    first, second = targets.listing().targets
    assert [first.pod, second.pod] == [pod("chat-0"), pod("chat-1")]
    samples = await read(first)
    assert samples.subjects == (Queue("m"),)
    assert samples.column(Quantity.REQUESTS_WAITING) == [3.0]
    assert samples.column(Quantity.REQUESTS_RUNNING) == [2.0]
    assert samples.column(Quantity.REQUESTS_FINISHED) == [7.0]
    assert samples.dropped == ()
    # The time of the scrape, not of the query or its response.
    assert requested_at - 1.0 <= samples.at[0] <= time.time()
    assert (await read(second)).column(Quantity.REQUESTS_WAITING) == [0.0]
    # The labels that Prometheus added are removed.
    assert b'vllm:num_requests_waiting{engine="0",model_name="m"} 3.0 ' in found[first.pod]


async def test_failed_scrape_is_a_failed_target_and_not_a_removed_one(prometheus, pages, ask, look, pod, page):
    pages["dying-0"], pages["dying-1"] = page.vllm(waiting=3), page.vllm(waiting=4)
    alive, dying = pod("dying-0", "dying"), pod("dying-1", "dying")
    targets = ask(prometheus, selector='namespace="dying"')
    assert b" 4.0 " in (await look(targets, complete(2)))[dying]
    listed = targets.listing()
    pages["dying-1"] = None
    found = await look(targets, lambda found: isinstance(found[dying], Failure))
    assert found[dying].kind is FailureKind.REFUSED
    assert "instance 'dying-1'" in found[dying].detail
    assert isinstance(found[alive], bytes)
    assert targets.listing() == listed
    pages["dying-1"] = page.vllm(waiting=5)
    assert b" 5.0 " in (await look(targets, complete(2)))[dying]


async def test_gpu_is_attributed_to_its_pod_with_renamed_and_with_honored_labels(
    prometheus, pages, ask, look, page, read
):
    pages["node-1"] = page.gpu("GPU-1", ["chat-0"], engine=0.5) + page.gpu("GPU-2", engine=0.0)
    pages["node-2"] = page.gpu("GPU-3", ["chat-1"], engine=0.7) + page.gpu("GPU-4", engine=0.0)
    targets = ask(prometheus, kind="dcgm", role=Role.GPUS)
    await look(targets, complete(2))
    assert targets.owner is None
    samples_of_nodes = [await read(target) for target in targets.listing().targets]
    exclusive, unattributed = Attribution.EXCLUSIVE, Attribution.NONE
    assert [
        Gpu("GPU-1", model="H100", attribution=exclusive, pods=(PodKey("ai", "chat-0"),)),
        Gpu("GPU-2", model="H100", attribution=unattributed),
        Gpu("GPU-3", model="H100", attribution=exclusive, pods=(PodKey("ai", "chat-1"),)),
        Gpu("GPU-4", model="H100", attribution=unattributed),
    ] == [subject for samples in samples_of_nodes for subject in samples.subjects]
    assert list(samples_of_nodes[0].column(Quantity.GPU_ENGINE_ACTIVE)) == [0.5, 0.0]
    # One GPU gets another pod and one breaks: two scrapes later their old series are gone.
    pages["node-1"] = page.gpu("GPU-1", ["next-0"], engine=0.1)
    await look(targets, lambda found: not any(b"chat-0" in page or b"GPU-2" in page for page in found.values()))
    (gpu,) = (await read(targets.listing().targets[0])).subjects
    assert gpu.pods == (PodKey("ai", "next-0"),)


async def test_invalid_selector_fails_with_the_message_of_prometheus(prometheus, ask, look, pages, page):
    pages["chat-0"] = pages["chat-1"] = page.vllm(waiting=3)
    await look(ask(prometheus), lambda found: True)  # the target exists
    targets = ask(prometheus, selector='namespace="ai')
    await targets.refresh(0.0)
    assert targets.listing() is None
    assert "HTTP 400 Bad Request: bad_data: invalid parameter" in targets.failure
    assert targets.failure.endswith('(selector: namespace="ai)')


async def test_history_has_the_pages_of_that_time(prometheus, pages, ask, look, pod, page):
    pages["past-0"], pages["past-1"] = page.vllm(waiting=1), page.vllm(waiting=1)
    first, second = pod("past-0", "past"), pod("past-1", "past")
    targets = ask(prometheus, selector='namespace="past"', max_age_s=5.0)
    await look(targets, complete(2))
    pages["past-0"], pages["past-1"] = page.vllm(waiting=2), None
    await look(targets, lambda found: b" 2.0 " in found[first] and isinstance(found[second], Failure))
    now = time.time()
    frames = await targets.history(now - 60.0, now, 0.5)
    values = [{target.pod: page.split()[1] for target, page in frame.pages.items()} for frame in frames]
    assert (len(frames), frames[0].at, values[0]) == (121, now - 60.0, {})
    assert {first: b"1.0", second: b"1.0"} in values
    assert (frames[-1].at, values[-1]) == (now, {first: b"2.0"})
    # Each frame has no sample from its future and none older than max_age.
    for frame in frames:
        for body in frame.pages.values():
            assert frame.at - 5.0 < float(body.split()[2]) / 1000.0 <= frame.at

"""The simulated world answers over real sockets."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from scaler.cli.demo.summary import problems
from scaler.cli.demo.world import NAMESPACE, WORKLOAD, open_world


@pytest.fixture
async def http():
    async with aiohttp.ClientSession() as session:
        yield session


async def families(http, url: str) -> dict[str, list]:
    async with http.get(url) as response:
        assert response.status == 200
        assert response.content_type == "text/plain"
        return {family.name: family.samples for family in text_string_to_metric_families(await response.text())}


async def held(http, world) -> float:
    page = await families(http, f"{world.gateway_url}/metrics")
    return page["inference_extension_flow_control_queue_size"][0].value


async def live(world, clock, seconds: float) -> None:
    """Runs the world for `seconds`."""
    day = asyncio.create_task(world.run())
    await clock.reaches(clock.now() + seconds)
    day.cancel()
    await asyncio.gather(day, return_exceptions=True)


async def test_day_answers_every_request(step_clock):
    async with open_world(step_clock, seed=3, duration_s=300.0, startup_s=5.0) as world:
        world.scale(6, step_clock.now())
        await world.run()
        summary = world.summary()
        assert summary.sent == summary.answered > 500
        assert summary.lost == 0
        assert world.cluster.tally.met > 0.9 * summary.answered
        # 6 GPUs for the day and for the few requests that were left at its end.
        assert 0.5 <= summary.gpu_hours < 0.6


async def test_same_seed_gives_the_same_world(step_clock):
    outcomes = []
    for _ in range(2):
        async with open_world(step_clock, seed=5, duration_s=120.0, startup_s=5.0) as world:
            world.scale(3, step_clock.now())
            await world.run()
            outcomes.append((world.summary(), [name for name, _ in world.pod_targets()]))
    assert outcomes[0] == outcomes[1]


async def test_endless_world_begins_another_day(step_clock):
    async with open_world(step_clock, seed=3, duration_s=120.0, startup_s=5.0) as world:
        world.scale(6, step_clock.now())
        days = asyncio.create_task(world.run(forever=True))
        await step_clock.reaches(step_clock.now() + 110.0)
        first = world.summary()
        await step_clock.reaches(step_clock.now() + 120.0)
        days.cancel()
        await asyncio.gather(days, return_exceptions=True)
        assert first.sent == first.answered > 100
        assert world.summary().sent == world.summary().answered > 1.5 * first.sent
        assert world.frame(1.0).at_s < 120.0


async def test_request_of_a_user_is_held_at_zero_and_answered_after_the_wake(step_clock, http):
    async with open_world(step_clock, seed=1, duration_s=3600.0, startup_s=75.0) as world:
        body = {"prompt": "Why is the sea salty?", "max_tokens": 64}
        answer = asyncio.create_task(http.post(f"{world.gateway_url}/v1/completions", json=body))
        async with asyncio.timeout(60.0):
            while await held(http, world) < 1.0:
                pass
            world.scale(1, step_clock.now() + 2.0)
            await live(world, step_clock, 100.0)
            response = await answer
            document = await response.json()
        assert response.status == 200
        assert document["usage"] == {"prompt_tokens": 6, "completion_tokens": 64, "total_tokens": 70}
        assert "held by the gateway for 77.0 s" in document["choices"][0]["text"]
        assert world.summary().woke_after_s == 2.0


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"{", "body: not JSON"),
        (b"[]", "body: must be an object"),
        (b'{"max_tokens": 3}', "prompt: must be a non-empty string"),
        (b'{"prompt": ""}', "prompt: must be a non-empty string"),
        (b'{"prompt": "a", "max_tokens": 0}', "max_tokens: must be from 1 to 4096, got 0"),
        (b'{"prompt": "a", "max_tokens": true}', "max_tokens: must be a whole number"),
        (b'{"prompt": "a", "max_tokens": "9"}', "max_tokens: must be a whole number, got '9'"),
    ],
)
async def test_bad_request_gets_the_error(step_clock, http, body, problem):
    async with (
        open_world(step_clock, seed=1, duration_s=60.0) as world,
        http.post(f"{world.gateway_url}/v1/completions", data=body) as response,
    ):
        assert response.status == 400
        assert problem in (await response.json())["error"]["message"]
        assert world.summary().sent == 0


async def test_only_ready_pods_are_targets_and_have_vllm_pages(step_clock, http):
    async with open_world(step_clock, seed=1, duration_s=600.0, startup_s=75.0) as world:
        world.scale(2, step_clock.now())
        await live(world, step_clock, 60.0)
        assert world.pod_targets() == []
        assert world.replica_count() == (2, 0)
        await live(world, step_clock, 60.0)
        assert world.replica_count() == (2, 2)
        for pod, url in world.pod_targets():
            assert pod.startswith(f"{WORKLOAD}-")
            assert "vllm:num_requests_running" in await families(http, url)


async def test_removed_pod_refuses_connections(step_clock, http):
    async with open_world(step_clock, seed=1, duration_s=600.0, startup_s=0.0) as world:
        world.scale(1, step_clock.now())
        await live(world, step_clock, 1.0)
        ((_, url),) = world.pod_targets()
        world.scale(0, step_clock.now())
        await live(world, step_clock, 5.0)
        assert world.pod_targets() == []
        with pytest.raises(aiohttp.ClientConnectorError):
            await http.get(url)


async def test_page_of_a_node_distinguishes_used_and_free_gpus(step_clock, http):
    async with open_world(step_clock, seed=1, duration_s=600.0, startup_s=0.0) as world:
        world.scale(3, step_clock.now())
        await live(world, step_clock, 30.0)
        pages = [await families(http, url) for url in world.dcgm_urls]
        gpus = [sample for page in pages for sample in page["DCGM_FI_PROF_GR_ENGINE_ACTIVE"]]
        named = {sample.labels["pod"] for sample in gpus if sample.labels.get("namespace") == NAMESPACE}
        assert len(gpus) == 16
        assert named == {name for name, _ in world.pod_targets()}


async def test_day_without_scaling_has_problems(step_clock):
    async with open_world(step_clock, seed=1, duration_s=900.0) as world:
        await world.run()
        summary = world.summary()
        assert summary.lost == summary.sent > 0
        assert [problem.split(" ")[-1] for problem in problems(summary, 900.0)] == ["answered", "replicas", "again"]

"""The daemon puts an idle engine to sleep and wakes it: with a stand-in for vLLM, because sleep mode needs a GPU."""

import asyncio
import json
import time

import pytest

from tests.fakes.sleeping_vllm import serving_vllm
from tests.fakes.waiting import until


@pytest.fixture
async def vllm():
    async with serving_vllm() as served:
        yield served


def workload(vllm, calls="true", keep_warm="1h", access=""):
    return (
        "  - namespace: ai\n    name: chat\n    engine: vllm\n    replicas: {min: 0, max: 4}\n"
        f"    keep_warm: {keep_warm}\n    objectives: {{work: 16}}\n    smoothing: {{up: 0s, down: 0.3s}}\n"
        f"    pods: {{url: '{vllm.metrics}'{access}}}\n    gateway: {{url: '{vllm.gateway}', kind: epp}}\n"
        f"    sleep_mode: {{calls: {calls}, after: 1s, gpu_share: 0.1, timeout: 2s}}\n"
    )


async def evidence(running):
    return (await running.decision())["evidence"]


async def until_tier(running, tier, **more):
    def is_so(found):
        return {key: found[key] for key in ("sleep_tier", *more)} == {"sleep_tier": tier, **more}

    return await until(lambda: evidence(running), is_so)


async def test_idle_engine_sleeps_and_a_request_wakes_it_at_once(daemon, vllm, tmp_path):
    token = tmp_path / "token"
    token.write_text("secret")
    async with daemon(workload(vllm, access=f", access: {{bearer_file: {token}}}")) as running:
        await until_tier(running, "asleep", replicas_sleeping=1)
        assert (vllm.calls, vllm.queries[0], vllm.authorization) == (["sleep"], "level=1&mode=wait", "Bearer secret")
        assert await running.ask.answer() == (1, True)

        vllm.request()
        began = time.monotonic()
        await until(lambda: asyncio.sleep(0, vllm.awake), bool)
        # Within a second: the gateway is read each 0.3 s here. A busy machine takes its time.
        assert time.monotonic() - began < 5.0
        assert (vllm.calls, vllm.finished) == (["sleep", "wake_up"], 1)
        await until_tier(running, "ready", replicas_sleeping=0)
        found = await until(lambda: evidence(running), lambda found: found["wake_s"] is not None)
        assert 0.0 < found["wake_s"] < 5.0
        text = await running.until_metric('tidegate_engine_calls_total{call="wake_up",outcome="ok"} 1')
        assert 'tidegate_sleep_tier{namespace="ai",tier="ready",workload="chat"} 1.0' in text

        # … and idle again, it sleeps again.
        await until_tier(running, "asleep", replicas_sleeping=1)
        assert vllm.calls == ["sleep", "wake_up", "sleep"]


async def test_zero_follows_sleep(daemon, vllm):
    async with daemon(workload(vllm, keep_warm="3s")) as running:
        await until_tier(running, "asleep", replicas_sleeping=1)
        assert await running.ask.answer() == (1, True)
        assert (await running.ask.until((0, False)))[-1] == (0, False)
        await until_tier(running, "zero")
    assert vllm.calls == ["sleep"]


@pytest.mark.parametrize(
    ("behaviour", "why"),
    [
        ("missing", "HTTP 404 Not Found; it needs --enable-sleep-mode and VLLM_SERVER_DEV_MODE=1"),
        ("hang", "no complete answer within 2 s"),
    ],
)
async def test_engine_that_refuses_to_sleep_is_named_and_stays_in_use(daemon, vllm, behaviour, why):
    vllm.behaviour = behaviour
    async with daemon(workload(vllm)) as running:
        found = await until(lambda: evidence(running), lambda found: why in (found["sleep"] or ""))
        assert f"POST /sleep of {vllm.metrics} failed: {why}" in found["sleep"]
        assert await running.ask.answer() == (1, True)
        # Scrapes and decisions go on meanwhile; the call is repeated later and later.
        vllm.request()
        await until_tier(running, "ready")
        assert len(vllm.calls) <= 2
        assert found["stale"] == []
    assert running.stderr.count("engine call failed") == 1


async def test_restart_finds_the_engine_asleep_and_calls_nothing(daemon, vllm):
    async with daemon(workload(vllm)) as running:
        await until_tier(running, "asleep", replicas_sleeping=1)
    async with daemon(workload(vllm)) as running:
        await until_tier(running, "asleep", replicas_sleeping=1)
        assert vllm.calls == ["sleep"]
        vllm.request()
        await until(lambda: asyncio.sleep(0, vllm.awake), bool)
    assert vllm.calls == ["sleep", "wake_up"]


async def test_engine_asleep_by_calls_is_woken_once_when_the_configuration_has_no_sleep_mode_any_more(
    daemon, vllm, tmp_path
):
    state = f'state: {{directory: "{tmp_path}", interval: 1s}}'
    async with daemon(workload(vllm), state) as running:
        await until_tier(running, "asleep", replicas_sleeping=1)
    without = "".join(line for line in workload(vllm).splitlines(keepends=True) if "sleep_mode" not in line)
    async with daemon(without, state) as running:
        await until(lambda: asyncio.sleep(0, vllm.awake), bool)
        found = await until(lambda: evidence(running), lambda found: found["replicas_sleeping"] == 0)
        assert found["sleep_tier"] is None
    assert vllm.calls == ["sleep", "wake_up"]


async def test_engine_that_wakes_by_itself_is_left_awake_for_its_time(daemon, vllm):
    async with daemon(workload(vllm)) as running:
        await until_tier(running, "asleep", replicas_sleeping=1)
        vllm.wake()
        await until_tier(running, "ready", replicas_sleeping=0)
        assert vllm.calls == ["sleep"]
        await until_tier(running, "asleep", replicas_sleeping=1)
    assert vllm.calls == ["sleep", "sleep"]


async def test_no_engine_is_called_without_leave(daemon, vllm):
    async with daemon(workload(vllm, calls="false")) as running:
        await until_tier(running, "asleep", replicas_sleeping=0)
        vllm.awake = False  # another controller acts on it
        await until_tier(running, "asleep", replicas_sleeping=1)
        vllm.request()
        await until_tier(running, "ready", replicas_sleeping=1)
        vllm.wake()
        await until(lambda: evidence(running), lambda found: (found["wake_s"] or 0.0) > 0.0)
    assert vllm.calls == []


async def test_controller_that_reads_the_board_puts_the_engine_to_sleep_and_wakes_it(daemon, vllm):
    async with daemon(workload(vllm, calls="false")) as running:

        async def act():
            """What docs/how-to/groups.md asks of a controller, once."""
            (entry,) = json.loads((await running.get("/api/v1/board/ai/chat"))[1])["workloads"]
            tier = entry["evidence"]["sleep_tier"]
            if tier == "asleep" and vllm.awake:
                vllm.awake = False
            elif tier == "ready" and not vllm.awake:
                vllm.wake()
            return vllm.awake, vllm.finished

        await until(act, lambda state: state == (False, 0))
        vllm.request()
        await until(act, lambda state: state == (True, 1))
        await until(act, lambda state: state == (False, 1))
    assert vllm.calls == []

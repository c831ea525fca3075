"""`/api/v1/profiles` returns what was measured of each workload, and an empty list before the first tick."""

import json

import numpy as np
import pytest

from exporter.model import EngineMemory, WorkloadKey
from scaler.api.http import profiles
from scaler.api.http.server import WebServer
from scaler.engine.decider import Decider
from scaler.policy.columns import Signal, Spec
from scaler.signals.saturation import EngineDevice
from scaler.workloads.spec import WorkloadSpec


@pytest.fixture
async def profiled(site):
    keys = [WorkloadKey("ai", "chat"), WorkloadKey("ai", "chat", "decode"), WorkloadKey("ai", "amber")]
    plans = [WorkloadSpec(key, Spec(0, 8, ((Signal.WORK, 16.0),))) for key in keys]
    site.decider = Decider(plans, interval_s=5.0, fresh_intervals=3.0)
    server = WebServer(
        "127.0.0.1", 0, lambda: site.publisher.board, site.health, site.registry, lambda: site.now,
        profiles.routes(lambda: site.decider, lambda: 1000.0),
    )  # fmt: skip
    site.url = f"http://127.0.0.1:{await server.start()}"
    yield site
    await server.stop()


async def names(site, query=""):
    status, _, text = await site.get(f"/api/v1/profiles{query}")
    document = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert (status, document["now"]) == (200, 1000.0)
    return [(each["name"], each["trigger"]) for each in document["profiles"]]


async def test_profiles_are_sorted_and_may_be_chosen(profiled):
    assert await names(profiled) == [("amber", ""), ("chat", ""), ("chat", "decode")]
    assert await names(profiled, "?workload=ai/chat/decode&workload=ai/amber") == [("amber", ""), ("chat", "decode")]


async def test_profile_has_throughputs_on_slices_and_the_memory_of_the_engine(profiled):
    """Of `ai/chat`; what was not measured is an empty list and null."""
    latest, gpu = profiled.decider.latest, EngineDevice("NVIDIA A100-SXM4-40GB", "3g.20gb")
    for at, tokens in ((500.0, 0.0), (800.0, 390_000.0)):
        latest.saturation.land(0, 7, at, gpu, np.array([tokens / 200, np.nan, tokens]))
    latest.engine_memories.land(0, 7, EngineMemory(16_000, None), [7])
    _, _, text = await profiled.get("/api/v1/profiles?workload=ai/chat&workload=ai/amber")
    amber, chat = json.loads(text)["profiles"]
    (measured,) = chat["slice_throughputs"]
    assert measured == {
        "gpu": "NVIDIA A100-SXM4-40GB", "profile": "3g.20gb", "rate": 1300.0, "unit": "tokens", "prompt_per_unit": None,
        "seconds": 300.0,
    }  # fmt: skip
    assert chat["engine_memory"] == {"kv_tokens": 16_000, "utilization": None}
    assert (amber["slice_throughputs"], amber["engine_memory"]) == ([], None)


async def test_no_profile_before_the_first_configuration_runs(profiled):
    profiled.decider = None
    assert await names(profiled) == []

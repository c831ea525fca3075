"""`/api/v1/profiles` returns what was measured of each workload, and an empty list before the first tick."""

import json

import pytest

from exporter.model import WorkloadKey
from scaler.api.http import profiles
from scaler.api.http.server import WebServer
from scaler.engine.decider import Decider
from scaler.policy.columns import Signal, Spec
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


async def test_no_profile_before_the_first_configuration_runs(profiled):
    profiled.decider = None
    assert await names(profiled) == []

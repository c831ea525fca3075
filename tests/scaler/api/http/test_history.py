"""`/api/v1/history` returns the decision log as JSON and refuses invalid queries."""

import json

import pytest

from exporter.model import ReplicaCount, WorkloadKey
from scaler.api.http.explain import ExplainHandler
from scaler.api.http.server import WebServer
from scaler.engine.decider import Decider
from scaler.engine.publisher import Publisher
from scaler.explain.document import DecisionExplainer
from scaler.policy.columns import Signal, Spec
from scaler.workloads.spec import WorkloadSpec


@pytest.fixture
async def site_with_history(site):
    """A site with one minute of decisions for the workload chat, without samples."""
    chat = WorkloadKey("ai", "chat")
    site.decider = Decider(
        [WorkloadSpec(chat, Spec(0, 8, ((Signal.WORK, 16.0),)))], interval_s=5.0, fresh_intervals=3.0, log_bytes=2**26
    )
    site.publisher = Publisher([chat])
    site.explainer = DecisionExplainer(site.decider)
    for second in range(0, 61, 5):
        site.now = 1000.0 + second
        site.decider.counted(chat, ReplicaCount(2, 2, site.now))
        site.publisher.publish(site.decider.sweep(site.now), site.now)
    server = WebServer(
        "127.0.0.1", 0, lambda: site.publisher.board, site.health, site.registry, lambda: site.now,
        ExplainHandler(lambda: site.publisher.board, lambda: site.explainer, lambda: site.now).routes(),
    )  # fmt: skip
    site.url = f"http://127.0.0.1:{await server.start()}"
    yield site
    await server.stop()


async def test_default_is_the_last_hour_of_every_workload(site_with_history):
    status, kind, text = await site_with_history.get("/api/v1/history")
    assert (status, kind) == (200, "application/json; charset=utf-8")
    document = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    (chat,) = document["workloads"]
    assert (document["now"], chat["namespace"], chat["name"], chat["trigger"]) == (1060.0, "ai", "chat", "")
    # One entry of the first sweep, one per 15 s, and the entry of the Board.
    assert 5 <= len(chat["at"]) <= 6
    assert (chat["at"][0], chat["at"][-1]) == (1000.0, 1060.0)
    assert (chat["actual"], chat["load"]) == ([2] * len(chat["at"]), [None] * len(chat["at"]))


async def test_query_selects_workload_points_and_start(site_with_history):
    (chat,) = json.loads((await site_with_history.get("/api/v1/history/ai/chat?points=2&since=30"))[2])["workloads"]
    assert (len(chat["at"]), chat["at"][-1]) == (2, 1060.0)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("points=many", "points: must be a number from 1 to 480, got many"),
        ("points=0", "points: must be a number from 1 to 480, got 0"),
        ("since=-1", "since: must be a number from 1 to 604800, got -1"),
        ("since=nan", "since: must be a number from 1 to 604800, got nan"),
    ],
)
async def test_invalid_query_error_names_the_key(site_with_history, query, message):
    for path in ("/api/v1/history", "/api/v1/history/ai/chat"):
        status, _, text = await site_with_history.get(f"{path}?{query}")
        assert (status, json.loads(text)) == (400, {"error": message})


async def test_unknown_workload_is_404(site_with_history):
    status, _, text = await site_with_history.get("/api/v1/history/ai/absent")
    assert (status, json.loads(text)) == (404, {"error": "ai/absent: no such workload on the Board"})


async def test_history_before_the_first_decision_is_empty(site_with_history):
    site_with_history.explainer = None
    assert json.loads((await site_with_history.get("/api/v1/history"))[2]) == {"now": 1060.0, "workloads": []}

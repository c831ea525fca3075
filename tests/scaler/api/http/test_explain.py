"""`/api/v1/explain` returns one document for the page, the terminal and files, and refuses invalid queries."""

import json

import pytest

from exporter.model import ReplicaCount, WorkloadKey
from scaler.api.http.explain import ExplainHandler, moment
from scaler.api.http.server import WebServer
from scaler.engine.decider import Decider
from scaler.engine.publisher import Publisher
from scaler.explain.document import DecisionExplainer
from scaler.explain.outcome_inputs import ControllerOutcome, OutcomeCode
from scaler.explain.rows import row
from scaler.model import Board, Decision, Reason
from scaler.policy.columns import Signal, Spec
from scaler.workloads.spec import WorkloadSpec
from tests.scaler.explain.recompute import differences, read_inputs

CHAT = WorkloadKey("ai", "chat")
STEPS = ["raw", "cleaned", "smoothed", "objectives", "winner", "clamp", "overrides", "published"]


@pytest.fixture
async def decided_site(site):
    """A site with one workload: the cluster has 2 replicas, then 3, and no target answers."""
    spec = Spec(0, 8, ((Signal.WORK, 16.0),), pods=False)
    site.decider = Decider([WorkloadSpec(CHAT, spec)], interval_s=5.0, fresh_intervals=3.0, log_bytes=2**26)
    site.publisher, site.follows, site.controller = Publisher([CHAT]), None, None
    site.explainer = DecisionExplainer(site.decider)
    for second in range(0, 61, 5):
        site.now = 1000.0 + second
        site.decider.counted(CHAT, ReplicaCount(3 if second > 30 else 2, 2, site.now))
        site.publisher.publish(site.decider.sweep(site.now), site.now)
    explain = ExplainHandler(
        lambda: site.publisher.board, lambda: site.explainer, lambda: site.now, lambda: site.follows,
        lambda key: site.controller,
    )  # fmt: skip
    server = WebServer(
        "127.0.0.1", 0, lambda: site.publisher.board, site.health, site.registry, lambda: site.now, explain.routes()
    )
    site.url = f"http://127.0.0.1:{await server.start()}"

    async def get(path):
        status, kind, text = await site.get(path)
        assert kind == "application/json; charset=utf-8"
        return status, json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))

    site.get_json = get
    yield site
    await server.stop()


async def test_document_is_of_the_last_sweep_and_reproduces_its_decision(decided_site):
    decided_site.now = 1061.0
    status, document = await decided_site.get_json("/api/v1/explain/ai/chat")
    assert status == 200
    assert list(document) == [
        "workload", "now", "at", "log_begins_at", "summary", "answer", "row", "follows", "chain", "further_hour",
        "inputs", "changes",
    ]  # fmt: skip
    assert document["workload"] == {"namespace": "ai", "name": "chat", "trigger": ""}
    assert (document["now"], document["at"], document["log_begins_at"]) == (1061.0, 1060.0, 1000.0)
    assert document["answer"] == json.loads(json.dumps(decided_site.publisher.board.get(CHAT).to_document()))
    assert [step["step"] for step in document["chain"]] == STEPS
    assert all(step["title"] and step["sentences"] for step in document["chain"])
    for step in document["chain"]:
        table = step["table"]
        assert table is None or all(len(row) == len(table["columns"]) for row in table["rows"])
    assert differences(read_inputs(document["inputs"], CHAT)) == []
    assert document["changes"][0]["at"] == 1000.0


@pytest.mark.parametrize("at", ["1031.5", "1970-01-01T00:17:11.5Z", "1970-01-01T01:17:11.5+01:00"])
async def test_past_time_returns_the_decision_of_that_time(decided_site, at):
    status, document = await decided_site.get_json(f"/api/v1/explain/ai/chat?at={at}")
    assert status == 200
    assert 1000.0 <= document["at"] <= 1031.5
    assert document["inputs"]["readings"]["wanted"] == 2.0
    assert document["chain"][0]["sentences"][0].startswith("Single targets are not stored.")


async def test_time_before_the_log_returns_the_oldest_entry_with_a_note(decided_site):
    _, document = await decided_site.get_json("/api/v1/explain/ai/chat?at=12")
    assert document["at"] == 1000.0
    assert document["summary"].startswith(
        "The log does not have 1970-01-01 00:00:12Z: it begins at 1970-01-01 00:16:40Z, with this. "
    )


@pytest.mark.parametrize(
    ("at", "message"),
    [
        ("yesterday", "must be POSIX seconds or a time such as 2026-11-22T10:00:00Z, got yesterday"),
        ("2026-11-22T10:00:00", "has no offset; add Z or an offset"),
        ("1761990000000", "got 1761990000000"),
        ("nan", "got nan"),
        ("-5", "got -5"),
        ("2026-13-40T10:00Z", "got 2026-13-40T10:00Z"),
    ],
)
async def test_invalid_time_is_refused(decided_site, at, message):
    status, document = await decided_site.get_json(f"/api/v1/explain/ai/chat?at={at}")
    assert (status, list(document)) == (400, ["error"])
    assert message in document["error"]


def test_unescaped_plus_is_read_as_a_plus():
    assert moment("2026-11-22T11:00:00 01:00") == moment("2026-11-22T10:00:00Z") == 1795341600.0


async def test_unknown_workload_is_404(decided_site):
    assert await decided_site.get_json("/api/v1/explain/ai/absent") == (
        404,
        {"error": "ai/absent: no such workload on the Board"},
    )
    status, _ = await decided_site.get_json("/api/v1/explain/ai/chat?trigger=decode")
    assert status == 404


async def test_explanation_before_the_first_sweep_is_503(decided_site):
    decided_site.explainer = None
    status, document = await decided_site.get_json("/api/v1/explain/ai/chat")
    assert (status, document) == (503, {"error": "nothing has been decided yet: Tidegate is starting"})


async def test_follower_names_the_leader_that_it_repeats(decided_site):
    decided_site.follows = "10.0.0.2:8444"
    decided_site.publisher.follow({CHAT: Decision(CHAT, 5, True, Reason.SERVING, 1050.0)}, 1060.0)
    _, document = await decided_site.get_json("/api/v1/explain/ai/chat")
    assert (document["follows"], document["answer"]["replicas"]) == ("10.0.0.2:8444", 5)
    assert document["chain"][-1]["sentences"][-1] == (
        "This replica repeats the decision of the leader at 10.0.0.2:8444: 5 replicas, serving. "
        "The steps above are of its own decision."
    )


async def test_workload_known_only_to_the_leader_has_a_decision_without_a_chain(decided_site):
    other = WorkloadKey("ai", "new")
    decided_site.publisher.keep_only([CHAT, other], 1060.0)
    decided_site.publisher.follow({other: Decision(other, 5, True, Reason.SERVING, 1050.0)}, 1060.0)
    decided_site.follows = "10.0.0.2:8444"
    status, document = await decided_site.get_json("/api/v1/explain/ai/new")
    assert (status, document["at"], document["chain"], document["inputs"], document["changes"]) == (
        200, None, [], None, []
    )  # fmt: skip
    assert document["answer"]["replicas"] == 5
    assert "it repeats the leader at 10.0.0.2:8444" in document["summary"]


async def test_controller_step_is_last_and_only_of_the_present(decided_site):
    decided_site.controller = ControllerOutcome(OutcomeCode.AT_MAX, ("the HPA stays at 2.",))
    _, now = await decided_site.get_json("/api/v1/explain/ai/chat")
    _, then = await decided_site.get_json("/api/v1/explain/ai/chat?at=1030")
    assert [step["step"] for step in now["chain"]] == [*STEPS, "controller"]
    assert [step["step"] for step in then["chain"]] == STEPS
    assert (now["row"]["hindered"], now["row"]["hindered_by"]) == ("at_max", "the HPA stays at 2.")


async def test_row_steps_and_evidence_are_of_one_decision(decided_site):
    _, document = await decided_site.get_json("/api/v1/explain/ai/chat")
    decision = decided_site.publisher.board.get(CHAT)
    assert document["answer"] == json.loads(json.dumps(decision.to_document()))
    assert document["row"] == json.loads(json.dumps(row(decision, decided_site.now).to_document()))
    assert not any("newer than these steps" in sentence for sentence in document["chain"][-1]["sentences"])


async def test_steps_say_if_the_published_decision_is_newer(decided_site):
    decided_site.publisher.publish([Decision(CHAT, 5, True, Reason.SERVING, 1060.5)], 1060.5)
    _, document = await decided_site.get_json("/api/v1/explain/ai/chat")
    assert document["chain"][-1]["sentences"][-1] == (
        "The published decision is newer than these steps: 5 replicas, serving."
    )


def test_present_is_explained_without_a_log():
    decider = Decider([WorkloadSpec(CHAT, Spec(0, 8, ()))], interval_s=5.0, fresh_intervals=3.0)
    (decision,) = decider.sweep(1000.0)
    explain = DecisionExplainer(decider).explain(CHAT, Board(1, 1000.0, {CHAT: decision}), 1000.5, None, None, None)
    document = explain()
    assert (document["at"], [step["step"] for step in document["chain"]]) == (1000.0, STEPS)

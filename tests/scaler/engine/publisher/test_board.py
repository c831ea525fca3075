"""Decisions refuse contradictory values, and their JSON does not change by accident."""

import json
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import WorkloadKey
from scaler.model import EMPTY, Board, Decision, Evidence, Objective, Reason

CHAT = WorkloadKey("ai", "chat")

# Clients of /api/v1/board depend on this: a key may be added; none may be removed or change its meaning.
GOLDEN = """\
{
  "version": 7,
  "at": 1010.0,
  "workloads": [
    {
      "workload": {
        "namespace": "ai",
        "name": "chat",
        "trigger": ""
      },
      "replicas": 3,
      "active": true,
      "reason": "serving",
      "decided_at": 1000.0,
      "measured_at": 998.5,
      "held_since": null,
      "idle_since": null,
      "evidence": {
        "waiting": 30.0,
        "running": 10.0,
        "held_by_gateway": null,
        "kv_cache_used": 0.5,
        "gpu_engine_active": null,
        "requests_per_second": 4.2,
        "replicas_wanted": 3,
        "replicas_ready": 2,
        "replicas_pending": null,
        "gpus_held": null,
        "gpus_attributed": null,
        "gpus_lost": null,
        "gpu_activity": null,
        "gpu_engine_ceiling": null,
        "gpu_memory_held_bytes": null,
        "wake_source": null,
        "objectives": [
          {
            "name": "work",
            "value": 40.0,
            "target": 16.0,
            "replicas": 2.5
          },
          {
            "name": "gpu_engine",
            "value": null,
            "target": 0.8,
            "replicas": null
          }
        ],
        "stale": [
          "http://10.0.0.7:8000/metrics"
        ],
        "incomplete": [],
        "notes": [],
        "brake": null,
        "brake_until": null,
        "schedule": null,
        "schedule_floor": null,
        "schedule_ceiling": null,
        "queue_order": null,
        "gpu_share_replicas": null,
        "keep_warm_s": null,
        "starts_again_at": null,
        "cold_start_p50_s": null,
        "cold_start_p90_s": null,
        "zero_start_mean_s": null,
        "zero_start_p90_s": null,
        "cold_start_requests": null,
        "cold_starts_covered": null,
        "keep_warm_saves_gpu_seconds": null,
        "keep_warm_saves_money": null,
        "probe_period_s": null,
        "regular_requests_count_until": null,
        "replicas_sleeping": null,
        "sleep_tier": null,
        "sleep_after_s": null,
        "wake_s": null,
        "sleep": null,
        "slo": null,
        "slo_attainment": null,
        "slo_attainment_least": null,
        "slo_attainment_most": null,
        "slo_attainment_hour": null,
        "slo_error_budget": null,
        "slo_requests_total": null,
        "slo_misses_total": null,
        "request_replica_s": null,
        "request_s": null,
        "replica_requests": null,
        "request_slowdown": null,
        "replica_full": null,
        "step_s": null,
        "headroom_times": null,
        "burst_replicas": null
      },
      "observed": false,
      "published": 3
    },
    {
      "workload": {
        "namespace": "ai",
        "name": "code",
        "trigger": ""
      },
      "replicas": null,
      "active": true,
      "reason": "unknown",
      "decided_at": 1000.0,
      "measured_at": null,
      "held_since": null,
      "idle_since": null,
      "evidence": {
        "waiting": null,
        "running": null,
        "held_by_gateway": null,
        "kv_cache_used": null,
        "gpu_engine_active": null,
        "requests_per_second": null,
        "replicas_wanted": null,
        "replicas_ready": null,
        "replicas_pending": null,
        "gpus_held": null,
        "gpus_attributed": null,
        "gpus_lost": null,
        "gpu_activity": null,
        "gpu_engine_ceiling": null,
        "gpu_memory_held_bytes": null,
        "wake_source": null,
        "objectives": [],
        "stale": [],
        "incomplete": [],
        "notes": [],
        "brake": null,
        "brake_until": null,
        "schedule": null,
        "schedule_floor": null,
        "schedule_ceiling": null,
        "queue_order": null,
        "gpu_share_replicas": null,
        "keep_warm_s": null,
        "starts_again_at": null,
        "cold_start_p50_s": null,
        "cold_start_p90_s": null,
        "zero_start_mean_s": null,
        "zero_start_p90_s": null,
        "cold_start_requests": null,
        "cold_starts_covered": null,
        "keep_warm_saves_gpu_seconds": null,
        "keep_warm_saves_money": null,
        "probe_period_s": null,
        "regular_requests_count_until": null,
        "replicas_sleeping": null,
        "sleep_tier": null,
        "sleep_after_s": null,
        "wake_s": null,
        "sleep": null,
        "slo": null,
        "slo_attainment": null,
        "slo_attainment_least": null,
        "slo_attainment_most": null,
        "slo_attainment_hour": null,
        "slo_error_budget": null,
        "slo_requests_total": null,
        "slo_misses_total": null,
        "request_replica_s": null,
        "request_s": null,
        "replica_requests": null,
        "request_slowdown": null,
        "replica_full": null,
        "step_s": null,
        "headroom_times": null,
        "burst_replicas": null
      },
      "observed": false,
      "published": null
    }
  ]
}"""


def test_json_of_the_board_is_the_golden_document():
    evidence = Evidence(
        waiting=30.0,
        running=10.0,
        kv_cache_used=0.5,
        requests_per_second=4.2,
        replicas_wanted=3,
        replicas_ready=2,
        objectives=(Objective("work", 40.0, 16.0, 2.5), Objective("gpu_engine", None, 0.8, None)),
        stale=("http://10.0.0.7:8000/metrics",),
    )
    chat = Decision(
        CHAT, 3, active=True, reason=Reason.SERVING, decided_at=1000.0, measured_at=998.5, evidence=evidence
    )
    code = Decision(WorkloadKey("ai", "code"), None, active=True, reason=Reason.UNKNOWN, decided_at=1000.0)
    # They are listed by name, in whatever order they were published.
    board = Board(7, 1010.0, MappingProxyType({code.workload: code, chat.workload: chat}))
    assert json.dumps(board.to_document(), indent=2, allow_nan=False) == GOLDEN


def test_empty_board_has_a_document():
    assert EMPTY.to_document() == {"version": 0, "at": 0.0, "workloads": []}
    assert EMPTY.get(CHAT) is None


@pytest.mark.parametrize(("replicas", "active"), [(0, True), (1, False), (8, False), (-1, True), (-1, False)])
def test_only_zero_replicas_are_inactive(replicas, active):
    with pytest.raises(ValueError, match=f"ai/chat: {replicas} replicas cannot be active={active}"):
        Decision(CHAT, replicas, active=active, reason=Reason.SERVING, decided_at=0.0)


@given(replicas=st.none() | st.integers(-2, 20), active=st.booleans())
def test_every_decision_keeps_the_invariant(replicas, active):
    try:
        decision = Decision(CHAT, replicas, active=active, reason=Reason.SERVING, decided_at=0.0)
    except ValueError:
        assert replicas is not None
        assert replicas < 0 or (replicas == 0) == active
        return
    assert decision.replicas is None or (decision.replicas >= 1) == decision.active


def test_published_number_defaults_to_the_replicas():
    chat = {"active": True, "reason": Reason.SERVING, "decided_at": 0.0}
    assert [Decision(CHAT, 11, **chat).published, Decision(CHAT, 11, published=12, **chat).published] == [11, 12]
    assert Decision(CHAT, None, active=True, reason=Reason.UNKNOWN, decided_at=0.0).published is None


@pytest.mark.parametrize(("replicas", "published"), [(3, 2), (0, 1), (None, 3)])
def test_published_number_is_never_below_the_replicas_and_never_unknown(replicas, published):
    with pytest.raises(ValueError, match=f"ai/chat: {replicas} replicas cannot be published as {published}"):
        Decision(CHAT, replicas, active=replicas != 0, reason=Reason.SERVING, decided_at=0.0, published=published)


def test_document_of_an_older_peer_publishes_its_replicas():
    decision = Decision(CHAT, 11, active=True, reason=Reason.SERVING, decided_at=0.0, published=12)
    document = decision.to_document()
    assert Decision.from_document(document) == decision
    del document["published"]
    assert Decision.from_document(document).published == 11


def test_decision_is_immutable():
    decision = Decision(CHAT, 3, active=True, reason=Reason.SERVING, decided_at=0.0)
    with pytest.raises(AttributeError):
        decision.replicas = 0


def test_reasons_are_a_closed_list():
    assert [str(reason) for reason in Reason] == [
        "serving", "queued", "gpu_busy", "loading", "warm", "asleep", "held", "incomplete", "unknown", "no_wake_source",
        "scheduled", "frozen", "capped", "capacity_limited",
    ]  # fmt: skip

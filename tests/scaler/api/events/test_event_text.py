"""Two consecutive decisions give the Events of the change, each with one sentence."""

import pytest

from scaler.explain.event_text import NORMAL, WARNING, EventReason, news, sentence
from scaler.model import Objective, Reason

AT = 1000.0


def events_of(before, after, at=AT):
    return [(kind.value, kind.type, sentence(kind, before, after)) for kind in news(before, after, at)]


def test_asleep_event_has_the_idle_time_and_the_wake_source(decide):
    asleep = decide(0, idle_since=688.0, wake_source="the queue on http://epp:9090/metrics")
    note = "asleep: idle for 5 min, and its wake source is the queue on http://epp:9090/metrics"
    assert events_of(decide(1, Reason.WARM), asleep) == [("Asleep", NORMAL, note)]
    assert events_of(decide(1), decide(0)) == [("Asleep", NORMAL, "asleep: idle")]


@pytest.mark.parametrize(
    ("replicas", "reason", "evidence", "note"),
    [
        (1, Reason.QUEUED, {"held_by_gateway": 1.0}, "awake, 1 replica wanted: requests: 1 waiting"),
        (2, Reason.QUEUED, {"waiting": 3, "running": 1},
         "awake, 2 replicas wanted: requests: 3 waiting, 1 in progress"),
        (1, Reason.WARM, {"starts_again_at": 1300.0}, "awake, 1 replica wanted: the next request is predicted"),
        (4, Reason.SCHEDULED, {"schedule": "floor 4 until 18:00"}, "awake, 4 replicas wanted: floor 4 until 18:00"),
        (2, Reason.FROZEN, {"brake": "floor 2 (ai/D/c)"}, "awake, 2 replicas wanted: floor 2 (ai/D/c)"),
        (1, Reason.GPU_BUSY, {}, "awake, 1 replica wanted: gpu_busy"),
    ],
)  # fmt: skip
def test_woken_event_has_the_cause(decide, replicas, reason, evidence, note):
    assert events_of(decide(0), decide(replicas, reason, **evidence)) == [("Woken", NORMAL, note)]


def test_held_event_names_the_stale_targets(decide):
    stale = tuple(f"http://10.0.0.{n}:8000/metrics" for n in range(5))
    note = "held at 3 replicas, as decided last: no fresh readings from "
    note += "http://10.0.0.0:8000/metrics, http://10.0.0.1:8000/metrics, http://10.0.0.2:8000/metrics and 2 more"
    assert events_of(decide(3), decide(3, Reason.HELD, stale=stale)) == [("Held", WARNING, note)]
    asleep = decide(0, Reason.HELD, notes=("the list of its pods is not known",), wake_source="the queue on http://epp")
    note = "held at zero, as decided last: the list of its pods is not known"
    assert events_of(decide(0), asleep) == [("Held", WARNING, note)]
    note = "held at zero, as decided last; nothing would see the next request: no fresh readings from http://epp"
    assert events_of(decide(0), decide(0, Reason.HELD, stale=("http://epp",))) == [("Held", WARNING, note)]


def test_change_from_held_to_unknown_has_an_event_and_back_has_none(decide):
    held, unknown = decide(3, Reason.HELD), decide(None)
    note = "unknown: its readings are missing or too old; KEDA and the HPA get an error, never a zero"
    assert events_of(held, unknown) == [("Unknown", WARNING, note)]
    assert events_of(unknown, held) == []
    assert events_of(held, decide(3)) == []


def test_capped_event_has_the_demand(decide):
    objectives = (Objective("work", 91.0, 8.0, 11.375), Objective("kv_cache", None, 0.8, None))
    note = "capped at 8 replicas, its maximum: work needs 11.4"
    assert events_of(decide(7), decide(8, Reason.CAPPED, objectives=objectives)) == [("Capped", WARNING, note)]
    assert events_of(decide(7), decide(8, Reason.CAPPED))[0][2] == "capped at 8 replicas, its maximum"


def test_event_of_a_missing_wake_source_has_the_cause(decide):
    note = "no gateway is configured, so nothing would see a request at zero replicas"
    awake = decide(1, Reason.NO_WAKE_SOURCE, idle_since=400.0, notes=("another note", note))
    note = f"not scaled to zero: idle for 10 min, and {note}"
    assert events_of(decide(1, Reason.WARM), awake) == [("NoWakeSource", WARNING, note)]


@pytest.mark.parametrize(("wake_source", "cause"), [
    ("the queue on http://epp:9090/metrics", "the queue on http://epp:9090/metrics is gone"),
    (None, "the gateway does not answer"),
])  # fmt: skip
def test_workload_at_zero_that_loses_its_wake_source_has_an_event(decide, wake_source, cause):
    note = "the gateway does not answer, so nothing would see a request at zero replicas"
    lost = decide(0, Reason.NO_WAKE_SOURCE, idle_since=400.0, notes=(note,))
    note = f"stays at zero; nothing would see the next request: {cause}"
    assert events_of(decide(0, wake_source=wake_source), lost) == [("WakeSourceLost", WARNING, note)]
    assert events_of(lost, decide(0, wake_source="the queue on http://epp")) == []


def test_expired_brake_has_an_event_and_a_removed_brake_has_none(decide):
    frozen = decide(3, Reason.FROZEN, brake="freeze until 1970-01-01T00:16Z (ai/Deployment/chat)", brake_until=960.0)
    note = "a brake has ended: freeze until 1970-01-01T00:16Z (ai/Deployment/chat)"
    assert events_of(frozen, decide(3)) == [("BrakeEnded", NORMAL, note)]
    assert events_of(frozen, decide(3), at=959.0) == []
    assert events_of(decide(3, Reason.FROZEN, brake="freeze (configuration)"), decide(3)) == []


def test_end_of_a_brake_and_its_effect_are_two_events(decide):
    frozen = decide(3, Reason.FROZEN, brake="freeze until 1970-01-01T00:16Z (ai/Deployment/chat)", brake_until=960.0)
    assert [kind for kind, *_ in events_of(frozen, decide(0))] == ["Asleep", "BrakeEnded"]


def test_first_or_unchanged_decision_has_no_event(decide):
    """A restart writes no Events."""
    for first in (decide(0), decide(3, Reason.HELD), decide(8, Reason.CAPPED), decide(None)):
        assert news(None, first, AT) == ()
    assert events_of(decide(2), decide(7)) == []
    assert events_of(decide(2, Reason.WARM), decide(2, Reason.QUEUED)) == []


def test_observed_workload_has_no_events(decide):
    assert events_of(decide(2, observed=True), decide(0, observed=True)) == []


def test_every_kind_has_an_action_and_a_reason_of_one_word(decide):
    for kind in EventReason:
        assert kind.action.isalpha()
        assert kind.value.isalpha()


def test_engines_that_fall_asleep_and_wake_have_events_while_their_replica_stays(decide):
    ready = decide(1, Reason.WARM, idle_since=940.0, sleep_tier="ready", sleep="a wake takes 0.3 s")
    asleep = decide(1, Reason.WARM, idle_since=940.0, sleep_tier="asleep", sleep="a wake takes 0.3 s")
    woken = decide(1, Reason.LOADING, held_by_gateway=1.0, sleep_tier="ready")
    assert events_of(ready, asleep) == [("EnginesAsleep", NORMAL, "engines asleep: idle for 1 min; a wake takes 0.3 s")]
    assert events_of(asleep, woken) == [("EnginesWoken", NORMAL, "engines woken: requests: 1 waiting")]
    assert [kind for kind, *_ in events_of(asleep, decide(0, sleep_tier="zero"))] == ["Asleep"]

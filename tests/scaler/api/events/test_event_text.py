"""Two answers, one after the other, and what a person is told of it."""

import pytest

from scaler.explain.event_text import NORMAL, WARNING, EventReason, news, sentence
from scaler.model import Objective, Reason

AT = 1000.0


def told(before, after, at=AT):
    return [(kind.value, kind.type, sentence(kind, before, after)) for kind in news(before, after, at)]


def test_an_asleep_event_has_the_idle_time_and_the_wake_source(decide):
    asleep = decide(0, idle_since=688.0, wake_source="the queue on http://epp:9090/metrics")
    words = "asleep: idle for 5 min, and its wake source is the queue on http://epp:9090/metrics"
    assert told(decide(1, Reason.WARM), asleep) == [("Asleep", NORMAL, words)]
    assert told(decide(1), decide(0)) == [("Asleep", NORMAL, "asleep: idle")]


@pytest.mark.parametrize(
    ("replicas", "reason", "evidence", "words"),
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
def test_a_woken_event_has_the_cause(decide, replicas, reason, evidence, words):
    assert told(decide(0), decide(replicas, reason, **evidence)) == [("Woken", NORMAL, words)]


def test_a_hold_names_the_stale_targets(decide):
    stale = tuple(f"http://10.0.0.{n}:8000/metrics" for n in range(5))
    words = "held at 3 replicas, as decided last: no fresh readings from "
    words += "http://10.0.0.0:8000/metrics, http://10.0.0.1:8000/metrics, http://10.0.0.2:8000/metrics and 2 more"
    assert told(decide(3), decide(3, Reason.HELD, stale=stale)) == [("Held", WARNING, words)]
    asleep = decide(0, Reason.HELD, notes=("the list of its pods is not known",), wake_source="the queue on http://epp")
    words = "held at zero, as decided last: the list of its pods is not known"
    assert told(decide(0), asleep) == [("Held", WARNING, words)]
    words = "held at zero, as decided last; nothing would see the next request: no fresh readings from http://epp"
    assert told(decide(0), decide(0, Reason.HELD, stale=("http://epp",))) == [("Held", WARNING, words)]


def test_held_to_unknown_has_an_event_and_back_has_none(decide):
    held, unknown = decide(3, Reason.HELD), decide(None)
    words = "unknown: its readings are missing or too old; KEDA and the HPA get an error and change nothing"
    assert told(held, unknown) == [("Unknown", WARNING, words)]
    assert told(unknown, held) == []
    assert told(held, decide(3)) == []


def test_a_capped_event_has_the_demand(decide):
    objectives = (Objective("work", 91.0, 8.0, 11.375), Objective("kv_cache", None, 0.8, None))
    words = "capped at 8 replicas, its maximum: work needs 11.4"
    assert told(decide(7), decide(8, Reason.CAPPED, objectives=objectives)) == [("Capped", WARNING, words)]
    assert told(decide(7), decide(8, Reason.CAPPED))[0][2] == "capped at 8 replicas, its maximum"


def test_a_missing_wake_source_has_the_cause(decide):
    note = "no gateway is configured, so nothing would see a request at zero replicas"
    awake = decide(1, Reason.NO_WAKE_SOURCE, idle_since=400.0, notes=("another note", note))
    words = f"not scaled to zero: idle for 10 min, and {note}"
    assert told(decide(1, Reason.WARM), awake) == [("NoWakeSource", WARNING, words)]


@pytest.mark.parametrize(("wake_source", "cause"), [
    ("the queue on http://epp:9090/metrics", "the queue on http://epp:9090/metrics is gone"),
    (None, "the gateway does not answer"),
])  # fmt: skip
def test_a_workload_at_zero_that_nothing_would_wake_stays_there(decide, wake_source, cause):
    note = "the gateway does not answer, so nothing would see a request at zero replicas"
    lost = decide(0, Reason.NO_WAKE_SOURCE, idle_since=400.0, notes=(note,))
    words = f"stays at zero; nothing would see the next request: {cause}"
    assert told(decide(0, wake_source=wake_source), lost) == [("WakeSourceLost", WARNING, words)]
    assert told(lost, decide(0, wake_source="the queue on http://epp")) == []


def test_a_brake_that_expires_has_an_event_and_a_removed_one_has_none(decide):
    frozen = decide(3, Reason.FROZEN, brake="freeze until 1970-01-01T00:16Z (ai/Deployment/chat)", brake_until=960.0)
    words = "a brake has ended: freeze until 1970-01-01T00:16Z (ai/Deployment/chat)"
    assert told(frozen, decide(3)) == [("BrakeEnded", NORMAL, words)]
    assert told(frozen, decide(3), at=959.0) == []
    assert told(decide(3, Reason.FROZEN, brake="freeze (configuration)"), decide(3)) == []


def test_a_brake_that_ends_and_what_comes_of_it_are_two_things(decide):
    frozen = decide(3, Reason.FROZEN, brake="freeze until 1970-01-01T00:16Z (ai/Deployment/chat)", brake_until=960.0)
    assert [kind for kind, *_ in told(frozen, decide(0))] == ["Asleep", "BrakeEnded"]


def test_a_first_or_unchanged_decision_has_no_event(decide):
    """A restart tells nobody anything."""
    for first in (decide(0), decide(3, Reason.HELD), decide(8, Reason.CAPPED), decide(None)):
        assert news(None, first, AT) == ()
    assert told(decide(2), decide(7)) == []
    assert told(decide(2, Reason.WARM), decide(2, Reason.QUEUED)) == []


def test_an_observed_workload_has_no_events(decide):
    assert told(decide(2, observed=True), decide(0, observed=True)) == []


def test_every_kind_has_an_action_and_a_reason_of_one_word(decide):
    for kind in EventReason:
        assert kind.action.isalpha()
        assert kind.value.isalpha()

"""A Decision survives the wire, whatever fields the neighbouring versions add or omit."""

import json
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import WorkloadKey
from scaler.ha.frame import shift
from scaler.model import Decision, Evidence, Objective, Reason

NUMBER = st.floats(-1e12, 1e12)
TEXT = st.text(max_size=8)


def numbers(cls):
    """Returns strategies for the numeric fields. Hypothesis infers all other fields, so that a new field is tested."""
    optional = {each.name: "None" in each.type for each in fields(cls) if each.type.startswith("float")}
    return {name: st.none() | NUMBER if maybe else NUMBER for name, maybe in optional.items()}


OBJECTIVES = st.lists(st.builds(Objective, **numbers(Objective)), max_size=2)
EVIDENCE = st.builds(Evidence, **numbers(Evidence), objectives=OBJECTIVES.map(tuple))
REPLICAS = st.none() | st.integers(0, 1000)
DECISIONS = REPLICAS.flatmap(
    lambda replicas: st.builds(
        Decision,
        workload=st.builds(WorkloadKey, TEXT, TEXT, TEXT),
        replicas=st.just(replicas),
        active=st.just(replicas != 0),
        **numbers(Decision),
        evidence=EVIDENCE,
    )
)


def sent(decision, **more):
    """Returns the decision's document after JSON encoding and decoding."""
    return json.loads(json.dumps(decision.to_document() | more))


@given(DECISIONS)
def test_decision_survives_a_round_trip(decision):
    assert Decision.from_document(sent(decision)) == decision


@given(DECISIONS, st.dictionaries(st.text(min_size=25, max_size=30), st.integers()))
def test_fields_of_a_newer_version_are_ignored(decision, news):
    document = sent(decision) | news
    document["evidence"] |= news
    document["workload"] |= news
    document["evidence"]["objectives"] = [each | news for each in document["evidence"]["objectives"]]
    assert Decision.from_document(document) == decision


@given(DECISIONS, st.data())
def test_fields_missing_in_an_older_version_take_their_defaults(decision, data):
    blank = Decision(decision.workload, decision.replicas, decision.active, decision.reason, decision.decided_at)
    document, needed = sent(decision), {"workload", "replicas", "active", "reason", "decided_at"}
    absent = data.draw(st.sets(st.sampled_from(sorted(document.keys() - needed))))
    decoded = Decision.from_document({key: value for key, value in document.items() if key not in absent})
    for key in document:
        assert getattr(decoded, key) == getattr(blank if key in absent else decision, key)


@pytest.mark.parametrize(("replicas", "reason"), [(3, "serving"), (0, "asleep"), (None, "unknown")])
def test_unknown_reason_costs_the_reason_and_not_the_decision(replicas, reason):
    decision = Decision(WorkloadKey("ai", "chat"), replicas, replicas != 0, Reason.HELD, 1000.0)
    decoded = Decision.from_document(sent(decision, reason="full_moon"))
    assert (decoded.replicas, decoded.active, str(decoded.reason)) == (replicas, replicas != 0, reason)


@pytest.mark.parametrize(
    "document",
    [
        7,
        None,
        [],
        {},
        {"workload": "ai/chat", "replicas": 1, "active": True, "reason": "serving", "decided_at": 1.0},
        {"workload": {}, "replicas": 1, "active": True, "reason": "serving", "decided_at": 1.0},
        {
            "workload": {"namespace": "ai", "name": "chat", "trigger": ""},
            "replicas": 0,
            "active": True,
            "reason": "serving",
            "decided_at": 1.0,
        },
        {
            "workload": {"namespace": "ai", "name": "chat"},
            "replicas": 1,
            "active": True,
            "reason": "serving",
            "decided_at": "at noon",
        },
    ],
)
def test_invalid_decision_is_refused(document):
    with pytest.raises(ValueError, match=r"Decision|replicas cannot be active|could not convert"):
        Decision.from_document(document)


def test_shift_moves_every_time_and_nothing_else():
    decision = Decision(
        WorkloadKey("ai", "chat"),
        2,
        active=True,
        reason=Reason.HELD,
        decided_at=1000.0,
        measured_at=990.0,
        held_since=995.0,
    )
    moved = shift(decision, 300.0)
    assert (moved.decided_at, moved.measured_at, moved.held_since, moved.idle_since) == (1300.0, 1290.0, 1295.0, None)
    assert shift(moved, -300.0) == decision

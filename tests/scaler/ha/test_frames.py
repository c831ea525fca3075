"""A follower that applies frames has the same Board as the leader."""

import json
from dataclasses import fields
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import WorkloadKey
from scaler.ha import frame as frames
from scaler.ha import leader as journals
from scaler.ha.frame import FORMAT, BadFrame, Copy, Frame, apply, decode, encode
from scaler.ha.leader import Journal
from scaler.model import Board, Decision, Evidence, Reason


def decided(name, replicas, at=1000.0):
    return Decision(WorkloadKey("ai", name), replicas, active=True, reason=Reason.SERVING, decided_at=at)


def board(version, *decisions, at=1000.0):
    return Board(version, at, MappingProxyType({decision.workload: decision for decision in decisions}))


def frame_since(journal, since, *, epoch="e", now=1000.0):
    """The frame for a follower at version `since`, through the wire."""
    change = journal.since(since) if since is not None else None
    if change is None:
        everything = tuple(journal.board.decisions.values())
        frame = Frame(epoch, journal.board.version, now, journal.board.at, None, everything)
    else:
        frame = Frame(epoch, journal.board.version, now, journal.board.at, since, change.changed, change.gone)
    return decode(encode(frame))


# Each step: a workload gets a decision or loses it (None); if the third value is True, the follower polls.
STEPS = st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(1, 9), st.booleans()), max_size=30)


@given(STEPS)
def test_follower_that_applies_changes_has_the_leaders_board(steps):
    journal, copy, entries = Journal(), Copy(), {}
    for version, (name, replicas, polls) in enumerate(steps, 1):
        if replicas is None:
            entries.pop(name, None)
        else:
            entries[name] = decided(name, replicas)
        journal.record(board(version, *entries.values()))
        if polls:
            copy = apply(copy, frame_since(journal, copy.version if copy.epoch else None), 0.0)
            assert copy.decisions == journal.board.decisions
            assert copy.version == version


def test_journal_returns_only_changes():
    chat, code = decided("chat", 1), decided("code", 1)
    journal = Journal()
    journal.record(board(7, chat, code))
    more = decided("chat", 2)
    journal.record(board(8, more, code))
    journal.record(board(9, more))
    assert journal.since(7) == ((more,), (code.workload,))
    assert journal.since(8) == ((), (code.workload,))
    assert journal.since(9) == ((), ())


def test_workload_that_returns_is_not_gone():
    chat, code = decided("chat", 1), decided("code", 1)
    journal = Journal()
    journal.record(board(7, chat, code))
    journal.record(board(8, chat))
    journal.record(board(9, chat, code))
    assert journal.since(7) == ((code,), ())


def test_journal_has_no_changes_since_versions_outside_its_range():
    journal = Journal()
    journal.record(board(7, decided("chat", 1)))
    assert [journal.since(version) for version in (6, 8)] == [None, None]


def test_number_of_remembered_removals_is_bounded(monkeypatch):
    monkeypatch.setattr(journals, "MOST_REMOVED", 2)
    names = ["a", "b", "c"]
    journal = Journal()
    journal.record(board(1, *[decided(name, 1) for name in names]))
    for version, _ in enumerate(names, 2):
        journal.record(board(version, *[decided(name, 1) for name in names[version - 1 :]]))
    assert journal.since(1) is None  # it would not know that "a" has gone
    assert [key.name for key in journal.since(2).gone] == ["b", "c"]


def test_changes_since_another_version_than_the_copys_are_not_applied():
    copy = apply(Copy(), Frame("e", 7, 1000.0, 1000.0, None, (decided("chat", 1),)), 0.0)
    for frame in (Frame("e", 9, 1000.0, 1000.0, 8), Frame("other", 8, 1000.0, 1000.0, 7)):
        assert apply(copy, frame, 0.0) is None


def test_apply_shifts_times_to_the_followers_clock():
    frame = Frame("e", 7, 1000.0, 999.0, None, (decided("chat", 1, at=990.0),))
    copy = apply(Copy(), frame, 300.5)
    assert (copy.at, copy.leader_at) == (1299.5, 999.0)
    assert copy.decisions[WorkloadKey("ai", "chat")].decided_at == 1290.5


@given(st.binary(max_size=100))
def test_state_is_transferred_unchanged(state):
    assert decode(encode(Frame("e", 7, 1000.0, 999.0, state=state))).state == state


def test_unreadable_entry_costs_only_itself():
    line, _, _ = encode(Frame("e", 7, 1000.0, 999.0, None, (decided("chat", 1), decided("code", 1)))).partition(b"\n")
    document = json.loads(line)
    document["changed"][0]["workload"] = 7
    frame = decode(json.dumps(document).encode())
    assert ([each.workload.name for each in frame.changed], frame.lost) == (["code"], 1)


def test_unknown_fields_of_a_newer_version_are_ignored():
    document = json.loads(encode(Frame("e", 7, 1000.0, 999.0, None, (decided("chat", 1),))).partition(b"\n")[0])
    document |= {"mood": "good"}
    document["changed"][0] |= {"mood": "good"}
    assert decode(json.dumps(document).encode() + b"\n").changed == (decided("chat", 1),)


@pytest.mark.parametrize("body", [b"", b"\n", b"<html>", b"7\n", b"{}\n", b"[" * 9999, b'{"format": 1}\n'])
def test_body_that_is_no_frame_is_refused(body):
    with pytest.raises(BadFrame, match="no frame"):
        decode(body)


def test_unknown_format_is_refused_with_its_number():
    with pytest.raises(BadFrame, match=f"format 99: this Tidegate reads {FORMAT}"):
        decode(b'{"format": 99}\n')


def document_of(frame=None, **changes):
    line, _, _ = encode(frame or Frame("e", 7, 1000.0, 999.0, None, (decided("chat", 1),))).partition(b"\n")
    return json.loads(line) | changes


def as_body(document):
    return json.dumps(document).encode() + b"\n"


@pytest.mark.parametrize(
    "times",
    [{"at": 1000.5}, {"at": 1e9}, {"now": float("nan")}, {"at": float("-inf")}, {"now": 1e300}, {"now": 10**400}],
)
def test_frame_with_impossible_times_is_refused(times):
    with pytest.raises(BadFrame, match=r"the last tick must be before|no frame"):
        decode(as_body(document_of(**times)))


def test_unreadable_entry_leaves_the_followers_own_decision():
    before = apply(Copy(), Frame("e", 7, 1000.0, 1000.0, None, (decided("chat", 1), decided("code", 2))), 0.0)
    document = document_of(Frame("e", 8, 1001.0, 1001.0, 7, (decided("chat", 5),)))
    document["changed"][0]["replicas"] = "5"
    after = apply(before, decode(as_body(document)), 0.0)
    assert [key.name for key in after.decisions] == ["code"], "the previous entry is dropped too"


def test_unreadable_change_without_a_workload_requires_the_whole_board():
    before = apply(Copy(), Frame("e", 7, 1000.0, 1000.0, None, (decided("chat", 1),)), 0.0)
    document = document_of(Frame("e", 8, 1001.0, 1001.0, 7, (decided("chat", 5),)))
    document["changed"][0]["workload"] = 7
    assert apply(before, decode(as_body(document)), 0.0) is None


def test_times_of_a_decision_are_never_after_its_frame():
    frame = Frame("e", 7, 1000.0, 999.0, None, (decided("chat", 1, at=5000.0),))
    (decision,) = apply(Copy(), frame, 10.0).decisions.values()
    assert decision.decided_at == 1010.0


@pytest.mark.parametrize(("byte", "most"), [(b",", "commas"), (b" ", "bytes")])
def test_line_that_needs_too_much_memory_is_not_parsed(byte, most, monkeypatch):
    monkeypatch.setattr(frames, "MOST_COMMAS", 1000)
    monkeypatch.setattr(frames, "LARGEST_LINE_BYTES", 5000)
    with pytest.raises(BadFrame, match=f"[0-9]+ {most}.*at most"):
        decode(b"[0" + byte * (1001 if byte == b"," else 5000) + b"0]\n")


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from([10**400, "\ud800"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
DECISION_FIELDS = sorted(document_of()["changed"][0])
EVIDENCE_FIELDS = sorted(document_of()["changed"][0]["evidence"])


@given(
    st.dictionaries(st.sampled_from(sorted(document_of())), VALUES, max_size=2),
    st.dictionaries(st.sampled_from(DECISION_FIELDS), VALUES, max_size=3),
    st.dictionaries(st.sampled_from(EVIDENCE_FIELDS), VALUES, max_size=3),
)
def test_any_json_is_a_frame_of_valid_decisions_or_refused(top, entry, evidence):
    document = document_of()
    document["changed"][0] |= entry
    if isinstance(document["changed"][0]["evidence"], dict):
        document["changed"][0]["evidence"] |= evidence
    try:
        frame = decode(as_body(document | top))
    except BadFrame:
        return
    for decision in frame.changed:
        shown = decision.to_document()
        assert json.loads(json.dumps(shown, allow_nan=False)) is not None
        json.dumps(shown, ensure_ascii=False).encode()
        assert decision.replicas is None or 0 <= decision.replicas < 2**31
        for each in fields(Evidence):
            value = getattr(decision.evidence, each.name)
            if each.type in {"float | None", "int | None"}:
                assert value is None or type(value) in {int, float}


@given(st.binary(max_size=200))
def test_any_bytes_are_refused(body):
    with pytest.raises(BadFrame):
        decode(body)

"""Feeds forged checkpoints and peer states to a decider: no decision contains a value that no version writes."""

import json
import struct
import warnings
import zlib
from hashlib import blake2b
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.attribution import owners_by_name
from exporter.model import ReplicaCount, WorkloadKey
from scaler.columns import State, plausible
from scaler.engine.checkpoint_format import FORMAT, UnreadableError, pack, unpack, unpack_all
from scaler.engine.decider import Decider
from scaler.policy.columns import Signal, Spec
from scaler.policy.constraints import KeepWarmConfig
from scaler.signals.smoothing import RINGS
from scaler.workloads.spec import WorkloadSpec
from tests.budget import examples

NOW, INTERVAL_S, MAXIMUM = 1.8e9, 5.0, 8
CHAT, CODE = WorkloadKey("ai", "chat"), WorkloadKey("ai", "code")


def fleet():
    """Two workloads: one has a constant keep-warm time, one learns it."""
    spec = Spec(0, MAXIMUM, ((Signal.WORK, 16.0), (Signal.KV_CACHE, 0.9)), young=60.0)
    plans = [WorkloadSpec(CHAT, spec), WorkloadSpec(CODE, spec, teaching=KeepWarmConfig(learns=True))]
    return Decider(plans, interval_s=INTERVAL_S, fresh_intervals=3.0, owners=owners_by_name({}))


def written():
    """The state of two workloads with three replicas and a history."""
    state = fleet().state(NOW - 10.0)
    full = {
        "memory.replicas": 3.0,
        "memory.active": True,
        "published.replicas": 3.0,
        "published.number": 3.0,
        "published.active": True,
    }
    full |= {"accounts.since": NOW - 1000.0, "accounts.swept_at": NOW - 10.0, "intake.finished": 100.0}
    full |= {"gaps.weights": 1.0, "gaps.reference_at": NOW - 500.0}
    for name, value in full.items():
        state.columns[name][...] = value
    state.columns["windows.times"][...] = NOW - 10.0 - INTERVAL_S * np.arange(128.0)[::-1]
    for name in RINGS:
        state.columns[f"windows.{name}"][...] = 0.5
    return state


WRITTEN = written()
# Differences and POSIX seconds; no other column of the state is negative.
SIGNED = ("accounts.apart", "budget.account", "_at", "_since", ".at", ".since", ".times", "_until")
ODD = st.sampled_from(
    [nan, inf, -inf, -1.0, 0.0, 0.5, 1.0, 3.0, 1e6, 1e15, 1e300, -1e300, 5e-324, NOW, NOW - 10.0, NOW + 1e6, NOW - 1e10]
)


@st.composite
def forged(draw):
    """A written state with other values, types and shapes in some of its columns."""
    columns = dict(WRITTEN.columns)
    for name in draw(st.lists(st.sampled_from(sorted(columns)), min_size=1, max_size=12, unique=True)):
        column = columns[name]
        if column.dtype.kind == "f":
            flat = draw(st.lists(ODD, min_size=1, max_size=6))
            with np.errstate(over="ignore"):
                columns[name] = np.resize(np.array(flat), column.shape).astype(column.dtype)
        elif column.dtype.kind == "i":
            columns[name] = np.full_like(column, draw(st.sampled_from([-(2**63), -1, 0, 1, 7, 127, 128, 2**62])))
        else:
            columns[name] = np.full_like(column, draw(st.booleans()))
        if draw(st.integers(0, 9)) == 0:
            columns[name] = np.stack([columns[name]] * 2, axis=1)
    return State(draw(st.sampled_from([0.0, NOW - 10.0, NOW, NOW + 1e5, 1e12, -1e12])), WRITTEN.workloads, columns)


def assert_sound(decider):
    """Asserts that the state of the policy is one that the policy could have produced."""
    memory = decider._memory
    for name, column in memory._asdict().items():
        assert not np.isinf(column.astype(float)).any(), name
    replicas = memory.replicas[~np.isnan(memory.replicas)]
    assert ((replicas >= 0) & (replicas <= MAXIMUM) & (replicas == np.floor(replicas))).all()
    assert not (memory.floor > MAXIMUM).any()
    assert not (memory.floor_until > NOW + 60.0).any()
    for since in (memory.idle_since, memory.held_since, memory.woken_at):
        assert not (since > NOW).any()
        assert not (since < NOW - 51 * 365 * 86400.0).any()
    for name, column in decider.columns().items():
        assert column.dtype.kind != "f" or not np.isinf(column).any(), name
        assert column.dtype.kind != "f" or name.endswith(SIGNED) or not (column < 0.0).any(), name


@pytest.mark.parametrize("enter", [Decider.restore, Decider.follow_state], ids=["checkpoint", "peer"])
@given(state=forged())
@settings(deadline=None, max_examples=examples(50))
def test_forged_state_yields_no_value_that_no_version_writes(enter, state):
    decider = fleet()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # an overflow on the way is a fault too
        enter(decider, unpack(pack(state)), NOW)
        assert_sound(decider)
        smoothed = decider._signals.smooth(np.arange(2), NOW)
        assert not ((smoothed < 0.0) | (smoothed > [2.0**53, 1.0, 1.0])).any()
        for key in (CHAT, CODE):
            decider.counted(key, ReplicaCount(wanted=2, ready=2, at=NOW))
        for after in range(3):
            for decision in decider.sweep(NOW + after):
                assert decision.replicas is None or 0 <= decision.replicas <= MAXIMUM
                assert decision.to_document()
        assert unpack(pack(decider.state(NOW + 3)))


def test_infinity_under_a_valid_checksum_does_not_yield_the_maximum():
    columns = dict(WRITTEN.columns)
    for name, column in WRITTEN.columns.items():
        if column.dtype.kind == "f":
            columns[name] = np.full_like(column, inf)
    columns["windows.times"] = NOW - INTERVAL_S * np.arange(128.0, 0.0, -1.0) * np.ones((2, 1))
    decider = fleet()
    decider.restore(unpack(pack(State(NOW - 10.0, WRITTEN.workloads, columns))), NOW)
    assert np.isnan(decider._signals.smooth(np.arange(2), NOW)).all()
    decider.counted(CHAT, ReplicaCount(wanted=2, ready=2, at=NOW))
    decisions = {each.workload: each for each in decider.sweep(NOW)}
    assert decisions[CHAT].replicas in {None, 2}
    assert decisions[CODE].replicas is None


def test_windows_with_decreasing_times_are_reset():
    columns = dict(WRITTEN.columns)
    columns["windows.times"] = np.stack([NOW - 1.0 - np.arange(128.0) * 4.0, NOW - 512.0 + np.arange(128.0) * 4.0])
    columns["windows.work"] = np.tile(np.array([5.0, 6.0]), (2, 64))
    decider = fleet()
    decider.restore(unpack(pack(State(NOW, WRITTEN.workloads, columns))), NOW)
    smoothed = decider._signals.smooth(np.arange(2), NOW)[:, Signal.WORK]
    assert np.isnan(smoothed[0])
    assert 5.0 <= smoothed[1] <= 6.0


def test_times_become_plausible_by_their_column_names():
    state = State(
        NOW,
        (CHAT,),
        {
            "x.since": np.array([[NOW + 5.0, NOW - 5.0, -inf, NOW - 1e10, nan]]),
            "x.floor_until": np.array([[NOW + 60.0, NOW + 1e9, inf, -1e300, nan]]),
            "x.count": np.array([[1e300, inf, -inf, -1.0, nan]]),
        },
        {"pages": {"row": np.array([0]), "counters": np.array([[inf, 7.0]])}},
    )
    checked = plausible(state, NOW)
    np.testing.assert_equal(checked.columns["x.since"], [[NOW, NOW - 5.0, nan, nan, nan]])
    np.testing.assert_equal(checked.columns["x.floor_until"], [[NOW + 60.0, NOW + 7 * 86400.0, nan, nan, nan]])
    np.testing.assert_equal(checked.columns["x.count"], [[1e300, nan, nan, -1.0, nan]])
    np.testing.assert_equal(checked.tables["pages"]["counters"], [[nan, 7.0]])


def sealed(body):
    head = struct.pack("<8sH6xQ", b"TIDEGATE", FORMAT, len(body))
    return head + blake2b(head + body, digest_size=32).digest() + body


HEADER_AND_ARRAYS = pack(WRITTEN)[56:]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(st.lists(st.tuples(st.integers(0, len(HEADER_AND_ARRAYS) - 1), st.integers(0, 255)), min_size=1, max_size=8))
@settings(deadline=None)
def test_changed_bytes_under_a_valid_checksum_are_a_state_or_refused(changes):
    body = bytearray(HEADER_AND_ARRAYS)
    for position, byte in changes:
        body[position] = byte
    for read in (unpack, unpack_all):
        try:
            read(sealed(bytes(body)))
        except UnreadableError:
            continue


@given(st.sampled_from(["at", "workloads", "columns", "tables"]), JSON)
@settings(deadline=None)
def test_any_json_header_is_a_state_or_refused(key, value):
    (length,) = struct.unpack_from("<I", HEADER_AND_ARRAYS)
    header = json.loads(HEADER_AND_ARRAYS[4 : 4 + length]) | {key: value}
    text = json.dumps(header).encode()
    data = sealed(struct.pack("<I", len(text)) + text + zlib.compress(b""))
    try:
        unpack(data)
    except UnreadableError:
        return

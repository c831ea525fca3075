"""The inputs of an explanation are exact as JSON, and enough to decide again."""

import json
from math import inf, nan

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import WorkloadKey
from scaler.engine.decision_log import Entry, blank
from scaler.explain.document import inputs
from scaler.policy.columns import Signal, Spec
from scaler.workloads.spec import WorkloadSpec
from tests.scaler.explain.recompute import differences, read_inputs

CHAT = WorkloadKey("ai", "chat")
SPEC = Spec(1, 8, ((Signal.WORK, 16.0), (Signal.KV_CACHE, 0.9)), sleeps=True, keep_warm=300.0)


def entry(spec=SPEC, **readings):
    given = blank(1)
    given.when.at[:] = 1000.0
    given.verdicts.reason[:] = 0
    for name, value in readings.items():
        getattr(given.readings, name)[:] = value
    return Entry(WorkloadSpec(CHAT, spec), given)


def test_numbers_unknown_values_and_infinities_are_exact():
    one = entry(waiting=0.1 + 0.2, running=nan, signals=[[1 / 3, nan, 5e-324, nan]])
    one.given.standing.ceiling[:] = inf
    document = json.loads(json.dumps(inputs(one), allow_nan=False))
    assert document["readings"]["waiting"] == 0.1 + 0.2
    assert document["readings"]["running"] is None
    assert document["readings"]["signals"] == {"work": 1 / 3, "kv_cache": None, "gpu_engine": 5e-324, "slo": None}
    assert document["standing"]["ceiling"] == "inf"
    assert document["spec"]["targets"] == {"work": 16.0, "kv_cache": 0.9}
    back = read_inputs(document, CHAT)
    assert back.plan.spec == SPEC
    for part, wanted in zip(back.given, one.given, strict=True):
        for column, same in zip(part, wanted, strict=True):
            np.testing.assert_array_equal(column, same)
            assert column.dtype == same.dtype


@given(value=st.floats(allow_nan=False, allow_infinity=False), at=st.floats(0, 4e9))
def test_every_number_survives_json(value, at):
    one = entry(waiting=value)
    one.given.when.at[:] = at
    back = read_inputs(json.loads(json.dumps(inputs(one))), CHAT)
    assert (back.given.readings.waiting[0], back.at) == (value, at)


def test_edited_verdict_is_found():
    document = json.loads(json.dumps(inputs(entry())))
    document["verdicts"]["replicas"] = 7.0
    assert ("replicas", [7.0]) in [found[:2] for found in differences(read_inputs(document, CHAT))]

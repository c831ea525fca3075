"""An entry as JSON: exact, and refused by the name of what is wrong with it."""

import json
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import WorkloadKey
from scaler.engine.decision_log import Entry, blank
from scaler.explain.document import BadInputsError, inputs, read_inputs
from scaler.explain.trace import differences
from scaler.policy.columns import Signal, Spec
from scaler.workloads.spec import WorkloadSpec

CHAT = WorkloadKey("ai", "chat")
SPEC = Spec(1, 8, ((Signal.WORK, 16.0), (Signal.KV_CACHE, 0.9)), sleeps=True, keep_warm=300.0)


def entry(spec=SPEC, **readings):
    given = blank(1)
    given.when.at[:] = 1000.0
    given.verdicts.reason[:] = 0
    for name, value in readings.items():
        getattr(given.readings, name)[:] = value
    return Entry(WorkloadSpec(CHAT, spec), given)


def test_numbers_unknowns_and_ends_come_back_exactly():
    one = entry(waiting=0.1 + 0.2, running=nan, signals=[[1 / 3, nan, 5e-324]])
    one.given.standing.ceiling[:] = inf
    document = json.loads(json.dumps(inputs(one), allow_nan=False))
    assert document["readings"]["waiting"] == 0.1 + 0.2
    assert document["readings"]["running"] is None
    assert document["readings"]["signals"] == {"work": 1 / 3, "kv_cache": None, "gpu_engine": 5e-324}
    assert document["standing"]["ceiling"] == "inf"
    assert document["spec"]["targets"] == {"work": 16.0, "kv_cache": 0.9}
    back = read_inputs(document, CHAT)
    assert back.plan.spec == SPEC
    for part, wanted in zip(back.given, one.given, strict=True):
        for column, same in zip(part, wanted, strict=True):
            np.testing.assert_array_equal(column, same)
            assert column.dtype == same.dtype


@given(value=st.floats(allow_nan=False, allow_infinity=False), at=st.floats(0, 4e9))
def test_every_number_survives_a_file(value, at):
    one = entry(waiting=value)
    one.given.when.at[:] = at
    back = read_inputs(json.loads(json.dumps(inputs(one))), CHAT)
    assert (back.given.readings.waiting[0], back.at) == (value, at)


def changed(path, value):
    document = json.loads(json.dumps(inputs(entry())))
    place = document
    for key in path[:-1]:
        place = place[key]
    if value is KeyError:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return document


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (["version"], 2, "inputs.version: must be 1, got 2"),
        (["readings", "waiting"], "many", 'inputs.readings.waiting: must be a number, got "many"'),
        (["readings", "waiting"], True, "inputs.readings.waiting: must be a number, got true"),
        (["readings", "waiting"], KeyError, "inputs.readings.waiting: is missing"),
        (["readings", "signals"], [1, 2, 3], "inputs.readings.signals: must be an object, got [1, 2, 3]"),
        (["readings", "signals", "work"], KeyError, "inputs.readings.signals.work: is missing"),
        (["readings", "gateway_fresh"], 1, "inputs.readings.gateway_fresh: must be true or false, got 1"),
        (["memory"], None, "inputs.memory: must be an object, got null"),
        (["memory", "reason"], "tired", "inputs.memory.reason: must be one of serving"),
        (["standing", "floor_reason"], 99, "inputs.standing.floor_reason: must be one of serving"),
        (["spec", "minimum"], None, "inputs.spec.minimum: must be a finite number, got null"),
        (["spec", "maximum"], "inf", 'inputs.spec.maximum: must be a finite number, got "inf"'),
        (["spec", "targets"], {"work": 0}, "inputs.spec.targets.work: must be above 0, got 0"),
        (["spec", "targets"], {"joy": 1}, 'inputs.spec.targets: must be of work, kv_cache, gpu_engine, got "joy"'),
        (["spec", "pods"], "yes", 'inputs.spec.pods: must be true or false, got "yes"'),
    ],
)
def test_what_is_wrong_is_named(path, value, words):
    with pytest.raises(BadInputsError) as refused:
        read_inputs(changed(path, value), CHAT)
    assert str(refused.value).startswith(words)


@pytest.mark.parametrize("document", [None, 3, "x", [], {}])
def test_what_is_no_entry_at_all_is_refused(document):
    with pytest.raises(BadInputsError):
        read_inputs(document, CHAT)


def test_an_entry_that_was_meddled_with_comes_out_otherwise():
    document = changed(["verdicts", "replicas"], 7.0)
    (difference, *_) = differences(read_inputs(document, CHAT))
    assert (difference.what, difference.then) == ("replicas", 7.0)

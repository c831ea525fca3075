"""Decides a log entry again, as it is or as read from a saved explanation, and compares the verdicts."""

from __future__ import annotations

from math import inf, nan

import numpy as np

from scaler.engine.decision_log import Entry, Given, blank
from scaler.policy.columns import REASONS, Signal, Spec, Specs
from scaler.policy.kernel import step
from scaler.workloads.spec import WorkloadSpec

SIGNALS = [signal.name.lower() for signal in Signal]
ENDS = {None: nan, "inf": inf, "-inf": -inf}
REASON_COLUMNS = {("standing", "floor_reason"), ("memory", "reason"), ("verdicts", "reason")}


def read_inputs(document, workload):
    """The entry of an explanation's `inputs`: the reverse of `scaler.explain.document.inputs`."""
    assert document["version"] == 1
    parts = {}
    for part, like in blank(1)._asdict().items():
        values = document[part]
        parts[part] = type(like)(
            *(_column(part, name, values[name], column) for name, column in like._asdict().items())
        )
    targets = tuple((Signal[name.upper()], target) for name, target in document["spec"]["targets"].items())
    return Entry(WorkloadSpec(workload, Spec(**document["spec"] | {"targets": targets})), Given(**parts))


def differences(entry):
    """Each value of the verdict that comes out otherwise, as (column, then, now)."""
    given = entry.given
    raise_only = bool(given.when.raise_only[0])
    specs = Specs.stack([entry.plan.spec])
    now, _ = step(specs, given.readings, given.standing, given.memory, entry.at, raise_only=raise_only)
    pairs = ((name, then, getattr(now, name)) for name, then in given.verdicts._asdict().items())
    return [(name, then.tolist(), now.tolist()) for name, then, now in pairs if not _same(then, now)]


def _same(then, now):
    return np.array_equal(then, now, equal_nan=then.dtype.kind == "f")


def _column(part, name, value, like):
    if like.ndim > 1:
        value = [_number(value[signal]) for signal in SIGNALS]
    elif (part, name) in REASON_COLUMNS:
        value = -1 if value is None else [str(reason) for reason in REASONS].index(value)
    return np.array([_number(value)], dtype=like.dtype)


def _number(value):
    return ENDS.get(value, value) if value is None or isinstance(value, str) else value

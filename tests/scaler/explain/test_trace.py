"""The numbers of an explanation are those of the policy's kernel, for any inputs."""

import math
import re
from itertools import pairwise

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.model import WorkloadKey
from scaler.engine.decision_log import Entry, blank
from scaler.explain.constraints import overrides, published
from scaler.explain.steps import clamp, cleaned, objectives, winner
from scaler.explain.trace import Case, summary
from scaler.model import Decision, Evidence, Reason
from scaler.policy.columns import (
    FROZEN,
    NO_REASON,
    OBJECTIVES,
    REASONS,
    SCHEDULED,
    WARM,
    Constraints,
    Signal,
    Spec,
    Specs,
)
from scaler.policy.kernel import step
from scaler.policy.trace import STALE
from scaler.workloads.spec import WorkloadSpec
from tests.budget import examples

NAN, INF, NOW = math.nan, math.inf, 1000.0
WITHOUT = re.compile(r"Without it: (?:(?P<replicas>\d+) replicas?, (?P<reason>\w+)|unknown)\.$")


def one_of(*values):
    return st.sampled_from(values)


FLAG = st.booleans()
AGO = one_of(NAN, NOW, NOW - 20.0, NOW - 500.0)
TARGETS = st.tuples(one_of(None, 16.0), one_of(None, 0.9), one_of(None, 0.8), one_of(None, None, 1.0)).map(
    lambda targets: tuple((signal, target) for signal, target in zip(Signal, targets, strict=True) if target)
)
SPECS = st.builds(
    Spec,
    minimum=one_of(0, 1, 2),
    maximum=one_of(2, 8),
    targets=TARGETS,
    sleeps=one_of(None, True, False),
    keep_warm=one_of(0.0, 300.0),
    hold=one_of(10.0, 300.0),
    settle=one_of(0.0, 30.0),
    pods=FLAG,
    fixed=FLAG,
    gateway=FLAG,
    wakes_blind=FLAG,
    jobs=one_of(False, False, False, True),
    holds_incomplete=FLAG,
    falls_back=FLAG,
)
REQUESTS, COUNT = one_of(NAN, 0.0, 0.0, 3.0, 40.0, 200.0), one_of(NAN, 0.0, 1.0, 2.0, 5.0)
COLUMNS = {
    "readings": {
        "signals": st.tuples(REQUESTS, one_of(NAN, 0.1, 0.95), one_of(NAN, 0.0, 0.7), one_of(NAN, 0.0, 1.3, 6.5)),
        "waiting": REQUESTS, "running": REQUESTS, "held": REQUESTS, "busiest_gpu": one_of(NAN, 0.0, 0.5),
        "active_at": AGO, "refused_at": AGO, "pods_listed": COUNT, "pods_fresh": one_of(0.0, 1.0, 2.0, 5.0),
        "pods_partial": one_of(0.0, 0.0, 1.0), "gateway_fresh": FLAG, "gateway_partial": one_of(False, False, True),
        "kv_partial": FLAG, "unproven": FLAG, "in_hand_at_least": one_of(0.0, 50.0), "waker_fresh": FLAG,
        "gpus_stale": one_of(False, False, True), "gpus_blind": one_of(False, False, True), "wanted": COUNT,
        "ready": COUNT, "existing": COUNT, "pending": one_of(0.0, 1.0),
    },
    "memory": {
        "replicas": COUNT, "active": FLAG, "reason": st.integers(0, len(REASONS) - 1), "idle_since": AGO,
        "held_since": AGO, "woken_at": AGO, "floor": COUNT, "floor_until": one_of(NAN, NOW - 1.0, NOW + 60.0),
        "incomplete_since": AGO,
    },
    "standing": {
        "floor": one_of(0.0, 0.0, 1.0, 4.0, 20.0), "floor_reason": one_of(SCHEDULED, FROZEN, WARM, NO_REASON),
        "ceiling": one_of(INF, INF, 1.0, 3.0), "frozen": one_of(False, False, False, True), "never_down": FLAG,
        "keep_warm": one_of(0.0, 300.0, 1e15), "lease": one_of(60.0, 600.0),
    },
}  # fmt: skip


@st.composite
def entries(draw):
    """An entry of the log: random inputs, and what the kernel decides."""
    spec, inputs = draw(SPECS), blank(1)
    inputs.when.at[:] = NOW
    inputs.when.raise_only[:] = draw(FLAG)
    for part, columns in COLUMNS.items():
        for name, values in columns.items():
            getattr(getattr(inputs, part), name)[0] = draw(values)
    inputs.memory.active[0] &= inputs.memory.replicas[0] > 0.0
    if inputs.standing.floor[0] == 0.0:
        inputs.standing.floor_reason[0] = NO_REASON
    return decided(spec, inputs)


def decided(spec, inputs):
    specs, raise_only = Specs.stack([spec]), bool(inputs.when.raise_only[0])
    verdicts, _ = step(specs, inputs.readings, inputs.standing, inputs.memory, NOW, raise_only=raise_only)
    inputs = inputs._replace(verdicts=verdicts)
    if inputs.standing.floor_reason[0] == NO_REASON:  # only a group has such a floor
        inputs.aside.group_floor[:] = inputs.standing.floor
    return Entry(WorkloadSpec(WorkloadKey("ai", "chat"), spec), inputs)


def at_tick(entry, **constraints):
    """(replicas, reason) that `step` decides at a tick with these constraints instead."""
    standing = entry.given.standing._replace(**{name: np.array([value]) for name, value in constraints.items()})
    specs = Specs.stack([entry.plan.spec])
    verdicts, _ = step(specs, entry.given.readings, standing, entry.given.memory, NOW)
    return verdicts.replicas[0], verdicts.reason[0]


def alone(entry):
    """(replicas, reason) without overrides and group."""
    plain = Constraints.plain(Specs.stack([entry.plan.spec]))
    names = ("floor", "floor_reason", "ceiling", "frozen", "never_down")
    return at_tick(entry, **{name: getattr(plain, name)[0] for name in names})


def same(found, wanted):
    return np.array_equal(found, wanted, equal_nan=True)


random_entries = settings(
    max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@random_entries
@given(entry=entries())
def test_trace_is_of_the_decision_without_overrides(entry):
    case = Case.of(entry)
    assert same((case.trace.replicas, case.trace.reason), alone(entry))
    assert same((case.after.replicas, case.after.reason), at_tick(entry))


@random_entries
@given(entry=entries())
def test_bounds_end_at_the_replicas_that_the_kernel_decides(entry):
    case = Case.of(entry)
    clamped = clamp(case)
    if case.trace.branch == STALE or clamped.table is None:
        return
    numbers = [replicas for _, replicas in clamped.table.rows]
    assert all(before != after for before, after in pairwise(numbers))
    assert set(numbers) <= {*case.trace.bounds}
    assert (numbers[0], numbers[-1]) == (case.trace.bounds.whole, case.trace.bounds.last) or math.isnan(numbers[0])
    replicas, _ = alone(entry)
    if replicas > 0.0:
        assert numbers[-1] == replicas
        assert f"So {replicas:.0f} replica" in clamped.sentences[-1]


@random_entries
@given(entry=entries())
def test_no_sentence_has_a_negative_number(entry):
    case = Case.of(entry)
    steps = (
        cleaned(case),
        objectives(case),
        winner(case),
        clamp(case),
        overrides(case, None),
        published(case, None, None),
    )
    for sentence in (summary(case), *(sentence for each in steps for sentence in each.sentences)):
        assert not re.search(r"(?<!\d)-\d", sentence), sentence


@random_entries
@given(entry=entries())
def test_replicas_of_a_sleeping_workload_are_conditional(entry):
    case = Case.of(entry)
    last = clamp(case).sentences[-1]
    if case.trace.replicas == 0.0:
        assert not last.startswith("So ")


@given(shown=st.integers(1, 9), held=one_of(NAN, *map(float, range(9))))
def test_shown_gpus_are_part_of_the_requested_ones_or_the_difference_has_a_reason(shown, held):
    inputs = blank(1)
    for name in ("gpus_shown", "gpus_utilised"):
        getattr(inputs.aside, name)[:] = shown
    for name in ("gpus_silent", "gpus_lost", "gpus_parts"):
        getattr(inputs.aside, name)[:] = 0.0
    inputs.aside.gpus_held[:] = held
    inputs.when.at[:] = NOW
    sentences = " ".join(cleaned(Case.of(decided(Spec(0, 8, ()), inputs))).sentences)
    among = re.search(rf"Targets show {shown} GPUs? of (\d+) that its pods request", sentences)
    assert (among is not None) == (shown <= held)
    assert (f"Its running pods request {held:.0f}: " in sentences) == (shown > held)


@random_entries
@given(entry=entries())
def test_objectives_are_the_demands_of_the_decision(entry):
    case = Case.of(entry)
    demands = entry.given.verdicts.demand[0]
    rows = objectives(case).table.rows
    assert [name for name, *_ in rows] == [OBJECTIVES[signal] for signal, _ in case.targets]
    assert same([demand for *_, demand in rows], [demands[signal] for signal, _ in case.targets])
    (sentence,) = winner(case).sentences
    if case.trace.branch != STALE and np.nan_to_num(demands).max() > 0.0:
        assert f", {OBJECTIVES[Signal(np.nanargmax(demands))]}: " in sentence
        assert case.trace.demand == np.nanmax(demands)


@random_entries
@given(entry=entries())
def test_what_would_be_without_an_override_is_decided_by_the_kernel(entry):
    reason = entry.given.standing.floor_reason[0]
    without = {FROZEN: {"frozen": False, "never_down": False}, SCHEDULED: {"ceiling": INF}, WARM: {}}
    starts = {"A brake": FROZEN, "A schedule keeps": SCHEDULED, "The next request": WARM}
    for sentence in overrides(Case.of(entry), None).sentences:
        code = next((code for start, code in starts.items() if sentence.startswith(start)), None)
        if code is None:
            continue
        group = {"floor": entry.given.aside.group_floor[0], "floor_reason": NO_REASON} if reason == code else {}
        expected, why = at_tick(entry, **without[code], **group)
        found = WITHOUT.search(sentence)
        if at_tick(entry)[0] > expected:
            assert (float(found["replicas"]), found["reason"]) == (expected, REASONS[why])
        else:
            assert found is None


@random_entries
@given(entry=entries())
def test_summary_begins_with_the_decision(entry):
    verdicts = entry.given.verdicts
    replicas = verdicts.replicas[0]
    count = "no answer" if math.isnan(replicas) else f"{replicas:.0f} replica{'' if replicas == 1.0 else 's'}"
    text = summary(Case.of(entry))
    assert text.startswith(f"{count}, {REASONS[verdicts.reason[0]]}: ")
    assert "nan" not in text


@random_entries
@given(entry=entries())
def test_it_is_idle_in_the_text_if_the_kernel_says_so(entry):
    idle_since = Case.of(entry).after.idle_since
    sentence = overrides(Case.of(entry), None).sentences[0]
    assert sentence.startswith("It is idle since ") == (not math.isnan(idle_since))


@random_entries
@given(entry=entries(), requests=st.floats(1, 1e6), covered=st.floats(-32, 32))
def test_error_budget_is_explained_while_it_is_idle_and_may_sleep(entry, requests, covered):
    case = Case.of(entry)
    evidence = Evidence(cold_start_requests=requests, cold_starts_covered=covered)
    decided = Decision(case.plan.workload, 1, True, Reason.WARM, 0.0, evidence=evidence)
    texts = overrides(case, decided).sentences
    found = [text for text in texts if text.startswith("A cold start delays about ")]
    assert len(found) == (case.may_sleep and not math.isnan(case.after.idle_since))
    assert all(("is spent" in text) == (covered <= 0.0) for text in found)
    assert not any("cold start delays" in text for text in overrides(case, None).sentences)

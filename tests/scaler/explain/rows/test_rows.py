"""The rows of the live page, the terminal and the demo are the same."""

import json
from dataclasses import replace

import pytest

from exporter.model import WorkloadKey
from scaler.engine.accounting import STATES as GPU_USES
from scaler.explain.formats import count, ratio, shift, span
from scaler.explain.rows import NextOutcome, by_severity, fleet, row
from scaler.explain.summary import REASONS, STATES, Severity, WorkloadState, clause, state, words_document
from scaler.model import Decision, Evidence, Objective, Reason

CHAT = WorkloadKey("ai", "chat")
SERVING = Decision(
    CHAT, 3, True, Reason.SERVING, 990.0, measured_at=998.0,
    evidence=Evidence(
        waiting=30.0, running=10.0, gpu_engine_active=0.5, replicas_wanted=2, replicas_ready=2, gpus_held=4,
        objectives=(Objective("work", 40.0, 16.0, 2.5), Objective("gpu_engine", None, 0.8, None)),
    ),
)  # fmt: skip
IDLE = Evidence(waiting=0.0, running=0.0, replicas_wanted=1, replicas_ready=1)
SILENT = Decision(CHAT, None, True, Reason.UNKNOWN, 990.0, evidence=Evidence(stale=("http://10.0.0.7/",)))
ASLEEP = Decision(CHAT, 0, False, Reason.ASLEEP, 990.0, idle_since=880.0, evidence=Evidence(replicas_wanted=0))


def resting(reason, **evidence):
    return Decision(CHAT, 1, True, reason, 990.0, idle_since=910.0, evidence=replace(IDLE, **evidence))


def test_row_has_the_numbers_people_look_at_first():
    shown = row(SERVING, 1000.0)
    assert (shown.state, shown.severity, shown.why) == (
        WorkloadState.SERVING, Severity.FINE, "10 requests in progress, 30 waiting",
    )  # fmt: skip
    assert (shown.shift, shown.load, shown.demand, shown.gpu, shown.gpus) == ("2 → 3", 40.0, 2.5, 0.5, 4)
    assert (shown.label, shown.age(1000.0)) == ("chat", "2 s")


def test_unknown_numbers_are_none_and_the_clause_names_the_cause():
    shown = row(SILENT, 1000.0)
    numbers = (
        shown.cluster,
        shown.ready,
        shown.published,
        shown.load,
        shown.demand,
        shown.gpu,
        shown.gpus,
        shown.measured_at,
    )
    assert numbers == (None,) * 8
    assert (shown.shift, shown.age(1000.0), shown.state) == ("unknown", "unknown", WorkloadState.UNKNOWN)
    assert shown.why == "no fresh readings from http://10.0.0.7/: KEDA and the HPA get an error, never a zero"


def test_held_decision_shows_its_time_and_the_stale_targets():
    held = replace(SERVING, reason=Reason.HELD, held_since=940.0, evidence=Evidence(stale=("a", "b", "c")))
    shown = row(held, 1000.0)
    assert (shown.state, shown.severity, shown.age(1000.0)) == (WorkloadState.UNKNOWN, Severity.PROBLEM, "held 1 min")
    assert shown.why == "held: no fresh readings from a and 2 more: the last decision holds, for 1 min now"


@pytest.mark.parametrize("left", [{"replicas_wanted": 2, "replicas_ready": 2}, {"replicas_wanted": 0, "gpus_held": 4}])
def test_workload_decided_at_zero_that_holds_gpus_is_not_asleep(left):
    leaving = replace(ASLEEP, evidence=replace(Evidence(gpus_held=4), **left))
    assert state(leaving) is WorkloadState.IDLE_WARM
    assert fleet([row(leaving, 1000.0)]).gpus[WorkloadState.IDLE_WARM] == 4


def test_states_are_those_of_the_accounts():
    assert [str(each) for each in WorkloadState] == [str(each) for each in GPU_USES]


def test_held_workload_at_zero_is_asleep():
    assert state(replace(ASLEEP, reason=Reason.HELD, held_since=990.0)) is WorkloadState.ASLEEP


@pytest.mark.parametrize(
    ("evidence", "reason", "expected"),
    [
        (Evidence(replicas_wanted=2, replicas_ready=0, replicas_pending=0), Reason.LOADING, WorkloadState.LOADING),
        (Evidence(replicas_wanted=2, replicas_ready=0, replicas_pending=2), Reason.LOADING, WorkloadState.PENDING),
        (Evidence(replicas_wanted=2, replicas_ready=0, replicas_pending=1), Reason.LOADING, WorkloadState.LOADING),
        (Evidence(replicas_wanted=0, replicas_ready=0, held_by_gateway=1.0), Reason.QUEUED, WorkloadState.LOADING),
        (Evidence(), Reason.GPU_BUSY, WorkloadState.SERVING),
        (replace(IDLE, running=1.0), Reason.FROZEN, WorkloadState.SERVING),
        (IDLE, Reason.FROZEN, WorkloadState.IDLE_WARM),
        (IDLE, Reason.SCHEDULED, WorkloadState.IDLE_WARM),
        (IDLE, Reason.NO_WAKE_SOURCE, WorkloadState.IDLE_WARM),
    ],
)
def test_state_is_what_the_gpus_do_whatever_the_reason(evidence, reason, expected):
    assert state(Decision(CHAT, 2, True, reason, 990.0, evidence=evidence)) is expected


@pytest.mark.parametrize(
    ("decision", "why"),
    [
        (resting(Reason.WARM, keep_warm_s=300.0), "idle for 1 min, kept warm for 5 min"),
        (resting(Reason.WARM, keep_warm_s=30.0), "idle for 1 min"),
        (resting(Reason.WARM), "idle for 1 min"),
        (resting(Reason.NO_WAKE_SOURCE), "idle for 1 min; stays awake: nothing would see the next request"),
        (ASLEEP, "idle for 2 min"),
        (replace(ASLEEP, evidence=Evidence(wake_source="the queue on u")), "idle for 2 min; wakes by the queue on u"),
        (resting(Reason.FROZEN, brake="freeze until tomorrow"), "freeze until tomorrow"),
        (resting(Reason.SCHEDULED, schedule="at least 3"), "at least 3"),
        (resting(Reason.GPU_BUSY, gpu_engine_active=0.004), "no requests, but its GPUs are active: <1 %"),
        (resting(Reason.QUEUED, waiting=1.0), "1 request waiting, none in progress"),
        (
            resting(Reason.LOADING, replicas_wanted=2, replicas_pending=1, waiting=4.0),
            "2 replicas starting, 1 without a node; 4 requests waiting",
        ),
        (
            replace(SERVING, reason=Reason.CAPPED),
            "10 requests in progress, 30 waiting; 2.5 replicas are needed, the maximum is less",
        ),
    ],
)
def test_sentence_has_the_numbers_of_its_reason(decision, why):
    assert clause(decision, 1000.0) == why


@pytest.mark.parametrize("reason", Reason)
@pytest.mark.parametrize("evidence", [IDLE, replace(IDLE, running=1.0), Evidence(replicas_wanted=2, replicas_ready=0)])
def test_reason_explains_the_state_and_does_not_repeat_it(reason, evidence):
    replicas = 0 if reason is Reason.ASLEEP else None if reason is Reason.UNKNOWN else 2
    shown = row(Decision(CHAT, replicas, replicas != 0, reason, 990.0, held_since=980.0, evidence=evidence), 1000.0)
    lead, colon, _ = shown.why.partition(": ")
    assert lead != STATES[shown.state].word
    assert lead != "asleep", "it still has replicas"
    if reason in (Reason.CAPPED, Reason.FROZEN, Reason.NO_WAKE_SOURCE):
        assert (lead, colon) == (REASONS[reason].word, ": ")


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_a_word_a_sentence_and_a_rank(reason):
    word = REASONS[reason]
    assert word.state in STATES
    assert len({each.rank for each in REASONS.values()}) == len(Reason)
    decision = SILENT if reason is Reason.UNKNOWN else ASLEEP if reason is Reason.ASLEEP else resting(reason)
    assert row(decision, 1000.0).why


def test_rows_are_sorted_by_severity_then_load_then_name():
    def named(name, like):
        return row(replace(like, workload=WorkloadKey("ai", name)), 1000.0)

    busier = replace(SERVING, evidence=replace(SERVING.evidence, waiting=99.0))
    rows = [named("d", ASLEEP), named("c", SERVING), named("b", SERVING), named("e", busier), named("z", SILENT)]
    assert [each.name for each in by_severity(rows)] == ["z", "e", "b", "c", "d"]


def test_workloads_with_unknown_gpus_are_counted_and_in_no_sum():
    summed = fleet([row(each, 1000.0) for each in (SERVING, SERVING, resting(Reason.WARM), ASLEEP, SILENT)])
    assert summed.workloads[WorkloadState.SERVING] == 2
    assert summed.gpus == {
        WorkloadState.SERVING: 8, WorkloadState.IDLE_WARM: 0, WorkloadState.LOADING: 0, WorkloadState.PENDING: 0,
        WorkloadState.UNKNOWN: 0 }  # fmt: skip
    assert summed.uncounted == 2


def test_rows_and_words_are_json():
    document = json.loads(json.dumps(row(SERVING, 1000.0).to_document(), allow_nan=False))
    assert (document["state"], document["reason"], document["published"]) == ("serving", "serving", 3)
    words = json.loads(json.dumps(words_document()))
    assert [word["code"] for word in words["states"]] == list(WorkloadState)
    assert {word["code"] for word in words["reasons"]} == set(Reason)


def test_numbers_are_short_and_never_rounded_to_zero():
    assert [count(value) for value in (None, 0.0, 0.04, 2.54, 2.0, 9.96, 99.94, 250.5, 12345.0)] == [
        "unknown", "0", "<0.1", "2.5", "2", "10", "99.9", "251", "12,345",
    ]  # fmt: skip
    assert [ratio(value) for value in (None, 0.0, 0.004, 0.005, 0.335, 1.0)] == [
        "unknown", "0 %", "<1 %", "1 %", "34 %", "100 %",
    ]  # fmt: skip
    assert [span(value) for value in (None, 0.9, 59.9, 200.0, 3600.0, 7500.0, 172800.0)] == [
        "unknown", "0 s", "59 s", "3 min", "1 h 00", "2 h 05", "2 d",
    ]  # fmt: skip


def test_unchanged_number_of_replicas_is_one_number():
    assert [shift(2, 3), shift(3, 3), shift(None, 3), shift(3, None), shift(None, None), shift(0, 0)] == [
        "2 → 3", "3", "3", "3 → unknown", "unknown", "0",
    ]  # fmt: skip


def test_obstacle_is_shown_and_raises_the_severity_of_its_row():
    hindered = row(
        replace(SERVING, workload=WorkloadKey("ai", "zoo")), 1000.0, NextOutcome("paused", "paused at 2 replicas")
    )
    assert (hindered.severity, hindered.hindered, hindered.hindered_by) == (
        Severity.NOTICE, "paused", "paused at 2 replicas",
    )  # fmt: skip
    fine, silent = (
        row(SERVING, 1000.0, NextOutcome("settled", "nothing")),
        row(SILENT, 1000.0, NextOutcome("paused", "paused")),
    )
    assert (fine.severity, fine.hindered, fine.hindered_by) == (Severity.FINE, None, None)
    assert silent.severity is Severity.PROBLEM, "the worse of the two"
    assert by_severity([fine, hindered, silent]) == [silent, hindered, fine]


def test_row_quotes_the_scheduler_for_a_pod_without_a_node():
    no_node = "pod chat-1-a waits for a node: 0/5 nodes are available: 5 Insufficient nvidia.com/gpu."
    loading = resting(Reason.LOADING, replicas_wanted=2, replicas_pending=1, waiting=4.0)
    assert row(loading, 1000.0, NextOutcome("settled", "nothing", no_node)).why == (
        f"2 replicas starting, 1 without a node; 4 requests waiting; {no_node}"
    )

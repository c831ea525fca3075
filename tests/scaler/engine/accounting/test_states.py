"""Tests the state of a workload and the split of its GPUs by state at one moment."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scaler.engine.accounting import HELD, STATES, AccountedSweep, Ledger, SweepAnswers, look

NOW = 1000.0
NO_DECISION = SweepAnswers(np.array([np.nan]), np.array([False]), *np.full((2, 1), np.nan))


@pytest.fixture
def classify(totals, circumstances):
    """`classify({...}, ...)`: the state, and the GPUs of each state that has any; None if they are unknown."""

    def look_at(there, before=None, **given_circumstances):
        before = before or AccountedSweep.blank(1)
        moment = look(totals(**there), circumstances(**given_circumstances), NO_DECISION, before, NOW)
        gpus = dict(zip(map(str, STATES), moment.gpus[0].tolist(), strict=True))
        held = None if np.isnan(moment.gpus).any() else {state: count for state, count in gpus.items() if count}
        return str(STATES[moment.state[0]]), held, moment

    return lambda *given, **more: look_at(*given, **more)[:2]


RUNNING = {"wanted": 2, "ready": 2, "existing": 2, "pending": 0, "gpus": 16}


@pytest.mark.parametrize(
    "work", [{"running": 1}, {"waiting": 1}, {"held": 1}, {"active_at": NOW - 4}, {"busiest_gpu": 0.03}]
)
def test_ready_replicas_serve_while_there_is_work(classify, work):
    assert classify({**RUNNING, **work}) == ("serving", {"serving": 16})


def test_ready_replicas_without_work_are_idle_warm(classify):
    rest = {"running": 0, "waiting": 0, "active_at": NOW - 5, "busiest_gpu": 0.02}
    assert classify({**RUNNING, **rest}) == ("idle_warm", {"idle_warm": 16})


@pytest.mark.parametrize("blind", [{}, {"gpus_stale": True}, {"gpus_blind": True}])
def test_incomplete_readings_are_neither_idle_nor_serving(classify, blind):
    assert classify({**RUNNING, **blind}, whole=bool(blind)) == ("unknown", {"unknown": 16})


def test_one_busy_replica_is_enough_if_readings_are_incomplete(classify):
    assert classify({**RUNNING, "running": 3}, whole=False) == ("serving", {"serving": 16})


def test_gpus_are_split_by_the_state_of_each_replica(classify):
    # 4 wanted: 2 ready, 1 loads, 1 has no node; 3 hold 24 GPUs, 8 each.
    there = {"wanted": 4, "ready": 2, "existing": 4, "pending": 1, "gpus": 24, "waiting": 5}
    assert classify(there) == ("serving", {"serving": 16, "loading": 8, "pending": 8})


def test_loading_replica_does_not_make_the_others_serving(classify):
    there = {**RUNNING, "ready": 1, "busiest_gpu": 0.9, "running": 0, "waiting": 0}
    assert classify(there) == ("idle_warm", {"idle_warm": 8, "loading": 8})


@given(
    st.lists(st.integers(0, 50), min_size=4, max_size=4),
    st.integers(0, 50),
    st.sampled_from([8.0, 1.0, 1 / 4, 1 / 7, 3 / 7, 1 / 14]),  # whole GPUs, shared ones, MIG slices and shared slices
    st.integers(0, 5),
    st.booleans(),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_held_states_add_up_to_the_gpus_of_the_pods_however_many_replicas_do_what(
    totals, circumstances, counts, wanted, each, waiting, whole
):
    ready, loading, pending, leaving = counts
    holding = ready + loading + leaving
    there = totals(
        wanted=wanted, ready=ready, existing=ready + loading + pending, pending=pending, leaving=leaving,
        gpus=holding * each if holding else np.nan, sleeping=1.0, waiting=waiting, running=0,
    )  # fmt: skip
    moment = look(
        there, circumstances(whole=whole), NO_DECISION, AccountedSweep.blank(1)._replace(each=np.array([each])), NOW
    )
    assert moment.gpus[0, HELD].sum() == pytest.approx(holding * each, rel=1e-9)


def test_wanted_replica_without_a_pod_is_pending(classify):
    there = {"wanted": 3, "ready": 2, "existing": 2, "pending": 0, "gpus": 16, "running": 1}
    assert classify(there) == ("serving", {"serving": 16, "pending": 8})


def test_terminating_replica_holds_its_gpus_and_changes_no_gpus_per_replica(classify):
    there = {"wanted": 1, "ready": 1, "existing": 1, "pending": 0, "gpus": 16, "leaving": 1, "running": 2}
    assert classify(there) == ("serving", {"serving": 16})


def test_last_terminating_replica_is_not_asleep_until_it_is_gone(classify):
    there = {"wanted": 0, "ready": 0, "existing": 0, "pending": 0, "gpus": 8, "leaving": 1}
    assert classify(there) == ("idle_warm", {"idle_warm": 8})


@pytest.mark.parametrize(("minimum", "asleep"), [(0, 8), (1, 8), (3, 24)])
def test_sleeping_workload_would_hold_the_gpus_of_its_last_replicas(classify, minimum, asleep):
    there = {"wanted": 0, "ready": 0, "existing": 0, "pending": 0, "gpus": 0}
    before = AccountedSweep.blank(1)._replace(each=np.array([8.0]))
    assert classify(there, before, minimum=minimum) == ("asleep", {"asleep": asleep})


def test_sleeping_workload_without_any_past_replica_has_unknown_gpus(classify):
    assert classify({"wanted": 0, "ready": 0, "existing": 0, "pending": 0, "gpus": 0}) == ("asleep", None)


def test_engine_in_sleep_mode_is_idle_warm(classify):
    # Of 2 ready replicas one sleeps: while there is work, the latest samples exclude it from the ready ones.
    assert classify({**RUNNING, "ready": 1, "sleeping": 1, "waiting": 3}) == ("serving", {"serving": 8, "idle_warm": 8})


@pytest.mark.parametrize(
    ("sleeping", "work", "price", "spared"),
    [
        (1.0, 3, 0.25, 6.0),  # one of two sleeps beside one that serves
        (2.0, 0, 0.25, 12.0),
        (2.0, 0, 1.0, 0.0),
        (2.0, 0, np.nan, 0.0),  # without sleep mode: others put it to sleep
        (np.nan, 0, 0.25, 0.0),
    ],
)
def test_gpus_of_engines_that_sleep_are_spared_by_their_price(totals, circumstances, sleeping, work, price, spared):
    answers = NO_DECISION._replace(asleep=np.array([price]))
    there = totals(**{**RUNNING, "ready": 1 if work else 2, "waiting": work}, sleeping=sleeping)
    moment = look(there, circumstances(), answers, AccountedSweep.blank(1)._replace(each=np.array([8.0])), NOW)
    assert moment.spared.tolist() == [spared]


def test_attributed_gpus_have_the_state_of_the_workload_if_none_are_counted(classify):
    assert classify({"running": 1, "pods_listed": 2, "pods_fresh": 2, "shown": 4}) == ("serving", {"serving": 4})
    assert classify({"running": 0, "pods_listed": 2, "pods_fresh": 2, "shown": 4}) == ("idle_warm", {"idle_warm": 4})
    assert classify({"pods_listed": 0, "pods_fresh": 0}, zero=True) == ("asleep", None)
    assert classify({"pods_listed": 0, "pods_fresh": 0}) == ("loading", None)


def test_gpus_are_unknown_while_the_cluster_is_unreachable(classify):
    before = AccountedSweep.blank(1)._replace(gpus=np.array([[8.0, 0, 8.0, 0, 0, 0]]), each=np.array([8.0]))
    assert classify({"pods_listed": np.nan}, before, whole=False) == ("unknown", {"unknown": 16})


def test_workload_without_gpus_holds_none(classify):
    assert classify({**RUNNING, "gpus": 0, "running": 1}) == ("serving", {})


@pytest.mark.parametrize(
    ("counts", "spec", "decision", "observed", "wanted"),
    [
        (True, np.nan, 0.0, False, 2.0),  # the cluster is unreachable: no change is known
        (False, np.nan, 0.0, False, 0.0),  # there is no cluster: the decision counts as applied
        (False, np.nan, 0.0, True, 2.0),  # but not in observe mode
        (True, 0.0, 3.0, False, 0.0),  # spec.replicas is 0, whatever is decided
        (True, np.nan, np.nan, False, 2.0),
    ],
)
def test_spec_replicas_decide_whether_a_workload_is_up_if_it_was_ever_counted(
    totals, circumstances, counts, spec, decision, observed, wanted
):
    before = AccountedSweep.blank(1)._replace(wanted=np.array([2.0]), counts=np.array([counts]))
    decisions = SweepAnswers(np.array([decision]), np.array([observed]), *np.full((2, 1), np.nan))
    assert look(totals(wanted=spec), circumstances(), decisions, before, NOW).wanted.tolist() == [wanted]


RISE_TO_EIGHT_AND_BACK = [*range(1, 9), 8, 8, *range(8, 0, -1)]


@pytest.mark.parametrize(
    ("spec_replicas", "reversals"),
    [
        (RISE_TO_EIGHT_AND_BACK, 1),
        (list(range(1, 60)), 0),
        ([2, 2, 3, 3] * 15 + [2], 29),  # 30 changes, each after the first in the other direction
        ([1, 4, np.nan, np.nan, 4, 6, 3], 1),  # an unknown count is no change
        ([0, 0, 0], 0),
    ],
)
def test_reversal_is_a_change_of_direction_and_not_of_replicas(totals, circumstances, spec_replicas, reversals):
    books, decision = Ledger(1, gap_s=10.0), SweepAnswers(np.array([1.0]), np.array([False]), *np.full((2, 1), np.nan))
    for at, wanted in enumerate(spec_replicas):
        sweep = look(totals(wanted=wanted), circumstances(), decision, books.now, NOW + at)
        books.enter(sweep, np.full((1, 3), np.nan), NOW + at, leads=True)
    assert books.shown.reversals.tolist() == [reversals]

"""What replicas do, and whose GPUs that is: the split by state of one workload at one moment."""

import numpy as np
import pytest

from scaler.engine.accounting import STATES, AccountedSweep, SweepAnswers, look

NOW = 1000.0
NOBODY = SweepAnswers(np.array([np.nan]), np.array([False]))


@pytest.fixture
def seen(totals, known):
    """`seen({...}, ...)`: the state, and the GPUs of each state that has any; None where they are not known."""

    def look_at(there, before=None, **circumstances):
        before = before or AccountedSweep.blank(1)
        moment = look(totals(**there), known(**circumstances), NOBODY, before, NOW)
        gpus = dict(zip(map(str, STATES), moment.gpus[0].tolist(), strict=True))
        held = None if np.isnan(moment.gpus).any() else {state: count for state, count in gpus.items() if count}
        return str(STATES[moment.state[0]]), held, moment

    return lambda *given, **more: look_at(*given, **more)[:2]


RUNNING = {"wanted": 2, "ready": 2, "existing": 2, "pending": 0, "gpus": 16}


@pytest.mark.parametrize(
    "work", [{"running": 1}, {"waiting": 1}, {"held": 1}, {"active_at": NOW - 4}, {"busiest_gpu": 0.03}]
)
def test_ready_replicas_serve_while_anything_is_to_be_done(seen, work):
    assert seen({**RUNNING, **work}) == ("serving", {"serving": 16})


def test_ready_replicas_with_nothing_to_do_are_idle_and_warm(seen):
    rest = {"running": 0, "waiting": 0, "active_at": NOW - 5, "busiest_gpu": 0.02}
    assert seen({**RUNNING, **rest}) == ("idle_warm", {"idle_warm": 16})


@pytest.mark.parametrize("blind", [{}, {"gpus_stale": True}, {"gpus_blind": True}])
def test_what_is_not_wholly_known_is_neither_idle_nor_at_work(seen, blind):
    assert seen({**RUNNING, **blind}, whole=bool(blind)) == ("unknown", {"unknown": 16})


def test_one_at_work_is_enough_where_the_others_do_not_answer(seen):
    assert seen({**RUNNING, "running": 3}, whole=False) == ("serving", {"serving": 16})


def test_replicas_are_split_by_what_each_of_them_does(seen):
    # 4 wanted: 2 ready, 1 loads, 1 has no node; 3 hold 24 GPUs, 8 each.
    there = {"wanted": 4, "ready": 2, "existing": 4, "pending": 1, "gpus": 24, "waiting": 5}
    assert seen(there) == ("serving", {"serving": 16, "loading": 8, "pending": 8})


def test_a_model_that_loads_on_its_gpus_keeps_nobody_beside_it_at_work(seen):
    there = {**RUNNING, "ready": 1, "busiest_gpu": 0.9, "running": 0, "waiting": 0}
    assert seen(there) == ("idle_warm", {"idle_warm": 8, "loading": 8})


def test_a_replica_that_is_wanted_and_not_made_yet_is_pending(seen):
    there = {"wanted": 3, "ready": 2, "existing": 2, "pending": 0, "gpus": 16, "running": 1}
    assert seen(there) == ("serving", {"serving": 16, "pending": 8})


def test_a_replica_on_its_way_out_holds_its_gpus_and_makes_no_others_larger(seen):
    there = {"wanted": 1, "ready": 1, "existing": 1, "pending": 0, "gpus": 16, "leaving": 1, "running": 2}
    assert seen(there) == ("serving", {"serving": 16})


def test_the_last_one_on_its_way_out_is_not_asleep_before_it_is_gone(seen):
    there = {"wanted": 0, "ready": 0, "existing": 0, "pending": 0, "gpus": 8, "leaving": 1}
    assert seen(there) == ("idle_warm", {"idle_warm": 8})


@pytest.mark.parametrize(("minimum", "asleep"), [(0, 8), (1, 8), (3, 24)])
def test_a_sleeper_would_hold_what_its_replicas_held_last(seen, minimum, asleep):
    there = {"wanted": 0, "ready": 0, "existing": 0, "pending": 0, "gpus": 0}
    before = AccountedSweep.blank(1)._replace(each=np.array([8.0]))
    assert seen(there, before, minimum=minimum) == ("asleep", {"asleep": asleep})


def test_a_sleeper_of_which_no_replica_was_ever_seen_holds_nobody_knows_what(seen):
    assert seen({"wanted": 0, "ready": 0, "existing": 0, "pending": 0, "gpus": 0}) == ("asleep", None)


def test_an_engine_in_sleep_mode_holds_its_gpus_for_nothing(seen):
    # Of 2 ready ones one sleeps: where there is work, intake has taken it out of the ready ones.
    assert seen({**RUNNING, "ready": 1, "sleeping": 1, "waiting": 3}) == ("serving", {"serving": 8, "idle_warm": 8})


def test_without_a_count_the_gpus_that_a_page_shows_do_what_the_workload_does(seen):
    assert seen({"running": 1, "pods_listed": 2, "pods_fresh": 2, "shown": 4}) == ("serving", {"serving": 4})
    assert seen({"running": 0, "pods_listed": 2, "pods_fresh": 2, "shown": 4}) == ("idle_warm", {"idle_warm": 4})
    assert seen({"pods_listed": 0, "pods_fresh": 0}, zero=True) == ("asleep", None)
    assert seen({"pods_listed": 0, "pods_fresh": 0}) == ("loading", None)


def test_where_the_cluster_is_not_heard_any_more_the_gpus_it_had_are_unknown(seen):
    before = AccountedSweep.blank(1)._replace(gpus=np.array([[8.0, 0, 8.0, 0, 0, 0]]), each=np.array([8.0]))
    assert seen({"pods_listed": np.nan}, before, whole=False) == ("unknown", {"unknown": 16})


def test_a_workload_that_holds_no_gpus_holds_none(seen):
    assert seen({**RUNNING, "gpus": 0, "running": 1}) == ("serving", {})


@pytest.mark.parametrize(
    ("counts", "wanted", "answer", "observed", "up"),
    [
        (True, np.nan, 0.0, False, 1.0),  # the cluster is not heard: nobody knows of a change
        (False, np.nan, 0.0, False, 0.0),  # there is no cluster: what is answered is done
        (False, np.nan, 0.0, True, 1.0),  # but not where nobody is told
        (True, 0.0, 3.0, False, 0.0),  # it is told to run none, whatever is answered
        (True, np.nan, np.nan, False, 1.0),
    ],
)
def test_whether_some_replica_is_to_run_the_cluster_says_where_it_ever_did(
    totals, known, counts, wanted, answer, observed, up
):
    before = AccountedSweep.blank(1)._replace(up=np.array([1.0]), counts=np.array([counts]))
    answers = SweepAnswers(np.array([answer]), np.array([observed]))
    assert look(totals(wanted=wanted), known(), answers, before, NOW).up.tolist() == [up]

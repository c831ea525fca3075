"""KEDA's next steps between 0 and 1, and the reasons why there are none."""

import pytest

from exporter.kubernetes.objects import ScaledObjectFallback
from scaler.explain.outcome import controller_outcome

from .conftest import NOW, decision, facts, hpa, scaled


def keda(current, **words):
    around = {} if current else {"hpas": [hpa()]}
    return facts(current, scaled_object=scaled(**words), **around)


def test_pushed_activity_wakes_at_once(foresee):
    assert foresee(decision(3), keda(0)) == (
        "wakes",
        "at once, by the push, KEDA sets 1: 0 -> 1; from there the HPA scales",
        [(0.0, 1)],
    )


def test_without_a_push_it_wakes_when_keda_polls(foresee):
    code, why, acts = foresee(decision(3), keda(0, minimum=0, triggers=("external",), polling_s=10.0))
    assert (code, acts) == ("wakes", [(10.0, 1)])
    assert why.startswith("in at most 10 s, at its next poll, KEDA sets 1")


def test_it_wakes_to_its_minimum(foresee):
    assert foresee(decision(3), keda(0, minimum=2, idle=0))[2] == [(0.0, 2)]


def test_paused_scale_out_prevents_waking(foresee):
    code, why, acts = foresee(decision(3), keda(0, pauses={"scale_out": True}))
    assert (code, acts) == ("paused", [])
    assert "paused-scale-out" in why


def test_asleep_and_inactive_is_asleep(foresee):
    assert foresee(decision(0), keda(0)) == ("asleep", "nothing: at zero and inactive", [])


def test_zero_waits_for_the_cooldown(foresee):
    # Active last 100 s ago: 200 s are left, and KEDA looks every 30 s.
    code, why, acts = foresee(decision(0), keda(2, status={"active_at": NOW - 100.0}))
    assert (code, acts) == ("cooling_down", [(230.0, 0)])
    assert why == ("in at most 230 s KEDA sets 0: its cooldownPeriod of 300 s began when a trigger was last active")


def test_after_the_cooldown_the_next_poll_takes_it_to_zero(foresee):
    around = keda(2, cooldown_s=30.0, polling_s=10.0, status={"active_at": NOW - 100.0})
    assert foresee(decision(0), around) == (
        "sleeps",
        "in at most 10 s, at its next poll, KEDA sets 0: 2 -> 0",
        [(10.0, 0)],
    )


def test_workload_that_was_never_active_goes_to_zero_at_the_first_poll(foresee):
    assert foresee(decision(0), keda(2))[0] == "sleeps"
    code, why, acts = foresee(decision(0), keda(2, initial_cooldown_s=6000.0))
    assert (code, acts) == ("cooling_down", [(1030.0, 0)])
    assert "initialCooldownPeriod of 6000 s began when it was created" in why


def test_idle_count_of_zero_sleeps_though_the_minimum_is_two(foresee):
    around = keda(2, minimum=2, idle=0, cooldown_s=30.0, status={"active_at": NOW - 100.0})
    assert foresee(decision(0), around)[::2] == ("sleeps", [(30.0, 0)])


def test_workload_at_its_idle_count_is_asleep(foresee):
    assert foresee(decision(0), keda(1, minimum=2, idle=1)) == ("asleep", "nothing: at 1 and inactive", [])


def test_paused_scale_in_prevents_zero(foresee):
    code, why, _ = foresee(decision(0), keda(2, pauses={"scale_in": True}))
    assert (code, "paused-scale-in" in why) == ("paused", True)


@pytest.mark.parametrize("current", [0, 3])
def test_paused_workload_ignores_the_published_number(foresee, current):
    code, why, acts = foresee(decision(5), keda(current, pauses={"paused": True}))
    assert (code, acts) == ("paused", [])
    assert "autoscaling.keda.sh/paused" in why
    code, why, acts = foresee(decision(5), keda(current, pauses={"replicas": 2}))
    assert (code, acts) == ("paused", [(30.0, 2)])
    assert "paused at 2 replicas" in why


def test_mate_that_is_active_keeps_the_others_up(foresee):
    around = facts(2, scaled_object=scaled(status={"active_at": NOW - 1000.0}), hpas=[hpa(up={}, down={})])
    assert foresee(decision(0), around)[0] == "sleeps"
    assert foresee(decision(0), around, [decision(2, name="other")])[0] == "settled"


def test_triggers_of_other_scalers_may_keep_it_active():
    around = keda(2, triggers=("external-push", "cron"), status={"active_at": NOW - 1000.0})
    sentences = controller_outcome(decision(0), around, NOW).sentences
    assert "1 triggers of chat are not Tidegate's: while one is active it does not go to zero" in sentences


def test_minimum_above_zero_is_applied_by_the_hpa(foresee):
    # Nothing goes below it: KEDA has no reason to, and the HPA has the same minimum.
    around = facts(2, scaled_object=scaled(minimum=1), hpas=[hpa(up={}, down={})])
    assert foresee(decision(0), around)[::2] == ("down", [(15.0, 1)])
    around = facts(1, scaled_object=scaled(minimum=1), hpas=[hpa(up={}, down={})])
    assert foresee(decision(0), around)[::2] == ("at_min", [])


def test_error_changes_nothing_and_a_fallback_does(foresee):
    assert foresee(decision(None), keda(3)) == (
        "unknown",
        "nothing: callers get an error, and KEDA and the HPA change nothing",
        [],
    )
    code, why, _ = foresee(decision(None), keda(3, fallback=ScaledObjectFallback(3, 6)))
    assert code == "fallback"
    assert why.startswith("after more than 3 failed reads in a row KEDA uses its fallback, 6 replicas, and wakes")


def test_paused_number_that_is_reached_is_not_set_again(foresee):
    assert foresee(decision(5), keda(2, pauses={"replicas": 2}))[::2] == ("paused", [])

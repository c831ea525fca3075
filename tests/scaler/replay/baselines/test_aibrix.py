"""AIBrix's own scenarios (algorithm/apa_test.go), and how its controller applies the result."""

from __future__ import annotations

from collections import deque

import pytest

from scaler.replay.baselines.aibrix import AibrixSpec, Apa, recommend, stabilise

THIRTY = AibrixSpec(target=30.0)


@pytest.mark.parametrize(
    ("replicas", "use", "expected"),
    [(2, 40.0, 3), (2, 33.5, 3), (2, 100.0, 4), (6, 20.0, 4), (6, 1.0, 3), (2, 32.0, 2), (2, 28.0, 2)],
)
def test_replicas_follow_the_ratio_outside_the_tolerance_and_at_most_double_or_halve(replicas, use, expected):
    assert expected == recommend(THIRTY, replicas, use)


def test_step_up_is_rounded_up_and_step_down_is_truncated():
    assert recommend(AibrixSpec(target=30.0, up_rate=2.5), 2, 100.0) == 5
    assert recommend(AibrixSpec(target=30.0, down_rate=2.5), 6, 1.0) == 2


def test_cooldown_selects_the_least_of_its_window():
    # stabilizeRecommendation selects the minimum: no delay, a jump to the value of five minutes ago.
    recent = deque([(0.0, 2), (10.0, 9), (290.0, 9)])
    assert stabilise(AibrixSpec(), recent, 9, 10, 290.0) == 2
    recent.append((300.0, 9))
    assert stabilise(AibrixSpec(), recent, 9, 10, 300.0) == 9


def test_step_up_has_no_cooldown():
    assert stabilise(AibrixSpec(), deque([(0.0, 2), (10.0, 9)]), 9, 4, 10.0) == 9


def test_use_is_averaged_over_180_seconds_and_a_missing_value_is_not_zero(see):
    apa = Apa("aibrix", AibrixSpec())
    assert [apa.step(see(10.0 * n, wanted=2**n, kv=0.9)) for n in (1, 2)] == [4, 8]
    assert apa.step(see(30.0, wanted=4, ready=0)) == 8
    assert apa.step(see(250.0, wanted=16, ready=16, kv=0.5)) == 16


def test_replicas_are_never_below_one(see):
    assert Apa("aibrix", AibrixSpec()).step(see(0.0, wanted=1)) == 1

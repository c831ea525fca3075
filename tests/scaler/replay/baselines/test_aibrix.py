"""AIBrix's own scenarios (algorithm/apa_test.go) and what its controller does with the result."""

from __future__ import annotations

from collections import deque

import pytest

from scaler.replay.baselines.aibrix import AibrixSpec, Apa, recommend, stabilise

THIRTY = AibrixSpec(target=30.0)


@pytest.mark.parametrize(
    ("replicas", "use", "expected"),
    [(2, 40.0, 3), (2, 33.5, 3), (2, 100.0, 4), (6, 20.0, 4), (6, 1.0, 3), (2, 32.0, 2), (2, 28.0, 2)],
)
def test_within_the_tolerance_nothing_outside_it_the_ratio_and_at_most_twice_or_half(replicas, use, expected):
    assert expected == recommend(THIRTY, replicas, use)


def test_a_step_up_is_rounded_up_and_a_step_down_cut_off():
    assert recommend(AibrixSpec(target=30.0, up_rate=2.5), 2, 100.0) == 5
    assert recommend(AibrixSpec(target=30.0, down_rate=2.5), 6, 1.0) == 2


def test_the_down_cooldown_takes_the_least_of_its_window():
    # stabilizeRecommendation selects the minimum: no delay, a leap to what was enough five minutes ago.
    recent = deque([(0.0, 2), (10.0, 9), (290.0, 9)])
    assert stabilise(AibrixSpec(), recent, 9, 10, 290.0) == 2
    recent.append((300.0, 9))
    assert stabilise(AibrixSpec(), recent, 9, 10, 300.0) == 9


def test_up_has_no_cooldown():
    assert stabilise(AibrixSpec(), deque([(0.0, 2), (10.0, 9)]), 9, 4, 10.0) == 9


def test_use_is_averaged_over_180_seconds_and_an_empty_page_is_no_zero(see):
    apa = Apa("aibrix", AibrixSpec())
    assert [apa.step(see(10.0 * n, wanted=2**n, kv=0.9)) for n in (1, 2)] == [4, 8]
    assert apa.step(see(30.0, wanted=4, ready=0)) == 8
    assert apa.step(see(250.0, wanted=16, ready=16, kv=0.5)) == 16


def test_it_never_goes_below_one(see):
    assert Apa("aibrix", AibrixSpec()).step(see(0.0, wanted=1)) == 1

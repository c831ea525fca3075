"""The cost of one idle time, and the bounds of a rule without history."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.policy.estimators.keep_warm import (
    IdlePlan,
    Stakes,
    break_even,
    clairvoyant,
    cost,
    kept_warm,
    start_cost,
    up_seconds,
    waited_seconds,
    worst_regret,
)

CHAT = Stakes(*(np.array([x]) for x in (75.0, 90.0, 1.0, 12.0)))
RESTS = st.lists(st.floats(0, 1e6), min_size=1, max_size=60).map(np.array)
PRICES = st.floats(1e-4, 100)
STAKES = st.builds(
    lambda start, idle, waiting: Stakes(*(np.array([x]) for x in (start, start, idle, waiting))),
    st.floats(1, 3600), PRICES, PRICES,
)  # fmt: skip
HUNDRED_PERCENT = 1.0 + 1e-9


def schedule(keep_warm, begin=np.nan, until=np.nan):
    return IdlePlan(*(np.array([float(x)]) for x in (keep_warm, begin, until)))


def test_worked_example_of_the_module():
    hour = np.array([3600.0])
    assert start_cost(CHAT).tolist() == [975.0]
    assert break_even(CHAT).tolist() == [975.0]
    assert cost(hour, kept_warm(np.array([300.0])), CHAT).tolist() == [1275.0]
    assert cost(hour, kept_warm(np.array([9999.0])), CHAT).tolist() == [3600.0]
    assert clairvoyant(hour, CHAT).tolist() == [975.0]


# Kept warm for 100 s; from 3000 s on it starts, is ready at 3075 and given up at 3200.
@pytest.mark.parametrize(
    ("rest", "up", "waited"),
    [
        (60, 60, 0),  # warm
        (100, 100, 0),
        (101, 100 + 75, 75),  # asleep
        (2999, 100 + 75, 75),
        (3000, 100 + 75, 75),  # the start in advance has just begun
        (3050, 100 + 75, 25),  # … is under way
        (3075, 100 + 75, 0),  # … is ready
        (3150, 100 + 75 + 75, 0),  # … and was so for 75 s
        (3200, 100 + 75 + 125 + 75, 75),  # given up, and everything again
        (9999, 100 + 75 + 125 + 75, 75),
    ],
)
def test_rest_under_a_schedule(rest, up, waited):
    one = np.array([float(rest)])
    assert up_seconds(one, schedule(100, 3000, 3200), CHAT).tolist() == [up]
    assert waited_seconds(one, schedule(100, 3000, 3200), CHAT).tolist() == [waited]


@given(RESTS, STAKES)
@settings(max_examples=300)
def test_break_even_never_costs_more_than_twice_the_clairvoyant_cost(rests, stakes):
    paid = cost(rests, kept_warm(break_even(stakes)), stakes)
    assert (paid <= 2.0 * clairvoyant(rests, stakes) * HUNDRED_PERCENT).all()


@given(RESTS, STAKES, st.floats(0, 1e5), st.floats(0, 1e5), st.floats(0, 1e4))
@settings(max_examples=500)
def test_no_rest_costs_more_than_the_worst_regret(rests, stakes, keep_warm, wait, span):
    window = break_even(stakes)
    begin = keep_warm + wait
    for tried in (schedule(keep_warm), schedule(keep_warm, begin, begin + stakes.start[0] + span)):
        regret = cost(rests, tried, stakes) - cost(rests, kept_warm(window), stakes)
        bound = worst_regret(tried, window, stakes)
        assert (regret <= bound + 1e-9 * (1.0 + cost(rests, tried, stakes))).all()

"""Members of one queue are ordered by the price of a request, and seldom anew."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.policy.capacity import Estimate, blank
from scaler.policy.variants import (
    BAND,
    LEARNED,
    SETTLE_S,
    UNORDERED,
    PriceUnit,
    Ranks,
    learned_capacity,
    ordered,
    prices,
)

NAN = float("nan")
ITL, NOW = 0.05, 100_000.0
LONG_AGO = NOW - SETTLE_S


def after(price, rank, since=LONG_AGO, queue=None, now=NOW):
    size = len(price)
    arrays = np.array(queue or [0] * size, dtype=np.int64), np.array(price, dtype=float)
    return ordered(*arrays, Ranks(np.array(rank, dtype=np.int64), np.full(size, since)), now)


def ranks(price, before=None):
    """The ranks of members of one queue that has been out of the band for long, if it is."""
    return after(price, [UNORDERED] * len(price) if before is None else before).rank.tolist()


@pytest.mark.parametrize(("price", "before", "expected"), [
    ([6.9, 0.8], None, [1, 0]),
    ([1.0, 1.0, 0.5], None, [1, 2, 0]),
    ([1.2, 1.0], [0, 1], [0, 1]),  # within the band the order stays
    ([1.26, 1.0], [0, 1], [1, 0]),
    ([1.0, 1.2], [1, 0], [1, 0]),  # … and so back
    ([1.3, 1.15, 1.0], [0, 1, 2], [2, 1, 0]),  # no neighbours are out of the band, and the ends are
    ([NAN, 1.0], None, [UNORDERED, UNORDERED]),
    ([NAN], None, [UNORDERED]),
    ([NAN, 1.0], [1, 0], [1, 0]),  # an unknown price keeps the order
    ([NAN, 1.0, 2.0], [1, 0, UNORDERED], [UNORDERED] * 3),  # of a new member there is none
    ([3.0, 1.0, 2.0], [1, 0, UNORDERED], [2, 0, 1]),
    ([1.0, 1.1, 1.2], [0, 0, 1], [0, 1, 2]),  # a place that two have is none
    ([1.0, 1.1], [7, 2], [1, 0]),  # one member between them is gone
    ([], [], []),
])  # fmt: skip
def test_order_is_that_of_the_prices_and_changes_only_beyond_the_band(price, before, expected):
    assert ranks(price, before) == expected


def test_order_changes_only_once_it_was_out_of_the_band_for_an_hour_without_a_break():
    order, wrong, right = Ranks(np.array([0, 1]), np.full(2, NAN)), np.array([2.0, 1.0]), np.array([1.1, 1.0])
    queue = np.zeros(2, dtype=np.int64)
    for seconds, price, expected, since in (
        (0.0, wrong, [0, 1], NOW),
        (SETTLE_S - 1.0, wrong, [0, 1], NOW),
        (SETTLE_S, right, [0, 1], NAN),
        (SETTLE_S + 1.0, wrong, [0, 1], NOW + SETTLE_S + 1.0),
        (2 * SETTLE_S + 1.0, wrong, [1, 0], NAN),
        (2 * SETTLE_S + 2.0, wrong, [1, 0], NAN),
    ):
        order = ordered(queue, price, order, NOW + seconds)
        assert order.rank.tolist() == expected
        np.testing.assert_equal(order.since, np.full(2, since))


def test_first_known_prices_order_the_members_at_once():
    queue, before = np.zeros(2, dtype=np.int64), Ranks.blank(2)
    assert ordered(queue, np.array([2.0, NAN]), before, NOW).rank.tolist() == [UNORDERED, UNORDERED]
    assert ordered(queue, np.array([2.0, 1.0]), before, NOW).rank.tolist() == [1, 0]


def test_clock_that_was_set_back_delays_a_change_by_an_hour_at_most():
    order = after([2.0, 1.0], [0, 1], since=NOW + 86400.0)
    assert (order.rank.tolist(), order.since.tolist()) == ([0, 1], [NOW, NOW])


def reference(queue, price, before, now):
    """The same, queue by queue."""
    rank, since = list(before.rank), [NAN] * len(queue)
    for number in set(queue):
        mine = [index for index, of in enumerate(queue) if of == number]
        known = not any(np.isnan(price[index]) for index in mine)
        sound = min(rank[index] for index in mine) >= 0 and len({rank[index] for index in mine}) == len(mine)
        pairs = [(one, other) for one in mine for other in mine if rank[one] < rank[other]]
        outside = sound and known and any(price[other] * (1.0 + BAND) < price[one] for one, other in pairs)
        began = min([now, *(before.since[index] for index in mine if not np.isnan(before.since[index]))])
        settled = outside and now - began >= SETTLE_S
        if known and (settled or not sound):
            best = sorted(mine, key=lambda index: (price[index], before.rank[index], index))
        else:
            best = sorted(mine, key=lambda index: before.rank[index]) if sound else None
        for index in mine:
            rank[index] = UNORDERED if best is None else best.index(index)
            since[index] = began if outside and not settled else NAN
    return rank, since


members = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from([NAN, 0.5, 1.0, 1.2, 1.3, 2.0]),
        st.integers(UNORDERED, 4),
        st.sampled_from([NAN, LONG_AGO, NOW - 1.0, NOW + 5.0]),
    ),
    max_size=9,
)


@given(members)
def test_order_of_many_queues_is_that_of_each_queue(given_members):
    queue, price, rank, since = ([each[position] for each in given_members] for position in range(4))
    numbers = sorted(set(queue))
    dense = np.array([numbers.index(each) for each in queue], dtype=np.int64)
    before = Ranks(np.array(rank, dtype=np.int64), np.array(since, dtype=float))
    found = ordered(dense, np.array(price, dtype=float), before, NOW)
    expected_rank, expected_since = reference(dense.tolist(), price, before, NOW)
    assert found.rank.tolist() == expected_rank
    np.testing.assert_equal(found.since, np.array(expected_since))
    again = ordered(dense, np.array(price, dtype=float), found, NOW)
    assert again.rank.tolist() == found.rank.tolist()


@given(st.lists(st.floats(0.9, 1.1), min_size=30, max_size=30), st.floats(0.5, 2.0))
def test_order_changes_at_most_once_while_prices_move_within_the_band(noise, ratio):
    order, changes = Ranks(np.array([0, 1]), np.full(2, NAN)), 0
    for hour, each in enumerate(noise):
        now = NOW + hour * SETTLE_S
        found = ordered(np.zeros(2, dtype=np.int64), np.array([ratio * each, 1.0]), order, now)
        changes += int((found.rank != order.rank).any())
        order = found
    assert changes <= 1


def estimates(step_s, prompt=500.0, output=200.0, requests=200.0):
    """Of a member with an empty step of `step_s`, and its last requests."""
    one = blank(1)[0]
    one[Estimate.STEP_SUM] = step_s * one[Estimate.STEP_WEIGHT]
    one[Estimate.PROMPTS] = one[Estimate.OUTPUTS] = requests
    one[Estimate.PROMPT_SUM], one[Estimate.OUTPUT_SUM] = prompt * requests, output * requests
    return one


def rates(*rows, queue=None):
    return learned(*rows, queue=queue).rate.tolist()


def learned(*rows, queue=None, itl=ITL):
    return learned_capacity(np.stack(rows), np.full(len(rows), itl), np.array(queue or [0] * len(rows)))


def test_members_are_compared_at_the_mean_request_of_their_queue():
    slow, fast = rates(estimates(0.02, output=100.0), estimates(0.01, output=300.0))
    assert fast > 1.9 * slow
    # With the same engine it is the same rate, whatever requests each was sent.
    one, other = rates(estimates(0.02, output=100.0), estimates(0.02, output=300.0))
    assert one == pytest.approx(other)
    assert rates(estimates(0.02, output=200.0))[0] == pytest.approx(one)


def test_rate_is_unknown_before_enough_requests_and_without_an_slo():
    assert np.isnan(rates(estimates(0.02, requests=LEARNED - 1.0))).all()
    assert rates(estimates(0.02, requests=LEARNED))[0] > 0.0
    assert np.isnan(learned(estimates(0.02), itl=NAN)).all()
    # A member that is not learned leaves the mean request of the others alone.
    assert rates(estimates(0.02), estimates(0.01, output=9000.0, requests=6.0))[0] == rates(estimates(0.02))[0]


def test_replica_holds_the_requests_that_arrive_while_one_takes_as_long_as_it_may():
    one = estimates(0.01)
    rate, holds = learned(one)
    # 200 tokens at 0.8 of 50 ms.
    assert holds.tolist() == pytest.approx((rate * 200 * 0.8 * ITL).tolist())
    one[Estimate.KV_PER_REQUEST] = 0.05
    assert learned(one).holds.tolist() == [pytest.approx(0.95 / 0.05)]


def test_price_is_of_the_first_unit_that_is_known_of_every_member():
    queue, hour = np.array([0, 0, 1, 1, 2, 2, 3, 3]), np.array([1.0, 8.0, 1.0, 8.0, 1.0, 8.0, 1.0, 8.0])
    holds = np.array([NAN, NAN, 4.0, 64.0, 4.0, NAN, 4.0, 0.0])
    learned = np.array([0.2, 2.0, 2.0, NAN, NAN, NAN, 2.0, 0.0])
    found = prices(hour, holds, learned, queue)
    units = ["REQUESTS", "REQUESTS", "IN_HAND", "IN_HAND", *["REPLICAS"] * 4]
    assert [PriceUnit(unit).name for unit in found.unit] == units
    # A replica that can do nothing has a price, and nothing of it has.
    assert found.price.tolist() == [5.0, 4.0, 0.25, 0.125, 1.0, 8.0, 1.0, 8.0]

"""Members of one queue share it: the shares add up to the queue for all weights and capacities."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from scaler.policy.groups import NONE, Sharing, allotted, only_shared


def shares(amount, weights, capacity=None, order=None):
    """The share of each member of one queue."""
    capacities = np.full(len(weights), np.inf) if capacity is None else np.array(capacity, dtype=float)
    queue = np.zeros(len(weights), dtype=np.int64)
    orders = None if order is None else np.array(order, dtype=np.int64)
    return allotted(np.array([float(amount)]), np.array(weights, dtype=float), capacities, queue, orders).tolist()


@pytest.mark.parametrize(("amount", "weights", "capacity", "expected"), [
    (100, [9, 1], None, [90, 10]),
    (100, [1, 1, 0], None, [50, 50, 0]),
    (0, [9, 1], [0, 0], [0, 0]),
    (100, [9, 1], [40, 1000], [40, 60]),  # what exceeds the capacity of the first spills over
    (100, [9, 1], [40, 20], [76, 24]),  # 40 and 20, and 40 above all capacities: 36 and 4 more
    (60, [1, 1, 1], [10, 15, 100], [10, 15, 35]),  # 20 each; 10 and 5 spill
    (60, [1, 1, 0], [10, 20, 100], [25, 35, 0]),  # weight 0 gets nothing, not even above all capacities
])  # fmt: skip
def test_member_gets_the_part_of_its_weight_up_to_its_capacity(amount, weights, capacity, expected):
    assert shares(amount, weights, capacity) == pytest.approx(expected)


@pytest.mark.parametrize(("amount", "weights", "capacity", "order", "expected"), [
    (100, [1, 1], [200, 200], [0, 1], [100, 0]),
    (100, [1, 1], [200, 200], [1, 0], [0, 100]),
    (100, [1, 9], [30, 200], [0, 1], [30, 70]),
    (100, [1, 1, 1], [30, 20, 200], [0, 0, 1], [30, 20, 50]),
    (100, [1, 1], [30, 20], [0, 1], [55, 45]),  # 50 above all capacities, by weight
    (100, [0, 1], [200, 200], [0, 1], [0, 100]),  # weight 0 gets nothing in any order
    (1 / 3, [1, 1, 1], [9, 9, 9], [0, 0, 1], [1 / 6, 1 / 6, 0]),  # not even an error of rounding
])  # fmt: skip
def test_members_of_a_lower_order_are_full_before_others_get_anything(amount, weights, capacity, order, expected):
    got = shares(amount, weights, capacity, order)
    assert got == pytest.approx(expected)
    assert [share == 0.0 for share in got] == [share == 0 for share in expected]


# Requests; what a subnormal float cannot be divided into is no share.
amounts = st.just(0.0) | st.floats(1e-6, 1e6)
weights_of = st.lists(st.floats(0, 1000) | st.just(0.0), min_size=1, max_size=8)


@given(data=st.data(), amount=amounts, weights=weights_of)
def test_shares_in_any_order_add_up_and_none_comes_before_a_lower_one_is_full(data, amount, weights):
    assume(sum(weights) > 1e-6)
    sizes = {"min_size": len(weights), "max_size": len(weights)}
    capacity = data.draw(st.lists(st.floats(0, 1e6) | st.just(np.inf), **sizes))
    order = data.draw(st.lists(st.integers(0, 2), **sizes))
    got = shares(amount, weights, capacity, order)
    assert sum(got) == pytest.approx(amount, abs=1e-6)
    assert min(got) >= 0.0
    last = max((place for place, share in zip(order, got, strict=True) if share > 0.0), default=0)
    for place, share, weight, space in zip(order, got, weights, capacity, strict=True):
        if place < last and weight > 0.0:
            assert share >= space - 1e-6 * max(amount, 1.0)


@given(data=st.data(), amount=amounts, weights=weights_of)
def test_shares_add_up_to_the_queue(data, amount, weights):
    assume(sum(weights) > 1e-6)
    sizes = {"min_size": len(weights), "max_size": len(weights)}
    capacity = data.draw(st.lists(st.floats(0, 1e6) | st.just(np.inf), **sizes))
    got = shares(amount, weights, capacity)
    assert sum(got) == pytest.approx(amount, abs=1e-6)
    assert min(got) >= 0.0
    assert [share for share, weight in zip(got, weights, strict=True) if weight == 0.0 and share > 0.0] == []
    # A member with capacity left has at least the part of its weight.
    for share, weight, space in zip(got, weights, capacity, strict=True):
        if share < space - 1e-6:
            assert share >= amount * weight / sum(weights) - 1e-6


def test_many_queues_are_shared_at_once_as_each_alone():
    amount, queue = np.array([100.0, 60.0]), np.array([0, 1, 0, 1, 1])
    got = allotted(amount, np.array([9.0, 1, 1, 1, 1]), np.array([40.0, 10, 1000, 15, 100]), queue)
    assert got.tolist() == pytest.approx([40, 10, 60, 15, 35])


def sharing(queue, weight, most=None, work=16.0):
    size = len(queue)
    return only_shared(
        Sharing(
            np.array(queue),
            np.array(weight, dtype=float),
            np.array(most or [np.inf] * size, dtype=float),
            np.full(size, work),
            np.zeros(size, dtype=np.int64),
            np.full(size, np.nan),
        )
    )


def test_workload_that_shares_no_queue_has_all_of_it():
    alone = sharing([NONE, 3, 0, 0], [1, 0.1, 9, 1])
    assert alone.queue.tolist() == [NONE, NONE, 0, 0]
    parts = alone.parts(np.array([0, 1, 2]), np.array([5.0, 5.0, 5.0]), np.full(4, np.inf))
    assert parts.tolist() == pytest.approx([1, 1, 0.9])


def test_queue_of_weights_0_is_shared_evenly():
    both = sharing([0, 0], [0, 0])
    assert both.parts(np.array([0, 1]), np.array([8.0, 8.0]), np.full(2, np.inf)).tolist() == [0.5, 0.5]


def test_empty_queue_is_shared_by_weight():
    both = sharing([0, 0], [9, 1], most=[0, 1])
    capacity = both.capacity(np.zeros(2), np.full(2, np.nan), np.full(2, np.nan), np.full(2, np.inf))
    assert both.parts(np.array([1]), np.array([0.0]), capacity).tolist() == [1.0]
    capacity[:] = np.inf
    assert both.parts(np.array([1]), np.array([0.0]), capacity).tolist() == pytest.approx([0.1])


@pytest.mark.parametrize(("in_pods", "wanted", "pending", "room", "expected"), [
    (0.0, 1.0, 0.0, np.inf, 64.0),  # 4 replicas at 16
    (50.0, 1.0, 0.0, np.inf, 14.0),
    (100.0, 1.0, 0.0, np.inf, 0.0),
    (np.nan, np.nan, np.nan, np.nan, 64.0),
    (0.0, 1.0, 1.0, np.inf, 16.0),  # its one replica waits for a node: no more than that one's worth goes there
    (0.0, 9.0, 1.0, np.inf, 64.0),
    (0.0, 1.0, 0.0, 3.0, 48.0),  # there are GPUs for 3
    (50.0, 1.0, 0.0, 3.0, 0.0),
])  # fmt: skip
def test_capacity_is_that_of_the_replicas_it_may_have(in_pods, wanted, pending, room, expected):
    one = sharing([0, 0], [1, 1], most=[4, 4])
    columns = ([in_pods, 0.0], [wanted, 1.0], [pending, 0.0], [room, np.inf])
    capacity = one.capacity(*map(np.array, columns))
    assert capacity[0] == expected


def test_learned_requests_in_hand_replace_the_configured_ones_where_they_are_known():
    both = sharing([0, 0], [1, 1], most=[4, 4])
    both.learned[0] = 100.0
    assert both.capacity(np.zeros(2), np.ones(2), np.zeros(2), np.full(2, np.inf)).tolist() == [400.0, 64.0]


def test_member_that_is_not_sized_by_requests_has_unlimited_capacity():
    free = sharing([0, 0], [1, 1], most=[4, 4], work=np.nan)
    assert free.capacity(np.zeros(2), np.ones(2), np.ones(2), np.ones(2)).tolist() == [np.inf, np.inf]

"""Members of a group wake together; bounds raise the lower role, and maxima win."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.policy.columns import Verdicts
from scaler.policy.groups import Groups, Membership, closure, floors, woken_with


def member(role="", name="pd", weight=1.0, to=None, least=0.0, most=np.inf, order=0):
    return Membership("ai", name, role, weight, to, least, most, order=order)


def decode(least=0.0, most=np.inf, **more):
    return member("decode", to="prefill", least=least, most=most, **more)


PREFILL = member("prefill")


def needed(members, replicas, maxima=None):
    """The floors, where so many replicas are wanted by each alone; None is unknown, which is awake."""
    verdicts = Verdicts.blank(len(members))
    verdicts.replicas[:] = [np.nan if count is None else count for count in replicas]
    verdicts.active[:] = [count != 0 for count in replicas]
    most = np.array(maxima or [100] * len(members), dtype=float)
    return floors(Groups.stack(members), verdicts, most).tolist()


@pytest.mark.parametrize(("replicas", "expected"), [
    ([0, 0], [0, 0]),
    ([3, 0], [3, 1]),
    ([0, 3], [1, 3]),
    ([None, 0], [1, 1]),  # unknown is awake, and says nothing of how many
])  # fmt: skip
def test_one_awake_member_keeps_or_wakes_its_group(replicas, expected):
    assert [
        max(floor, count or 0) for floor, count in zip(needed([PREFILL, decode()], replicas), replicas, strict=True)
    ] == (expected)


@pytest.mark.parametrize(("bounds", "replicas", "maxima", "expected"), [
    ((0.5, 2), [4, 0], None, [4, 2]),  # 0.5 x 4
    ((0.5, 2), [4, 10], None, [5, 10]),  # 10 / 2
    ((0.5, 2), [4, 3], None, [4, 3]),
    ((1, np.inf), [7, 1], None, [7, 7]),
    ((0, 3), [1, 10], None, [4, 10]),  # 10 / 3 = 3.33
    ((1 / 3, 3), [3, 1], None, [3, 1]),  # 3 x 1/3 is 1, and not 2 for the last bit's sake
    ((1.5, 1.5), [1, 1], None, [1, 2]),  # 1.5 cannot be had: rounded up, once, and not round after round
    ((2, 4), [10, 1], [100, 8], [10, 8]),  # the maximum wins
    ((0, 1), [2, 10], [6, 100], [6, 10]),
])  # fmt: skip
def test_bounds_raise_the_lower_role_and_lower_none(bounds, replicas, maxima, expected):
    assert needed([PREFILL, decode(*bounds)], replicas, maxima) == expected


def test_bounds_of_three_roles_are_followed_through():
    encode = member("encode", to="prefill", least=1.0)
    # decode 10 asks for 10 / 2 = 5 of prefill, and those for 5 of encode.
    assert needed([PREFILL, decode(0, 2), encode], [1, 10, 1]) == [5, 10, 5]


def test_missing_replicas_of_a_role_are_spread_by_weight():
    pair = [decode(1, weight=3.0), decode(1, weight=1.0)]
    assert needed([PREFILL, *pair], [10, 1, 1]) == [10, 7, 3]  # 8 are lacking: 6 and 2
    assert needed([PREFILL, *pair], [10, 1, 1], [100, 3, 100]) == [10, 3, 7]  # 6 and 2, of which 4 find no room


def test_missing_replicas_of_a_role_go_to_a_lower_order_first():
    pair = [decode(1, order=1), decode(1, order=0)]
    assert needed([PREFILL, *pair], [9, 1, 1]) == [9, 1, 8]
    assert needed([PREFILL, *pair], [9, 1, 1], maxima=[100, 100, 4]) == [9, 5, 4]


def test_weight_of_0_neither_wakes_nor_is_woken():
    members = [PREFILL, decode(1), decode(1, weight=0.0)]
    assert needed(members, [4, 0, 0]) == [4, 4, 0]
    assert needed(members, [0, 0, 2]) == [0, 0, 0]


def test_members_of_one_role_or_of_none_sleep_alone():
    assert needed([member(weight=9.0), member(weight=1.0)], [3, 0]) == [0, 0]
    assert needed([member("decode"), member("decode")], [3, 0]) == [0, 0]


def test_group_of_one_is_no_group():
    assert Groups.stack([PREFILL, None, member(name="other")]).group.tolist() == [-1, -1, -1]
    assert needed([PREFILL], [3]) == [0]


def test_group_is_of_one_namespace():
    elsewhere = Membership("other", "pd", "decode")
    assert needed([PREFILL, elsewhere], [3, 0]) == [0, 0]


def test_bounds_on_a_role_without_members_have_no_effect():
    assert needed([PREFILL, member("decode", to="encode", least=9.0)], [3, 1]) == [3, 1]
    # … or only one of weight 0.
    assert needed([member("prefill", weight=0.0), PREFILL, member("decode", to="encode", least=9.0)], [3, 2, 1]) == [
        0,
        2,
        1,
    ]


def test_all_mates_are_decided_together():
    groups = Groups.stack([PREFILL, None, decode(), None, member(name="x"), member(name="x")])
    assert closure(groups, np.array([2])).tolist() == [0, 2]
    assert closure(groups, np.array([1, 0])).tolist() == [0, 1, 2]
    assert closure(groups, np.array([1, 5])).tolist() == [1, 5], "of one role: each by itself"
    assert closure(groups, np.array([], dtype=np.int64)).tolist() == []


def test_wake_source_of_one_member_is_that_of_the_group():
    groups = Groups.stack([PREFILL, decode(), None, member("a", "x"), member("b", "x")])
    visible = np.array([True, False, False, False, False])
    assert woken_with(groups, visible).tolist() == [True, True, False, False, False]
    assert woken_with(Groups.stack([None]), np.array([False])).tolist() == [False]


roles = st.lists(
    st.tuples(st.sampled_from(["prefill", "decode", "encode"]), st.integers(0, 30), st.integers(1, 40)),
    min_size=2,
    max_size=6,
)


@given(members=roles, least=st.floats(0, 3), slack=st.floats(0.001, 3))
def test_floors_keep_the_bounds_within_the_maxima_and_lower_no_member(members, least, slack):
    most = least + slack
    every_member = [decode(least, most) if role == "decode" else member(role) for role, _, _ in members]
    replicas = [min(count, ceiling) for _, count, ceiling in members]
    floor = needed(every_member, replicas, [ceiling for _, _, ceiling in members])
    final = [max(pair) for pair in zip(replicas, floor, strict=True)]
    assert all(count <= ceiling for count, (_, _, ceiling) in zip(final, members, strict=True))
    if not any(floor):
        return
    total, full = {}, {}
    for count, (role, _, ceiling) in zip(final, members, strict=True):
        total[role] = total.get(role, 0) + count
        full[role] = full.get(role, True) and count == ceiling
    if {"decode", "prefill"} <= total.keys():
        # Whole replicas: each bound is off by less than the one replica that it was rounded up by.
        assert total["decode"] > least * (total["prefill"] - 1) - 1e-6 or full["decode"]
        assert total["prefill"] > (total["decode"] - 1) / most - 1e-6 or full["prefill"]

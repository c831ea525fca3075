"""Free GPUs are divided by priority and weight in whole replicas, and no workload loses by the absence of another."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scaler.policy.sharing import NONE, Wishes, divide

KINDS, QUOTAS = 3, 2
OPEN = (10**6, 10**6)  # quotas that limit nothing


def wishes(rows):
    """rows: dicts of the columns."""
    kinds = np.full((len(rows), KINDS), NONE, dtype=np.int64)
    for number, row in enumerate(rows):
        kinds[number, : len(row["kinds"])] = row["kinds"]
    columns = {name: [row[name] for row in rows] for name in Wishes._fields if name != "kinds"}
    return Wishes(
        demand=np.array(columns["demand"], dtype=float),
        gpus=np.array(columns["gpus"], dtype=np.int64),
        kinds=kinds,
        priority=np.array(columns["priority"], dtype=float),
        weight=np.array(columns["weight"], dtype=float),
        idle=np.array(columns["idle"], dtype=bool),
        rank=np.array(columns["rank"], dtype=np.int64),
        kept=np.array(columns["kept"], dtype=np.int64),
        held=np.array([[*held, 0, 0, 0][:KINDS] for held in columns["held"]], dtype=np.int64).reshape(-1, KINDS),
        quota=np.array([[*quota, NONE, NONE][:QUOTAS] for quota in columns["quota"]], np.int64).reshape(-1, QUOTAS),
    )


def one(demand, gpus=1, kinds=(0,), priority=0, weight=1.0, *, idle=False, rank=0, kept=0, held=(), quota=()):
    return {
        "demand": demand, "gpus": gpus, "kinds": list(kinds), "priority": priority, "weight": weight, "idle": idle,
        "rank": rank, "kept": kept, "held": held, "quota": quota,
    }  # fmt: skip


def sort_key(row, n):
    """Sorts the wished replicas. n: of the workload's replicas, from 1."""
    level = n * row["gpus"] / row["weight"]
    return n > row["kept"], row["idle"], -row["priority"], n > sum(row["held"]), level, row["rank"]


def reference(free, growth, quotas, rows):
    """Serves the wished replicas one by one, as the module's text says."""
    room, closed, spent = [*free, *growth], set(), set()
    left, granted, quota_left = list(room), [[0] * len(room) for _ in rows], list(quotas)
    wished = [(sort_key(row, n + 1), number) for number, row in enumerate(rows) for n in range(row["demand"])]
    for _, number in sorted(wished):
        row = rows[number]
        mine = set(row["quota"])
        if mine & spent or any((sum(granted[number]) + 1) * row["gpus"] > quotas[quota] for quota in mine):
            continue
        full = {quota for quota in mine if quota_left[quota] < row["gpus"]}
        spent |= full
        if full:
            continue
        there = [kind for kind, many in enumerate(row["held"]) if granted[number][kind] < many]
        for kind in [*there, *row["kinds"], *(kind + KINDS for kind in row["kinds"])]:
            if kind in closed or (granted[number][kind] + 1) * row["gpus"] > room[kind]:
                continue
            if left[kind] >= row["gpus"]:
                left[kind] -= row["gpus"]
                granted[number][kind] += 1
                for quota in mine:
                    quota_left[quota] -= row["gpus"]
                break
            closed.add(kind)
    return granted


def shares(free, rows, growth=(0, 0, 0), quotas=OPEN):
    pad = [*free, *[0] * (KINDS - len(free))]
    return divide(np.array(pad), np.array(growth), np.array(quotas), wishes(rows))


@st.composite
def clusters(draw, most_gpus=4, most_kinds=KINDS, *, there=True, limited=True):
    """Free GPUs, growth, quotas, and workloads. there: some have replicas. limited: quotas are low."""
    row = st.fixed_dictionaries({
        "demand": st.integers(0, 6),
        "gpus": st.integers(1, most_gpus),
        "kinds": st.lists(st.integers(0, most_kinds - 1), max_size=most_kinds, unique=True),
        "priority": st.integers(0, 2),
        "weight": st.sampled_from([0.5, 1.0, 2.0, 3.0]),
        "idle": st.booleans(),
        "kept": st.integers(0, 2) if there else st.just(0),
        "held": st.lists(st.integers(0, 2), max_size=KINDS) if there else st.just(()),
        "quota": st.lists(st.integers(0, QUOTAS - 1), max_size=QUOTAS, unique=True),
    })  # fmt: skip
    rows = draw(st.lists(row, min_size=1, max_size=6))
    ranks = draw(st.permutations(range(len(rows))))
    amounts = st.lists(st.integers(0, 9), min_size=KINDS, max_size=KINDS)
    quotas = draw(st.lists(st.integers(0, 12), min_size=QUOTAS, max_size=QUOTAS)) if limited else OPEN
    ranked = [{**each, "rank": rank} for each, rank in zip(rows, ranks, strict=True)]
    return draw(amounts), draw(amounts), quotas, ranked


@settings(max_examples=80, deadline=None)
@given(clusters())
def test_kernel_serves_as_the_reference_does(cluster):
    free, growth, quotas, rows = cluster
    got = divide(np.array(free), np.array(growth), np.array(quotas), wishes(rows))
    assert np.hstack([got.placed, got.pending]).tolist() == reference(free, growth, quotas, rows)


@settings(max_examples=80, deadline=None)
@given(clusters())
def test_no_more_than_is_free_and_no_more_than_asked_on_kinds_that_fit(cluster):
    free, growth, quotas, rows = cluster
    got = divide(np.array(free), np.array(growth), np.array(quotas), wishes(rows))
    gpus = np.array([row["gpus"] for row in rows])
    assert (gpus @ got.placed <= free).all()
    assert (gpus @ got.pending <= growth).all()
    used = gpus @ np.hstack([got.placed, got.pending])
    assert (got.left + used <= [*free, *growth]).all()
    for number, quota in enumerate(quotas):
        mine = np.array([number in row["quota"] for row in rows])
        assert (gpus * (got.placed + got.pending).sum(axis=1))[mine].sum() + got.quota_left[number] <= quota
    for row, placed, pending, limited in zip(rows, got.placed, got.pending, got.limited, strict=True):
        assert placed.sum() + pending.sum() <= row["demand"]
        assert limited == (placed.sum() < row["demand"])
        there = {kind for kind, many in enumerate(row["held"]) if many}
        assert set(np.flatnonzero(placed + pending)) <= {*row["kinds"], *there}


@settings(max_examples=150, deadline=None)
@given(clusters(limited=False), st.integers(0, 5))
# If small replicas overtook large ones, the last would lose its GPU to the second when the first is gone.
@example(([2, 0, 0], [0, 0, 0], OPEN, [one(1, priority=2), one(1, gpus=2, priority=1, rank=1), one(1, rank=2)]), 0)
def test_without_one_workload_no_other_gets_less(cluster, number):
    free, growth, quotas, rows = cluster
    gone = number % len(rows)
    before = divide(np.array(free), np.array(growth), np.array(quotas), wishes(rows))
    after = divide(np.array(free), np.array(growth), np.array(quotas), wishes([*rows[:gone], *rows[gone + 1 :]]))
    for name in ("placed", "total"):
        had = before.placed.sum(axis=1) + (before.pending.sum(axis=1) if name == "total" else 0)
        has = after.placed.sum(axis=1) + (after.pending.sum(axis=1) if name == "total" else 0)
        assert (has >= np.delete(had, gone)).all(), name


@settings(max_examples=60, deadline=None)
@given(clusters())
def test_lower_priorities_and_idle_ones_take_nothing_from_those_above(cluster):
    free, growth, quotas, rows = cluster
    rows = [{**row, "kept": 0} for row in rows]  # one that stays in any case comes before all
    everyone = divide(np.array(free), np.array(growth), np.array(quotas), wishes(rows))
    for idle, priority in {(row["idle"], row["priority"]) for row in rows}:
        kept = [n for n, row in enumerate(rows) if (row["idle"], -row["priority"]) <= (idle, -priority)]
        alone = divide(np.array(free), np.array(growth), np.array(quotas), wishes([rows[n] for n in kept]))
        assert alone.placed.tolist() == everyone.placed[kept].tolist()
        assert alone.pending.tolist() == everyone.pending[kept].tolist()


@settings(max_examples=60, deadline=None)
@given(clusters(), st.data())
def test_order_of_the_rows_has_no_influence(cluster, data):
    free, growth, quotas, rows = cluster
    order = data.draw(st.permutations(range(len(rows))))
    one_way = divide(np.array(free), np.array(growth), np.array(quotas), wishes(rows))
    other = divide(np.array(free), np.array(growth), np.array(quotas), wishes([rows[n] for n in order]))
    assert other.placed.tolist() == one_way.placed[list(order)].tolist()
    assert other.pending.tolist() == one_way.pending[list(order)].tolist()


@settings(max_examples=80, deadline=None)
@given(clusters(most_kinds=1, there=False, limited=False))
def test_weights_hold_within_one_replica_among_equals_that_want_more(cluster):
    free, _, quotas, rows = cluster
    rows = [{**row, "kinds": [0], "priority": 0, "idle": False} for row in rows if row["gpus"] <= free[0]]
    if not rows:
        return
    got = divide(np.array(free), np.zeros(KINDS, dtype=np.int64), np.array(quotas), wishes(rows)).placed[:, 0]
    level = [n * row["gpus"] / row["weight"] for n, row in zip(got, rows, strict=True)]
    step = [row["gpus"] / row["weight"] for row in rows]
    alone = [min(row["demand"], free[0] // row["gpus"]) for row in rows]
    for poor in range(len(rows)):
        if got[poor] < alone[poor]:
            assert all(level[rich] <= level[poor] + step[poor] + 1e-9 for rich in range(len(rows)))


@settings(max_examples=60, deadline=None)
@given(clusters(most_gpus=1, limited=False))
def test_with_replicas_of_one_gpu_none_stays_free_while_one_is_wanted(cluster):
    free, _, quotas, rows = cluster
    got = divide(np.array(free), np.zeros(KINDS, dtype=np.int64), np.array(quotas), wishes(rows))
    left = np.array(free) - got.placed.sum(axis=0)
    for row, limited in zip(rows, got.limited, strict=True):
        if limited:
            assert all(left[kind] == 0 for kind in row["kinds"])


def test_worked_example_of_the_module():
    rows = [one(8, weight=3.0, rank=0), one(8, weight=1.0, rank=1)]
    got = shares([10], rows, growth=(1, 0, 0))
    assert got.placed[:, 0].tolist() == [8, 2]
    assert got.pending[:, 0].tolist() == [0, 1]
    assert got.limited.tolist() == [False, True]


def test_dearer_kind_is_used_only_when_the_cheaper_one_is_full():
    got = shares([3, 5], [one(5, kinds=(0, 1)), one(2, kinds=(1,), rank=1)])
    assert got.placed[:, :2].tolist() == [[3, 2], [0, 2]]


def test_replica_that_is_there_stays_on_its_kind():
    got = shares([1, 3], [one(3, kinds=(0, 1), held=[0, 2]), one(1, rank=1)])
    assert got.placed[:, :2].tolist() == [[0, 3], [1, 0]]  # its two hold kind 1; the third comes after that of kind 0


def test_idle_workload_sleeps_before_any_busy_one_goes_without():
    got = shares([2], [one(1, priority=9, idle=True), one(2, priority=0, rank=1)])
    assert got.placed[:, 0].tolist() == [0, 2]


def test_large_replica_is_not_overtaken_by_small_ones_of_lower_priority():
    got = shares([9], [one(4, gpus=4, priority=1), one(9, rank=1)])
    assert got.placed[:, 0].tolist() == [
        2,
        1,
    ]  # a third replica of 4 would not fit into 9 alone: nothing is kept for it
    crowded = shares([9], [one(1, gpus=3, priority=2), one(2, gpus=4, priority=1, rank=1), one(9, rank=2)])
    assert crowded.placed[:, 0].tolist() == [1, 1, 0]  # 2 stay free for the second replica of 4


def test_unknown_demand_takes_no_part_and_is_not_limited():
    got = shares([4], [one(float("nan")), one(9, rank=1)])
    assert got.placed[:, 0].tolist() == [0, 4]
    assert got.limited.tolist() == [False, True]


@pytest.mark.parametrize(("growth", "pending"), [((0, 0, 0), 0), ((4, 0, 0), 2), ((5, 0, 0), 2), ((100, 0, 0), 3)])
def test_pending_pods_are_let_through_up_to_the_growth(growth, pending):
    got = shares([2], [one(4, gpus=2)], growth=growth)
    assert (got.placed[0, 0], got.pending[0, 0]) == (1, pending)
    assert got.limited[0]


def test_equal_priority_takes_no_replica_away_and_a_higher_one_does():
    crowded = shares([8], [one(6, held=[6]), one(6, rank=1)])
    assert crowded.placed[:, 0].tolist() == [6, 2]
    higher = shares([8], [one(6, held=[6], kept=1), one(9, priority=1, rank=1)])
    assert higher.placed[:, 0].tolist() == [1, 7]  # one stays in any case


def test_quota_limits_the_workloads_of_its_namespace_alone():
    got = shares([9], [one(4, quota=(0,)), one(4, quota=(0,), rank=1), one(4, rank=2)], quotas=(5, 0))
    assert got.placed[:, 0].tolist() == [3, 2, 4]
    assert (got.left[0], got.quota_left.tolist()) == (0, [0, 0])


@pytest.mark.parametrize("quota", range(QUOTAS))
@pytest.mark.parametrize(("gpus", "placed"), [(2, [1, 0, 0]), (4, [1, 0, 1])])
def test_replica_that_waits_for_its_quota_is_not_overtaken_unless_it_could_never_run(quota, gpus, placed):
    rows = [one(1, gpus=2, priority=2), one(1, gpus=gpus, priority=1, rank=1), one(1, rank=2)]
    got = shares([9], [{**row, "quota": (quota,)} for row in rows], quotas=(3, 3))
    assert got.placed[:, 0].tolist() == placed
    assert got.quota_left[quota] == 0


def test_what_is_left_is_what_nobody_asks_for():
    got = shares([5, 3], [one(2), one(1, gpus=4, kinds=(1,), rank=1)], growth=(2, 0, 0))
    assert got.left.tolist() == [3, 3, 0, 2, 0, 0]

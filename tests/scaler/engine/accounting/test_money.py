"""GPU-seconds of all states add up to those of the nodes, and cost what they cost at that moment."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.kubernetes.gpus import capacity, parts_of
from exporter.kubernetes.objects import Node, Pod
from exporter.model import PodKey, WorkloadKey
from scaler.columns import State
from scaler.engine.accounting import HELD, HOUR_S, STATES, AccountedSweep, FleetGpus, GpuUse, Ledger
from scaler.engine.checkpoint_format import pack, unpack

GAP_S = 10.0
WORKLOADS = 3
# Resource, product, label `replicas`, devices of one GPU, and the part of a GPU that a device is.
KINDS = (
    ("nvidia.com/gpu", "NVIDIA-H100-80GB-HBM3", 1, 1, 1),
    ("nvidia.com/gpu", "Tesla-T4-SHARED", 4, 4, 1 / 4),
    ("nvidia.com/gpu.shared", "NVIDIA-L4", 10, 10, 1 / 10),
    ("nvidia.com/mig-1g.10gb", "NVIDIA-A100-SXM4-80GB", 1, 7, 1 / 7),
    ("nvidia.com/mig-1g.10gb.shared", "NVIDIA-A100-SXM4-80GB", 2, 14, 1 / 14),
    ("nvidia.com/mig-3g.40gb", "NVIDIA-A100-SXM4-80GB", 1, 2, 3 / 7),
    ("nvidia.com/mig-2g.12gb", "NVIDIA-A30", 1, 2, 2 / 4),
)


def sweep(state, gpus, hour=np.nan, **columns):
    """One workload per number of `gpus`, in the state."""
    held = np.zeros((len(gpus), len(STATES)))
    held[:, STATES.index(state)] = gpus
    number = np.ones(len(gpus))
    code = np.full(len(gpus), STATES.index(state))
    columns = {"each": 8.0, "hour": hour, "most": 4.0, **columns}
    numbers = {name: value * number for name, value in columns.items()}
    return AccountedSweep.blank(len(gpus))._replace(state=code, gpus=held, **numbers)


def enter(books, at, moment, fleet=None, *, leads=True):
    if fleet is not None:
        books.enter_fleet(fleet, at, leads=leads)
    books.enter(moment, np.full((len(moment.state), 3), np.nan), at, leads=leads)


@st.composite
def clusters(draw):
    """A node per kind and number of GPUs, and what each of three workloads holds of its devices; then the GPUs of all
    nodes, and those of each workload.
    """
    nodes, pods, total, held = [], [[] for _ in range(WORKLOADS)], 0, np.zeros(WORKLOADS)
    for index, (resource, product, replicas, per_gpu, part) in enumerate(KINDS):
        gpus = draw(st.integers(0, 8))
        labels = {"nvidia.com/gpu.product": product, "nvidia.com/gpu.count": str(gpus)}
        labels |= {f"{resource.removesuffix('.shared')}.replicas": str(replicas)}
        node = Node(f"n{index}", ready=True, schedulable=True, gpus={resource: gpus * per_gpu}, labels=labels)
        nodes.append(node)
        total += gpus
        free = gpus * per_gpu
        for workload in range(WORKLOADS):
            number = draw(st.integers(0, free))
            free -= number
            held[workload] += number * part
            pods[workload].append(Pod(PodKey("ai", "p"), "u", node=node.name, gpus={resource: number}))
    return nodes, pods, total, held


MOMENTS = st.tuples(clusters(), st.sampled_from(STATES), st.floats(0.1, GAP_S))


@given(st.lists(MOMENTS, min_size=1, max_size=8))
def test_states_and_unallocated_add_up_to_the_gpu_seconds_of_the_nodes(moments):
    books, at, expected = Ledger(WORKLOADS, GAP_S), 1e9, 0.0
    for (nodes, pods, gpus, held_by), state, took in moments:
        by_name = {node.name: node for node in nodes}
        whole = np.array([sum(part.whole for part in parts_of(each, by_name.get)) for each in pods])
        total = sum(capacity(node).whole for node in nodes)
        assert (total, *whole) == pytest.approx((gpus, *held_by))
        spared = 0.9 * whole if state is GpuUse.IDLE_WARM else 0.0  # of engines that sleep
        for _ in range(2):
            enter(books, at, sweep(state, whole, hour=2.0, spared=spared), FleetGpus(total, 2.0 * total))
            at += took
        at -= took
        expected += gpus * took
    held = float(books.kept.gpu_seconds[:, HELD].sum())
    fleet = books.fleet_kept
    assert held + fleet.unallocated == pytest.approx(expected, rel=1e-3)
    assert fleet.gpu_seconds == pytest.approx(expected, rel=1e-3)
    cost = float(np.nansum(books.kept.cost[:, HELD]))
    assert cost + fleet.unallocated_cost == pytest.approx(expected * 2.0 / HOUR_S, rel=1e-3)


def test_cost_follows_the_price_of_the_moment_and_gpus_without_one_are_counted_apart():
    books = Ledger(1, GAP_S)
    for at, hour in ((0.0, 3.6), (5.0, 7.2), (10.0, np.nan), (15.0, np.nan)):
        enter(books, at, sweep(GpuUse.SERVING, [8.0], hour=hour))
    serving = STATES.index(GpuUse.SERVING)
    assert books.kept.cost[0, serving] == pytest.approx(8 * 5 * 0.001 + 8 * 5 * 0.002)
    assert (books.kept.gpu_seconds[0, serving], books.kept.priced[0]) == (120.0, 80.0)


def test_engine_in_sleep_mode_holds_its_gpus_and_costs_its_part_of_their_price():
    books = Ledger(1, GAP_S)
    for at in (0.0, 10.0):
        moment = sweep(GpuUse.IDLE_WARM, [8.0], hour=3.6, spared=8.0 * 0.9)
        enter(books, at, moment, FleetGpus(8.0, 8.0 * 3.6))
    idle, fleet = STATES.index(GpuUse.IDLE_WARM), books.fleet_kept
    assert (books.kept.gpu_seconds[0, idle], fleet.unallocated) == (80.0, 0.0)
    assert books.kept.cost[0, idle] == pytest.approx(0.1 * 80 * 0.001)
    assert books.kept.cost_apart[0] == pytest.approx(0.1 * 80 * 0.001)
    assert fleet.unallocated_cost == pytest.approx(0.9 * 80 * 0.001)


def test_cost_without_any_price_is_unknown_and_not_zero():
    books = Ledger(1, GAP_S)
    for at in (0.0, 5.0):
        enter(books, at, sweep(GpuUse.SERVING, [8.0]), FleetGpus(16.0, np.nan))
    assert np.isnan(books.kept.cost).all()
    assert np.isnan(books.kept.priced).all()
    assert np.isnan([books.fleet_kept.cost, books.fleet_kept.unallocated_cost]).all()
    assert books.fleet_kept.unallocated == 40.0


def test_always_on_is_at_the_maximum_and_at_the_most_gpus_of_each_day():
    books = Ledger(1, GAP_S)
    midnight = 20_000 * 86400.0
    hours = [(0, 8.0), (1, 24.0), (2, 0.0), (23, 0.0), (24, 8.0), (25, 8.0)]
    for (hour, gpus), (after, _) in pairwise(hours):
        for at in np.arange(midnight + hour * 3600.0, midnight + after * 3600.0, 10.0):
            enter(books, float(at), sweep(GpuUse.SERVING if gpus else GpuUse.ASLEEP, [gpus], hour=3.6))
    sums = {name: float(getattr(books.kept, name)[0]) / 3600.0 for name in ("held_apart", "at_maximum", "at_peak")}
    assert sums["held_apart"] == pytest.approx(8 + 24 + 8, rel=1e-2)
    assert sums["at_maximum"] == pytest.approx(4 * 8 * 25, rel=1e-2)
    assert sums["at_peak"] == pytest.approx(24 * 24 + 8 * 1, rel=1e-2)
    assert books.kept.cost_at_peak[0] == pytest.approx(3.6 * sums["at_peak"], rel=1e-2)


def test_energy_counts_only_while_the_power_is_known():
    books = Ledger(1, GAP_S)
    for at, watts in ((0.0, 700.0), (5.0, np.nan), (10.0, 700.0), (100.0, 700.0)):
        enter(books, at, sweep(GpuUse.SERVING, [8.0], watts=watts))
    assert books.kept.joules[0] == 3500.0
    assert books.kept.powered[0] == 40.0


def restarted(books):
    state = unpack(pack(State(0.0, (WorkloadKey("ai", "chat"),), books.columns()).copied()))
    after = Ledger(1, GAP_S)
    after.take(state.columns, np.array([0]), np.array([0]))
    return after


def test_sums_of_nodes_and_workloads_continue_after_a_restart_and_still_add_up():
    books = Ledger(1, GAP_S)
    for at in (0.0, 5.0):
        enter(books, at, sweep(GpuUse.SERVING, [8.0], hour=2.0), FleetGpus(16.0, 32.0))
    after = restarted(books)
    enter(after, 605.0, sweep(GpuUse.SERVING, [8.0], hour=2.0), FleetGpus(16.0, 32.0))
    assert after.fleet_kept.since == 0.0
    assert after.fleet_kept.gpu_seconds == 16.0 * 605
    assert after.kept.gpu_seconds[0, HELD].sum() + after.fleet_kept.unallocated == 16.0 * 605
    assert after.kept.cost[0, HELD].sum() == pytest.approx(8 * 605 * 2.0 / HOUR_S)
    assert np.isnan(after.fleet_shown.since) or after.fleet_shown.gpu_seconds == 16.0 * 600


def test_old_checkpoint_without_money_begins_it_at_the_restart():
    books = Ledger(1, GAP_S)
    for at in (0.0, 5.0):
        enter(books, at, sweep(GpuUse.SERVING, [8.0], hour=2.0), FleetGpus(16.0, 32.0))
    new = ("cost", "priced", "at_", "held_apart", "fleet", "day", "hour", "watts", "most")
    old = {name: column for name, column in books.columns().items() if not any(part in name for part in new)}
    after = Ledger(1, GAP_S)
    after.take(old, np.array([0]), np.array([0]))
    assert after.kept.gpu_seconds[0, HELD].sum() == 40.0
    assert np.isnan(after.kept.cost).all()
    enter(after, 10.0, sweep(GpuUse.SERVING, [8.0], hour=2.0), FleetGpus(16.0, 32.0))
    enter(after, 15.0, sweep(GpuUse.SERVING, [8.0], hour=2.0), FleetGpus(16.0, 32.0))
    assert after.kept.cost[0, HELD].sum() == pytest.approx(8 * 5 * 2.0 / HOUR_S)
    assert (after.fleet_kept.since, after.fleet_kept.gpu_seconds) == (10.0, 80.0)


@pytest.mark.parametrize("wrong", [-1.0, 1e18])
def test_impossible_sums_of_nodes_are_not_taken(wrong):
    books = Ledger(1, GAP_S)
    enter(books, 0.0, sweep(GpuUse.SERVING, [8.0], hour=2.0), FleetGpus(16.0, 32.0))
    columns = dict(books.columns())
    columns["accounts.fleet"] = np.full_like(columns["accounts.fleet"], wrong)
    after = Ledger(1, GAP_S)
    after.take(columns, np.array([0]), np.array([0]))
    assert np.isnan(after.fleet_kept.since)

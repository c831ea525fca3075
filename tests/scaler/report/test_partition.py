"""The best partition: equal to brute force, within every limit, and the verdict on slicing."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.report.mig import compositions, find
from scaler.report.partition import MOST_STATES, allowed_speeds, compare, plan
from scaler.report.slice_speed import SliceSpeed

A30, A100 = find("A30"), find("A100-40GB")


def instances_of(model):
    for counts in compositions(model):
        yield [index for index, count in enumerate(counts) for _ in range(count)]


def reference(models, speeds, replicas):
    """The best (placed, throughput) of every partition of every GPU and every assignment of rows to instances."""
    best = (0, 0.0)
    for chosen in product(*(list(instances_of(model)) for model in models)):
        columns = [(model.name, index) for model, indices in zip(models, chosen, strict=True) for index in indices]
        for rows in product(range(-1, len(replicas)), repeat=len(columns)):
            values = [speeds[model][row, index] for row, (model, index) in zip(rows, columns, strict=True) if row >= 0]
            if all(rows.count(row) <= count for row, count in enumerate(replicas)) and not np.isnan(values).any():
                best = max(best, (len(values), sum(values)))
    return best


def table(data, workloads, profiles):
    cells = st.floats(0.01, 1.0) | st.just(float("nan"))
    return np.array(data.draw(st.lists(cells, min_size=workloads * profiles, max_size=workloads * profiles))).reshape(
        workloads, profiles
    )


@settings(max_examples=60, deadline=None)
@given(data=st.data(), gpus=st.integers(1, 2), replicas=st.lists(st.integers(0, 2), min_size=1, max_size=2))
def test_search_is_as_good_as_every_partition_and_assignment(data, gpus, replicas):
    speeds = {A30.name: table(data, len(replicas), len(A30.profiles))}
    found = plan([A30] * gpus, speeds, replicas)
    placed, throughput = reference([A30] * gpus, speeds, replicas)
    assert sum(found.placed) == placed
    assert found.throughput == pytest.approx(throughput)


@settings(max_examples=50, deadline=None)
@given(data=st.data(), replicas=st.lists(st.integers(0, 4), min_size=1, max_size=4), gpus=st.integers(1, 3))
def test_plan_keeps_to_replicas_compositions_and_allowed_profiles(data, replicas, gpus):
    models = [A100, A30, A100][:gpus]
    speeds = {model.name: table(data, len(replicas), len(model.profiles)) for model in (A100, A30)}
    found = plan(models, speeds, replicas)
    rows = [row for gpu in found.gpus for row in gpu.workloads if row is not None]
    assert found.placed == tuple(rows.count(row) for row in range(len(replicas)))
    assert all(count <= most for count, most in zip(found.placed, replicas, strict=True))
    for gpu in found.gpus:
        counts = tuple(gpu.profiles.count(profile) for profile in gpu.model.profiles)
        assert counts in compositions(gpu.model)
        for profile, row in zip(gpu.profiles, gpu.workloads, strict=True):
            assert row is None or not np.isnan(speeds[gpu.model.name][row, gpu.model.profiles.index(profile)])


def test_worked_example_of_the_module():
    nan = float("nan")
    speeds = np.array([[1.0, 0.98, 0.97, 0.85, nan, nan], [1.0, 0.57, 0.51, 0.30, nan, nan]])
    found = plan([A100], {A100.name: speeds}, [1, 1])
    assert [profile.name for profile in found.gpus[0].profiles] == ["4g.20gb", "3g.20gb"]
    assert found.gpus[0].workloads == (1, 0)
    assert found.throughput == pytest.approx(1.54)


def test_weight_moves_the_larger_slice_to_the_dearer_workload():
    speeds = {A100.name: np.tile([1.0, 0.6, 0.4, 0.2, 0.1, 0.1], (2, 1))}
    assert plan([A100], speeds, [1, 1], [1.0, 3.0]).gpus[0].workloads == (1, 0)
    assert plan([A100], speeds, [1, 1], [3.0, 1.0]).gpus[0].workloads == (0, 1)


def test_too_many_states_are_refused_with_the_bound():
    with pytest.raises(ValueError, match=rf"replicas: the product .* at most {MOST_STATES:,}, got 59,049"):
        plan([A100], {A100.name: np.ones((10, 6))}, [2] * 10)


def speed(value, band=0.1):
    return SliceSpeed(value, value - band, value + band, "one slice", measured=True)


def test_replica_runs_only_where_it_fits_and_is_fast_enough_for_sure():
    speeds = [speed(1.0, 0.0), speed(0.9), speed(0.8), speed(0.7), None, speed(0.3)]
    nan = float("nan")
    fits = allowed_speeds(A100, speeds, 8e9, least_speed=0.65)
    assert fits.tolist() == pytest.approx([1.0, 0.9, 0.8, nan, nan, nan], nan_ok=True)
    assert allowed_speeds(A100, speeds, 15e9).tolist() == pytest.approx([1.0, 0.9, 0.8, nan, nan, nan], nan_ok=True)
    assert allowed_speeds(A100, speeds, nan).tolist() == pytest.approx([1.0, *[nan] * 5], nan_ok=True)


@pytest.mark.parametrize(("values", "choice"), [
    ([0.9, 0.8], "slice"),  # 1.5 to 1.9
    ([0.6, 0.5], "ambiguous"),  # 0.9 to 1.3
    ([0.3, 0.3], "whole"),  # 0.4 to 0.8
])  # fmt: skip
def test_verdict_needs_the_whole_band_on_one_side_of_one_gpu(values, choice):
    assert compare([speed(value) for value in values]).choice == choice


def test_unknown_speed_leaves_the_verdict_open():
    verdict = compare([speed(0.9), None])
    assert verdict.choice == "ambiguous"
    assert np.isnan([verdict.low, verdict.high]).all()


def test_without_a_slice_that_fits_rarely_busy_replicas_take_turns_if_memory_allows():
    assert compare([], fit=False, together=True, busy=[0.3, 0.3]).choice == "time-slice"
    assert compare([], fit=False, together=True, busy=[0.5, 0.4]).choice == "whole"
    assert compare([], fit=False, together=False, busy=[0.3, 0.3]).choice == "whole"
    assert compare([], fit=False, together=True).choice == "whole"

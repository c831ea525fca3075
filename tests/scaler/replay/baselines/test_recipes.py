"""Common Prometheus queries: what they read, how old it is, and how KEDA and the HPA apply it."""

from __future__ import annotations

import pytest

from scaler.controllers import hpa, keda
from scaler.replay.baselines.keda_and_hpa import (
    DCGM_COLLECTS_S,
    KedaAndHpa,
    Prometheus,
    average,
    gpu_util,
    in_hand,
    kv_used,
    waiting,
    whole,
)
from scaler.replay.columns import DOING, IDLE, PREFILL


def values(scaler, see, reading, until):
    """(second, value) at each poll, with `reading(now)` waiting requests."""
    observation, now = [], 0.0
    while now <= until:
        scaler.hear(see(now, waiting=reading(now)))
        observation.append((now, scaler.value()))
        now += scaler.every_s
    return dict(observation)


def test_gauge_of_an_engine_is_half_a_scrape_old_at_each_sync(see):
    progress = values(Prometheus("q", waiting, 5.0), see, lambda now: now, 60.0)
    assert progress[0.0] is None
    assert {now: progress[now] for now in (15.0, 30.0, 45.0, 60.0)} == {15.0: 7.5, 30.0: 22.5, 45.0: 37.5, 60.0: 52.5}


def test_value_collected_every_30_seconds_is_15_and_30_seconds_old_in_turn(see):
    progress = values(Prometheus("q", waiting, 5.0, DCGM_COLLECTS_S), see, lambda now: now, 120.0)
    ages = [now - progress[now] for now in (30.0, 45.0, 60.0, 75.0, 90.0, 105.0, 120.0)]
    assert ages == [30.0, 15.0, 30.0, 15.0, 30.0, 15.0, 30.0]


def test_queries_include_requests_held_by_the_gateway(see):
    observation = see(0.0, waiting=3.0, running=4.0, held=5.0)
    assert (waiting(observation), in_hand(observation)) == (8.0, 12.0)


def test_gpu_util_is_100_for_any_work_and_0_while_starting(see):
    observation = see(0.0, wanted=4, ready=3)
    observation.world.replica_counts[:, DOING] = IDLE
    observation.world.replica_counts[:2, DOING] = PREFILL
    assert gpu_util(observation) == 50.0
    assert gpu_util(see(0.0, wanted=0)) == 0.0


def test_empty_result_is_zero_as_in_keda(see):
    assert kv_used(see(0.0, wanted=1, ready=0)) == 0.0
    assert kv_used(see(0.0, wanted=1, kv=0.4)) == 0.4


def follow(baseline, see, pages, until, wanted=1):
    """The scale changes, applied at once."""
    changes, now = [], 0.0
    while now <= until:
        replicas = baseline.step(see(now, wanted=wanted, **pages(now)))
        if replicas is not None and replicas != wanted:
            changes.append((now, replicas))
            wanted = replicas
        now += baseline.every_s
    return changes


def chain(read, target, least=1, most=32, metric=average, behavior=None):
    scaler = Prometheus("recipe", read, target)
    return KedaAndHpa(
        scaler,
        keda.ScaledObjectSpec(min_replicas=least, max_replicas=most),
        hpa.HpaSpec(max_replicas=most, behavior=behavior),
        first=max(1, least),
        metric=metric,
    )


def test_hpa_of_keda_doubles_or_reaches_four_each_sync(see):
    changes = follow(chain(waiting, 5.0), see, lambda _: {"waiting": 100.0}, 60.0)
    assert changes == [(15.0, 4), (30.0, 8), (45.0, 16), (60.0, 20)]


def test_zero_follows_the_cooldown_and_a_held_request_ends_it_at_the_next_poll(see):
    baseline = chain(in_hand, 5.0, least=0)
    changes = follow(
        baseline, see, lambda now: {"held" if now > 600.0 else "running": float(now < 70 or now > 605)}, 700.0
    )
    # Scraped at 67.5 for the last time, polled active at 60; cooled down after 360, polled next at 390. A request at
    # 605 is scraped at 607.5 and polled at 630.
    assert changes == [(390.0, 0), (630.0, 1)]


def test_value_metric_is_multiplied_by_the_ready_pods(see):
    changes = follow(chain(kv_used, 0.5, metric=whole), see, lambda _: {"kv": 0.9}, 45.0)
    assert changes == [(15.0, 2), (30.0, 4), (45.0, 8)]


@pytest.mark.parametrize("kv", [0.46, 0.5, 0.54])
def test_value_within_the_tolerance_changes_nothing(see, kv):
    assert follow(chain(kv_used, 0.5, metric=whole), see, lambda _: {"kv": kv}, 120.0, wanted=3) == []

"""Some pods do not answer: at first nothing falls, then they are assumed to be like the others."""

import pytest

from scaler.policy.columns import Signal, Spec

NAN = float("nan")


@pytest.fixture
def fleet(workload):
    """16 requests per replica, 0 to 8 replicas; after a minute missing pods are imputed; held for five."""
    return workload(Spec(0, 8, ((Signal.WORK, 16.0),), keep_warm=300.0, hold=300.0, impute_after=60.0, gateway=True))


def partial(fresh, fresh_pods, of, **columns):
    return {**fresh(pods=of, **columns), "pods_fresh": fresh_pods}


def test_missing_pods_lower_nothing_at_first(fleet, fresh, reason):
    fleet.step(**fresh(running=60, pods=4))  # 60/16 = 3.75, so 4
    assert fleet.step(after=1, **partial(fresh, 3, 4, running=10)) == (4, True, reason.HELD)
    assert fleet.step(after=59, **partial(fresh, 3, 4, running=10)) == (4, True, reason.HELD)


def test_missing_pods_are_imputed_after_a_bound(fleet, fresh, reason):
    fleet.step(**fresh(running=60, pods=4))
    fleet.step(after=1, **partial(fresh, 3, 4, running=18))
    # 18 in 3 of 4 pods are 24 in all: 24/16 = 1.5, so 2.
    assert fleet.step(after=60, **partial(fresh, 3, 4, running=18, work=24.0)) == (2, True, reason.SERVING)
    # For as long as it lasts, past the hold: a fleet on spot nodes always misses a few.
    assert fleet.step(after=600, **partial(fresh, 3, 4, running=18, work=24.0)) == (2, True, reason.SERVING)


def test_higher_demand_raises_at_once(fleet, fresh, reason):
    fleet.step(**fresh(running=20, pods=2))
    assert fleet.step(after=1, **partial(fresh, 1, 2, waiting=90, running=10)) == (7, True, reason.HELD)


def test_less_than_half_of_the_pods_is_not_imputed(fleet, fresh, reason):
    fleet.step(**fresh(running=60, pods=4))
    fleet.step(after=1, **partial(fresh, 1, 4, running=1))
    assert fleet.step(after=61, **partial(fresh, 1, 4, running=1)) == (4, True, reason.HELD)
    assert fleet.step(after=300, **partial(fresh, 1, 4, running=1)) == (None, True, reason.UNKNOWN)


def test_imputed_idleness_is_no_proof(fleet, fresh, reason):
    idle = partial(fresh, 3, 4, work=0.0, wanted=4, ready=4)
    fleet.step(**fresh(pods=4, wanted=4, ready=4))
    fleet.step(after=1, **idle)
    for _ in range(20):
        decision = fleet.step(after=60, **idle)
    assert decision == (1, True, reason.WARM)


def test_pod_that_returns_ends_imputation(fleet, fresh, reason):
    fleet.step(**fresh(running=60, pods=4))
    fleet.step(after=1, **partial(fresh, 3, 4, running=18))
    fleet.step(after=60, **partial(fresh, 3, 4, running=18, work=24.0))
    assert fleet.step(after=1, **fresh(running=60, pods=4)) == (4, True, reason.SERVING)
    # And the bound starts again.
    assert fleet.step(after=1, **partial(fresh, 3, 4, running=1)) == (4, True, reason.HELD)


@pytest.mark.parametrize("missing", [{"gateway_fresh": False}, {"pods_listed": NAN}])
def test_only_pods_are_imputed(fleet, fresh, reason, missing):
    fleet.step(**fresh(running=60, pods=4))
    columns = {**partial(fresh, 3, 4, running=1), **missing}
    fleet.step(after=1, **columns)
    assert fleet.step(after=61, **columns) == (4, True, reason.HELD)


def test_response_that_is_due_is_no_outage(workload, fresh, reason):
    chat = workload(Spec(0, 8, ((Signal.WORK, 16.0),), hold=300.0, settle=5.0, gateway=True))
    chat.step(**fresh(running=20, pods=2))
    # A third pod is ready and has not been scraped yet.
    assert chat.step(after=1, **partial(fresh, 2, 3, running=1)) == (2, True, reason.SERVING)
    assert chat.step(after=4.9, **partial(fresh, 2, 3, running=1)) == (2, True, reason.SERVING)
    assert chat.step(after=0.1, **partial(fresh, 2, 3, running=1)) == (2, True, reason.HELD)


def test_workload_that_sleeps_with_minimum_two_wakes_to_two(workload, fresh, reason):
    # KEDA's minReplicaCount: 2 with idleReplicaCount: 0.
    chat = workload(Spec(2, 8, ((Signal.WORK, 16.0),), sleeps=True, keep_warm=300.0, gateway=True))
    assert chat.step(**fresh(wanted=2, ready=2)) == (2, True, reason.WARM)
    assert chat.step(after=300, **fresh(wanted=2, ready=2)) == (0, False, reason.ASLEEP)
    asleep = fresh(pods=0, wanted=0, ready=0)
    assert chat.step(after=1, **asleep) == (0, False, reason.ASLEEP)
    assert chat.step(after=1, **{**asleep, "held": 1.0}) == (2, True, reason.QUEUED)

"""The fake ScaledJob starts as many Jobs as KEDA's source does."""

import pytest

from tests.fakes.scaled_job import ScaledJobSpec, jobs_started


@pytest.mark.parametrize(
    ("strategy", "number", "running", "pending", "started"),
    [
        ("default", 3, 2, 0, 1),
        ("default", 3, 3, 3, 0),
        ("default", 2, 5, 0, 0),  # no running Job is ended
        ("default", 9, 2, 0, 6),  # at most 8 at a time
        ("accurate", 3, 2, 0, 3),
        ("accurate", 3, 2, 1, 2),
        ("accurate", 7, 2, 1, 6),  # 7 + 2 is above 8, so 8 - 2
    ],
)
def test_strategy_subtracts_the_jobs_that_it_counts(strategy, number, running, pending, started):
    assert jobs_started(ScaledJobSpec(max_replicas=8, strategy=strategy), number, running, pending) == started


@pytest.mark.parametrize("number", [0, None])
def test_empty_queue_and_error_start_no_job(number):
    assert jobs_started(ScaledJobSpec(), number, running=0) == 0


@pytest.mark.parametrize(("number", "running", "started"), [(None, 1, 1), (0, 2, 0), (1, 2, 1), (1, 3, 0)])
def test_minimum_is_kept_and_jobs_for_the_queue_are_added(number, running, started):
    assert jobs_started(ScaledJobSpec(min_replicas=2), number, running) == started

"""How many Jobs KEDA starts, as its source has it."""

import pytest

from tests.fakes.scaled_job import ScaledJobSpec, jobs_started


@pytest.mark.parametrize(
    ("strategy", "number", "running", "pending", "started"),
    [
        ("default", 3, 2, 0, 1),
        ("default", 3, 3, 3, 0),
        ("default", 2, 5, 0, 0),  # none is ended
        ("default", 9, 2, 0, 6),  # at most 8 at a time
        ("accurate", 3, 2, 0, 3),
        ("accurate", 3, 2, 1, 2),
        ("accurate", 7, 2, 1, 6),  # 7 + 2 is above 8, so 8 - 2
    ],
)
def test_a_strategy_takes_off_what_it_counts(strategy, number, running, pending, started):
    assert jobs_started(ScaledJobSpec(max_replicas=8, strategy=strategy), number, running, pending) == started


@pytest.mark.parametrize("number", [0, None])
def test_nothing_to_do_and_an_error_start_none(number):
    assert jobs_started(ScaledJobSpec(), number, running=0) == 0


@pytest.mark.parametrize(("number", "running", "started"), [(None, 1, 1), (0, 2, 0), (1, 2, 1), (1, 3, 0)])
def test_a_minimum_is_kept_and_work_comes_on_top(number, running, started):
    assert jobs_started(ScaledJobSpec(min_replicas=2), number, running) == started

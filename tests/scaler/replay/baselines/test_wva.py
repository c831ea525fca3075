"""WVA's own scenarios (internal/saturation/analyzer_test.go): thresholds 0.8 and 5, triggers 0.1 and 3."""

from __future__ import annotations

import numpy as np
import pytest

from scaler.replay.baselines.wva import Wva, WvaSpec, WvaVerdict, analyse, target
from scaler.replay.columns import DRAINING, PHASE, QUEUED
from scaler.replay.metric_pages import EXISTING, WANTED

MORE = WvaVerdict(more=True, less_is_safe=False)
LESS = WvaVerdict(more=False, less_is_safe=True)
STAY = WvaVerdict(more=False, less_is_safe=False)


@pytest.mark.parametrize(
    ("peaks", "more", "less_is_safe"),
    [
        ([(0.75, 2), (0.76, 2)], True, False),  # low KV spare
        ([(0.50, 3), (0.50, 3)], True, False),  # low queue spare
        ([(0.50, 1), (0.50, 1)], False, False),  # healthy, but 1.0 on one would be too much
        ([(0.20, 1), (0.30, 1), (0.25, 1)], False, True),  # adequate headroom
        ([(0.70, 2), (0.75, 2)], True, False),
        ([(0.50, 2)], False, False),  # only one non-saturated replica
        ([(0.85, 2), (0.50, 6), (0.90, 7)], True, False),  # all saturated: nothing to spare
    ],
)
def test_table_of_saturation_equals_that_of_wva(peaks, more, less_is_safe):
    assert WvaVerdict(more, less_is_safe) == analyse(WvaSpec(), np.array(peaks, dtype=float))


def test_saturated_replicas_do_not_count_in_the_average():
    # Only pod-3 is free, with 0.2 and 3 to spare.
    assert analyse(WvaSpec(), np.array([(0.85, 2.0), (0.5, 6.0), (0.6, 2.0)])) == STAY


def test_verdict_without_replicas_is_to_stay():
    assert analyse(WvaSpec(), np.zeros((0, 2))) == STAY


@pytest.mark.parametrize(
    ("verdict", "reporting", "replicas", "wanted", "expected"),
    [
        (MORE, 2, 2, 2, 3),
        (LESS, 2, 2, 2, 1),
        (LESS, 1, 1, 1, 1),
        (STAY, 2, 2, 0, 2),
        (MORE, 2, 3, 3, 3),  # one starts: frozen
        (LESS, 3, 2, 2, 2),  # a removed one is still in the response: frozen
        (MORE, 2, 2, 3, 3),  # decided, and not yet applied
        (MORE, 0, 2, 2, 2),
    ],
)
def test_one_more_or_one_less_and_nothing_in_transition(verdict, reporting, replicas, wanted, expected):
    assert expected == target(verdict, reporting, replicas, wanted)


def quarter_hours(spec, see, replicas, waiting):
    """Replicas after each minute of a quarter of an hour; pods are ready at once."""
    wva, observation = Wva("wva", spec), []
    for quarter in range(60):
        view = see(15.0 * quarter, wanted=replicas)
        view.world.replica_counts[:replicas, QUEUED] = waiting
        replicas = wva.step(view)
        if quarter % 4 == 3:
            observation.append(replicas)
    return observation


def test_tolerance_of_the_hpa_stops_it_at_ten(see):
    assert quarter_hours(WvaSpec(), see, 8, waiting=9)[-1] == 10
    assert quarter_hours(WvaSpec(tolerance=0.0), see, 8, waiting=9)[-1] > 10


def test_draining_replica_still_reports_and_freezes_the_rest(see):
    # Two are wanted and have a queue; the third, which drains, is the third in the response of that minute.
    spec, replicas = WvaSpec(), {}
    for draining in (0, 1):
        wva = Wva("wva", spec)
        for quarter in range(6):
            view = see(15.0 * quarter, wanted=2 + draining)
            view.pages[[WANTED, EXISTING]] = 2, 2 + draining
            view.world.replica_counts[:2, QUEUED] = 9
            view.world.replica_counts[2:, PHASE] = DRAINING
            replicas[draining] = wva.step(view)
    assert replicas == {0: 3, 1: 2}

"""Tests which policy of a replay is said to have won, and why the others did not."""

from __future__ import annotations

import numpy as np
import pytest

from scaler.replay.comparison import Causes, Compared, causes, sentences
from scaler.replay.run import Order, Replayed
from scaler.replay.servers import ReplaySlo

START_S = 75.0
SLO = ReplaySlo(1.0, 0.0, 10.0, 0.0)


@pytest.fixture
def played(load, profile):
    """`played("one", late=[90.0])`: an hour of requests, of which those at these seconds are late."""

    def make(label, *, late=(), of=1000, orders=(), first=0, gpu_hours=1.0):
        at = np.sort(np.concatenate([np.linspace(0.0, 3600.0, of - len(late)), np.asarray(late, dtype=float)]))
        waits = np.where(np.isin(at, late), 5.0, 0.5)
        times = np.stack([at, at + waits, at + waits + 1.0], axis=1)
        requests, server = load([(each, 10, 10) for each in at]), profile(start_s=START_S, slo=SLO)
        course = Replayed(requests, server, label, times, 3600.0 * gpu_hours, first, tuple(orders), np.zeros((1, 6)), 0)
        return Compared(label, course)

    return make


def test_late_request_has_the_cause_of_the_moment_when_it_arrived(played):
    # The example of the module, later by ten minutes: the first five are not judged.
    one = played("one", late=[690.0, 750.0, 950.0, 1100.0], orders=[Order(700.0, 0, 1), Order(900.0, 1, 2)])
    shares = causes(one.course)
    judged = sum(one.course.load.at >= 300.0)
    assert shares == Causes(0.0, 2 / judged, 1 / judged, 1 / judged)


def test_start_that_is_over_is_no_cause(played):
    orders = [Order(700.0, 0, 1), Order(900.0, 1, 2)]
    at_its_end = played("one", late=[700.0 + START_S, 900.0 + START_S], orders=orders)
    before = played("one", late=[699.0 + START_S, 899.0 + START_S], orders=orders)
    assert causes(at_its_end.course)[:2] == (0.0, 0.0)
    assert causes(before.course).too_few == 0.0


def test_policy_without_an_order_had_too_few_from_the_begin(played):
    shares = causes(played("static", late=[500.0], first=2).course)
    assert shares.too_few > 0.0 == shares.cold_start == shares.starting


def test_cheapest_of_those_that_met_the_slo_won(played):
    said = sentences(
        [
            played("dear", gpu_hours=4.0),
            played("cheap", gpu_hours=2.0),
            played("late", late=np.linspace(500.0, 3000.0, 40), first=1, gpu_hours=0.5),
        ],
        0.25,
        gpu_hour=3.0,
    )
    assert said[0] == (
        "cheap won: of those that met the SLO it cost least, 2.0 GPU-hours, or 6.00 at 3 for a GPU-hour."
    )
    assert said[1] == (
        "dear met it for 2.00 times as much, 6.00 more: full batches would have filled 6 % of its replicas, and 12 % "
        "of the winner's."
    )
    assert said[2].startswith("late missed the SLO: 4.")
    assert said[2].endswith("% with too few ordered.")
    assert "cold" not in said[2]


def test_where_all_missed_the_slo_no_policy_won(played):
    many, more = np.linspace(500.0, 3000.0, 40), np.linspace(500.0, 3000.0, 80)
    said = sentences([played("one", late=more, first=1), played("two", late=many, first=1)], 0.25, gpu_hour=2.5)
    assert said[0].startswith("No policy met the SLO. two came closest, with 95.")
    assert [line.split()[0] for line in said[1:]] == ["one", "two"]
    assert "won" not in " ".join(said)


def test_one_policy_alone_is_compared_with_nothing(played):
    assert sentences([played("one")], 0.25, gpu_hour=2.5) == []
    assert sentences([], 0.25, gpu_hour=2.5) == []

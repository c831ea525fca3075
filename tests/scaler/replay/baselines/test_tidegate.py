"""Tests that Tidegate in the replay learns as the daemon does: from idle times and start-up times."""

import numpy as np
import pytest

from scaler.replay.columns import Trace
from scaler.replay.policies import parse
from scaler.replay.run import run, score
from scaler.replay.servers import PROFILES

HOUR = 3600.0


def each(minutes, count):
    """One request per interval, repeated."""
    at = 600.0 + 60.0 * minutes * np.arange(count)
    return Trace(f"each {minutes} min", at, np.full(count, 500), np.full(count, 50))


def scored(load, policy):
    return score(run(load, PROFILES["A"], parse(policy).baseline()))


def test_request_every_51_minutes_is_expected_after_it_is_learned():
    load = each(51, 30)
    learned, constant = scored(load, "tidegate"), scored(load, "tidegate:keep-warm=300")

    # Ten idle times are needed before the keep-warm time is chosen by them.
    assert constant.cold_starts >= 29
    assert learned.cold_starts <= 14
    # Asleep for 45 of 51 minutes: a third of a replica that never sleeps.
    assert learned.gpu_hours < 0.45 * load.at[-1] / HOUR


@pytest.mark.parametrize("policy", ["tidegate", "tidegate:keep-warm=300"])
def test_request_every_two_minutes_never_finds_the_workload_asleep(policy):
    assert scored(each(2, 100), policy).cold_starts <= 1


@pytest.mark.parametrize("foresight_s", [75, 150])
def test_replicas_for_a_rise_are_ordered_that_much_earlier_with_foresight(foresight_s):
    # A request each second, and ten each second from second 1800 on.
    at = np.sort(np.concatenate([np.arange(0.0, 3600.0), np.arange(1800.0, 3600.0, 1 / 9)]))
    load = Trace("rise", at, np.full(len(at), 1000), np.full(len(at), 200))

    def first_rise_s(policy):
        orders = run(load, PROFILES["A"], parse(policy).baseline()).orders
        return next(order.at for order in orders if order.after > order.before and order.at > 1200.0)

    early = first_rise_s("tidegate") - first_rise_s(f"tidegate:foresight={foresight_s}")
    assert early == pytest.approx(foresight_s, abs=15.0)  # a sync of the HPA

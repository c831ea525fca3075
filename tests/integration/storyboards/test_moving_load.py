"""Load that moves between pods is counted once: the decision never exceeds the demand of the requests in hand."""

from itertools import pairwise

import pytest

from scaler.controllers import keda

from .gate import CONSTANT
from .stage import Stage

KEDA = keda.ScaledObjectSpec(min_replicas=0, max_replicas=50, polling_interval_s=10.0, cooldown_s=30.0)


def staged(work, seed, **model):
    """A workload of at most 50 replicas with `work` requests per replica."""
    config = CONSTANT.replace("max: 8", "max: 50") + f"    objectives: {{work: {work}}}\n"
    return Stage(config, model={"slots": work, **model}, gate={"seed": seed}, keda=KEDA)


def add_clients(stage, count, service_s):
    """Clients, each of which sends its next request when the last one is answered."""
    finish = stage.model._finish

    def finish_and_ask(pod, request):
        finish(pod, request)
        if request.answered_at == stage.clock.now:
            stage.model.ask(service_s)

    stage.model._finish = finish_and_ask
    for number in range(count):
        stage.model.ask_at(stage.clock.now + service_s * number / count, service_s)


def highest(stage, since_s=0.0):
    """The highest decision later than that many seconds after the start."""
    steps = [*stage.answers, (stage.clock.now - stage.begin, *stage.answers[-1][1:])]
    return max(before[1] or 0 for before, after in pairwise(steps) if after[0] >= since_s)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_scale_out_from_1_to_8_does_not_overshoot(seed):
    # 120 requests in hand at 16 each: 7.5, so 8.
    stage = staged(16, seed, wanted=1, start_s=20.0)
    stage.run(60.0)
    add_clients(stage, 120, service_s=3.0)
    stage.run(180.0)

    assert len(stage.model.pods) == 8
    assert highest(stage) == 8


def roll_out(stage, every_s):
    """Replace every pod: start one more than wanted, then end the oldest (maxSurge 1, maxUnavailable 0)."""
    for number in range(stage.model.wanted):

        def surge():
            stage.model._make_pod()
            stage.model.changed()

        def shrink():
            oldest = min((pod for pod in stage.model.pods if pod.ready), key=lambda pod: pod.created_at)
            stage.model._let_go(oldest)
            stage.model.changed()

        stage.clock.after(number * every_s, surge)
        stage.clock.after((number + 1) * every_s, shrink)


@pytest.mark.parametrize("seed", [1, 2])
def test_rollout_of_40_replicas_stays_at_40(seed):
    # 158 requests in hand at 4 each: 39.5, so 40.
    stage = staged(4, seed, wanted=40, start_s=5.0)
    stage.run(10.0)
    add_clients(stage, 158, service_s=5.0)
    stage.run(60.0)
    roll_out(stage, every_s=7.0)
    stage.run(40 * 7.0 + 60.0)

    assert highest(stage) == 40

"""A request that arrives around the moment of sleep: at every tenth of a second between the decision and the end of the
last pod.
"""

from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.budget import examples

from .gate import CHAT
from .stage import Stage

CONFIG = CHAT + "    keep_warm: 15s\n"
FIRST_S, START_S = 5.0, 20.0

tenths = st.integers(-10, 10).map(lambda tenth: tenth / 10)


def played(seed, polls_at, *, push=True):
    """At zero; one request wakes the workload and is answered; no further requests."""
    stage = Stage(CONFIG, model={"start_s": START_S}, gate={"seed": seed}, push=push, poll_first_s=polls_at)
    stage.ask_at(FIRST_S, service_s=1.0)
    return stage


@cache
def moments(seed, polls_at):
    """Seconds until the decision to sleep, until KEDA's order to zero, and until the end of the last pod."""
    stage = played(seed, polls_at)
    stage.run(30.0)
    while stage.answer()[1]:
        stage.run(0.1)
    asleep = stage.clock.now - stage.begin
    while stage.model.wanted:
        stage.run(0.1)
    ordered = stage.clock.now - stage.begin
    while stage.model.pods:
        stage.run(0.1)
    return asleep, ordered, stage.clock.now - stage.begin


phases = {"seed": st.integers(1, 3), "polls_at": st.sampled_from([0.5, 3.0, 5.5, 8.0])}


def outcome(stage, request_at):
    stage.run_to(request_at + 90.0)
    (_, second) = stage.model.requests
    return stage.score().harm, second.answered_at is not None


@given(
    **phases, moment=st.integers(0, 2), offset=tenths, service_s=st.sampled_from([0.2, 2.0, 30.0]), push=st.booleans()
)
@settings(max_examples=examples(15))
def test_request_within_a_second_of_the_decision_the_order_or_the_end_of_the_last_pod_is_answered(
    seed, polls_at, moment, offset, service_s, push
):
    request_at = moments(seed, polls_at)[moment] + offset
    stage = played(seed, polls_at, push=push)
    stage.ask_at(request_at, service_s)

    assert outcome(stage, request_at) == ((0, 0, 0), True)


@given(**phases, part=st.floats(0.0, 1.0), service_s=st.sampled_from([0.2, 2.0, 30.0]), push=st.booleans())
@settings(max_examples=examples(10))
def test_request_between_the_decision_and_kedas_order_is_answered(seed, polls_at, part, service_s, push):
    asleep, ordered, _ = moments(seed, polls_at)
    request_at = asleep + part * (ordered - asleep)
    stage = played(seed, polls_at, push=push)
    stage.ask_at(request_at, service_s)

    assert outcome(stage, request_at) == ((0, 0, 0), True)


@given(**phases, after=st.integers(0, 80).map(lambda tenth: tenth / 10), push=st.booleans())
@settings(max_examples=examples(10))
def test_request_while_the_last_pod_drains_is_answered_by_the_next(seed, polls_at, after, push):
    # A request shortly before the order, not yet scraped, runs for 12 s; another one arrives meanwhile.
    _, ordered, _ = moments(seed, polls_at)
    stage = played(seed, polls_at, push=push)
    stage.ask_at(ordered - 0.15, service_s=12.0)
    stage.ask_at(ordered + after, service_s=1.0)
    stage.run_to(ordered + after + 90.0)

    assert stage.score().harm == (0, 0, 0)
    assert all(request.answered_at is not None for request in stage.model.requests)

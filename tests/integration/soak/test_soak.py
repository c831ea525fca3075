"""A simulated week with faults: every answer is lawful, and nothing grows.

`make test` plays the hour of the nightly batch; `make soak DAYS=7` plays a week in five minutes and prints its numbers.
"""

import logging
import os

import pytest
import structlog

from exporter.model import Failure
from tests.integration.storyboards.clockwork import HOUR_S, MONDAY

from .faults import FAULTS
from .process import Answer
from .simulated_time import run
from .soak import Soak, soak

DAYS = float(os.environ.get("TIDEGATE_SOAK_DAYS", "7"))
SEED = int(os.environ.get("TIDEGATE_SOAK_SEED", "1"))
MIB = 2**20


@pytest.fixture(autouse=True)
def quiet():
    """A week of faults logs a hundred thousand lines."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)


def test_hour_with_faults_has_lawful_answers_only():
    report = run(soak(days=1.0 / 24.0, seed=10, begin=MONDAY + HOUR_S))
    assert report.unlawful == []
    assert report.failures == 0
    assert report.requests > 300
    assert report.answers["active"] > 3000
    assert {"kill", "reload", "follow", "garbage"} <= set(report.events), "another seed"


@pytest.fixture
def judged():
    """`judged(before, answer, waiting=…)`: what the judge finds in an answer of a workload at the first second."""

    def judge(before, answer, *, waiting=False, wanted=1, heard=True, calm=False):
        async def play():
            soaked = Soak(1, MONDAY)
            each = soaked.scaled["chat"]
            each.model.scale(wanted)
            each.last = before
            each.disturbed_until = MONDAY - 1.0 if calm else MONDAY + 1.0
            if waiting:
                each.model.ask().at -= HOUR_S
            if heard:
                soaked.read_at[each.gateway.url] = MONDAY
            return list(soaked._judge(each, answer))

        return run(play())

    return judge


ACTIVE, INACTIVE = Answer(2, active=True), Answer(0, active=False)


def test_judge_accepts_lawful_answers(judged):
    assert judged(ACTIVE, INACTIVE) == []
    assert judged(ACTIVE, ACTIVE, waiting=True) == []
    assert judged(ACTIVE, None, heard=False) == []
    assert judged(INACTIVE, INACTIVE, heard=False) == []


def test_judge_finds_every_broken_invariant(judged):
    assert judged(ACTIVE, None, calm=True) == ["an error without a fault"]
    assert judged(ACTIVE, Answer(9, active=True)) == ["out of bounds"]
    assert judged(ACTIVE, Answer(0, active=True)) == ["active and replicas disagree"]
    assert judged(ACTIVE, INACTIVE, waiting=True) == ["zero while busy: 1 requests"]
    (unknown,) = judged(ACTIVE, INACTIVE, heard=False)
    assert unknown.startswith("zero while unknown: ")
    assert judged(INACTIVE, INACTIVE, waiting=True, calm=True) == ["asleep while 1 requests wait"]


@pytest.mark.parametrize("kind", FAULTS)
def test_no_fault_is_a_plausible_lie(kind):
    """Each leaves no value that differs from the truth and could be true."""
    from random import Random  # noqa: PLC0415

    text = 'vllm:num_requests_waiting{model_name="m"} 12\nvllm:num_requests_running{model_name="m"} 16\n'
    for seed in range(50):
        body = FAULTS[kind](text, Random(seed))
        lines = [] if isinstance(body, Failure) else body.decode("utf-8", "replace").splitlines()
        whole = [line for line in lines if line.startswith("vllm:") and line.rpartition(" ")[2].isdigit()]
        assert set(whole) <= set(text.splitlines())


@pytest.mark.slow
def test_week_with_faults_has_lawful_answers_and_nothing_grows():
    report = run(soak(days=DAYS, seed=SEED))
    for day in report.days:
        print(day)  # noqa: T201 - what `make soak` is for
    print(report.answers, report.events, f"{report.requests} requests, {report.cpu_s:.0f} s of CPU")  # noqa: T201
    assert report.unlawful == []
    assert report.failures == 0
    if DAYS >= 3.0:
        second, last = report.days[1], report.days[-1]
        assert last.descriptors == second.descriptors
        assert last.tasks <= second.tasks + 4  # a pod more or less at that minute
        assert last.blocks <= 1.02 * second.blocks
        assert last.resident <= second.resident + 4 * MIB
        assert last.checkpoint <= 1.25 * second.checkpoint

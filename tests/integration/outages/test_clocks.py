"""Responses with timestamps of a host with a wrong clock. Pure, on the test's own clock."""

import pytest

from tests.scaler.engine.decider import conftest as deciders

scene, plan, pod = deciders.scene, deciders.plan_fixture, deciders.pod


@pytest.fixture
def stage(scene, plan, pod, page):
    """One engine; a clock that is `ahead_s` seconds ahead of ours stamps its samples."""
    stamped, engine = scene(plan(hold=300.0)), pod()
    stamped.has(pods=[engine])

    def scrape(running, *, ahead_s):
        stamp = round((stamped.now + deciders.INTERVAL_S + ahead_s) * 1000)
        text = page.vllm(waiting=0, running=running)
        return stamped.round({engine: "".join(f"{line} {stamp}\n" for line in text.splitlines())})

    stamped.scrape, stamped.silent = (
        scrape,
        lambda seconds: stamped.rounds(seconds, {engine: None}),
    )
    return stamped


def test_sample_with_a_timestamp_ahead_is_fresh_no_longer_than_any_other(stage):
    assert stage.scrape(40, ahead_s=300.0) == (3, True, "serving")
    assert stage.scrape(20, ahead_s=300.0) == (2, True, "serving")
    assert stage.silent(15.0) == [(2, True, "serving")]
    assert stage.silent(5.0) == [(2, True, "held")]


def test_sample_with_a_timestamp_far_behind_is_held_and_then_an_error(stage):
    assert stage.scrape(40, ahead_s=0.0) == (3, True, "serving")
    answers = [stage.scrape(0, ahead_s=-300.0) for _ in range(61)]
    assert set(answers) == {(3, True, "held")}
    assert stage.scrape(0, ahead_s=-300.0) == (None, True, "unknown")

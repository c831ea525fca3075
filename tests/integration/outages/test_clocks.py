"""A page that says when it was measured, from a host whose clock is another one. Pure, on a clock of the test's own."""

import pytest

from tests.scaler.engine.decider import conftest as deciders

scene, plan, pod = deciders.scene, deciders.plan_fixture, deciders.pod


@pytest.fixture
def stage(scene, plan, pod, page):
    """One engine, whose page is stamped by a clock that is `ahead_s` seconds ahead of ours."""
    made, engine = scene(plan(hold=300.0)), pod()
    made.has(pods=[engine])

    def asked(running, *, ahead_s):
        stamp = round((made.now + deciders.INTERVAL_S + ahead_s) * 1000)
        text = page.vllm(waiting=0, running=running)
        return made.round({engine: "".join(f"{line} {stamp}\n" for line in text.splitlines())})

    made.asked, made.silent = asked, lambda seconds: made.rounds(seconds, {engine: None})
    return made


def test_a_page_stamped_by_a_clock_that_is_ahead_is_believed_no_longer_than_any_other(stage):
    assert stage.asked(40, ahead_s=300.0) == (3, True, "serving")
    assert stage.asked(20, ahead_s=300.0) == (2, True, "serving")
    assert stage.silent(15.0) == [(2, True, "serving")]
    assert stage.silent(5.0) == [(2, True, "held")]


def test_a_page_stamped_by_a_clock_that_is_behind_is_too_old_and_held_and_then_an_error(stage):
    assert stage.asked(40, ahead_s=0.0) == (3, True, "serving")
    answers = [stage.asked(0, ahead_s=-300.0) for _ in range(61)]
    assert set(answers) == {(3, True, "held")}
    assert stage.asked(0, ahead_s=-300.0) == (None, True, "unknown")

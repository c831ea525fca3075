"""What befalls a workload that may go to zero. `told` holds each story to: nothing lost, no wrong sleep or wake.

The marker `slow` (`make test-slow`) is on stories of days and weeks that compare keep-warm times. Of the learned time,
tests/scaler/policy/estimators holds the same: test_keepwarm.py its bound against the rule and against the oracle, a
request each 7 minutes, and nights; test_storyboards.py weeks of office hours.
"""

import pytest

from . import stories
from .table import rows


def since_known(stage):
    """Every reason since the first response: before it, a tick may find that nothing is known."""
    reasons = stage.reasons()
    return reasons[1:] if reasons[0] == "unknown" else reasons


def test_a_model_that_loads_for_ten_minutes_is_not_cut_down_and_serves_who_waited(told):
    stage = told(stories.ten_minutes_of_loading)

    assert since_known(stage) == ["asleep", "queued", "loading", "serving", "warm", "asleep"]
    assert len(stage.judge.wakes) == 1


def test_a_start_whose_client_gave_up_goes_on_for_the_next_one(told):
    stage = told(stories.nobody_waits_any_more)
    first, second = stage.model.requests

    assert first.gave_up
    # The start begun for the first one is over 51 s after the second one asks.
    assert 50.0 < second.answered_at - second.at - second.service_s < 53.0
    assert len(stage.judge.wakes) == 1


def test_a_start_that_never_ends_costs_no_more_than_its_lease(told):
    stage = told(stories.a_start_that_hangs)

    # 1800 s of lease, 300 s of keep-warm, up to 40 s until KEDA follows.
    assert 2100.0 < stage.score().replica_hours * 3600.0 < 2150.0
    assert stage.answer() == (0, False, "asleep")


def test_a_restart_of_dcgm_exporter_does_not_put_a_batch_job_to_sleep(told):
    stage = told(stories.exporter_restarts)
    job_ends_s, asleep_s = 42 * 60.0, next(at for at, replicas, *_ in stage.answers if replicas == 0)

    assert asleep_s > job_ends_s + 300.0
    assert stage.answer() == (0, False, "asleep")


def test_an_outage_overnight_changes_nothing_for_a_workload_that_is_awake(told):
    stage = told(stories.blind_and_awake)

    assert "held" in stage.reasons()
    assert "unknown" in stage.reasons()[1:]
    assert stage.score().worst_wait_s < 80.0  # one start, of the first hour at most


def test_an_outage_overnight_wakes_nobody(told):
    stage = told(stories.blind_and_asleep)

    assert since_known(stage)[:3] == ["asleep", "held", "asleep"]
    assert len(stage.judge.wakes) == 1  # who asked when it was over


def test_who_would_rather_pay_than_be_blind_is_answered_at_night(told):
    stage = told(stories.blind_and_woken)
    (request,) = stage.model.requests

    assert request.answered_at - request.at == request.service_s
    assert stage.answer() == (0, False, "asleep")


def test_a_daemon_killed_in_a_burst_pulls_nothing_down(told):
    stage = told(stories.killed_in_a_burst)

    assert max(replicas or 0 for _, replicas, *_ in stage.answers) == 8
    assert len(stage.judge.wakes) == 1


def test_a_daemon_killed_in_a_burst_answers_from_its_snapshot_as_before(told):
    stage = told(stories.killed_in_a_burst_and_restored)

    assert since_known(stage) == ["asleep", "queued", "loading", "capped", "serving", "warm", "asleep"]


def test_a_daemon_killed_at_zero_wakes_nobody_and_hears_who_asked_meanwhile(told):
    stage = told(stories.killed_at_zero)

    assert len(stage.judge.wakes) == 1
    assert stage.score().worst_wait_s < 120.0


def test_a_daemon_killed_at_zero_answers_from_its_snapshot_as_before(told):
    stage = told(stories.killed_at_zero_and_restored)

    assert since_known(stage) == ["asleep", "queued", "loading", "serving", "warm", "asleep"]


@pytest.mark.slow
def test_a_constant_that_is_shorter_than_every_pause_pays_for_both(told):
    stage = told(stories.every_seven_minutes)

    assert len(stage.judge.wakes) > 100


@pytest.mark.slow
def test_a_learned_keep_warm_time_does_not_cost_more_than_the_constant(told):
    assert told(stories.every_seven_minutes_learned).score().paid <= stories.every_seven_minutes().score().paid


def test_a_nightly_batch_wakes_once_a_night(told):
    stage = told(stories.nightly_batch)

    assert len(stage.judge.wakes) == len(stage.judge.sleeps) == 7


@pytest.mark.slow
def test_a_nightly_batch_is_not_kept_warm_for_a_day(told):
    assert told(stories.nightly_batch_learned).score().idle_hours < 14 * 2.0


@pytest.mark.slow
def test_office_hours_end_at_night(told):
    stage = told(stories.office_hours)

    assert stage.score().replica_hours < 5 * 10.0


@pytest.mark.slow
def test_learned_office_hours_end_at_night_too(told):
    stage = told(stories.office_hours_learned)

    assert stage.score().regret <= 2.0


def test_what_a_schedule_wakes_is_warm_when_the_first_one_asks_and_sleeps_when_it_ends(told):
    stage = told(stories.scheduled_morning)
    (request,) = stage.model.requests

    assert request.answered_at - request.at == request.service_s
    assert len(stage.judge.wakes) == len(stage.judge.sleeps) == 1
    assert "scheduled" in stage.reasons()


def test_health_probes_keep_nobody_awake_and_wake_nobody(told):
    stage = told(stories.probed_all_night)

    assert len(stage.judge.sleeps) == 2  # after each of the two requests
    # From minute 10 on: 30 rises, one per scrape of 15 s; 5 minutes of keep-warm; up to 40 s of KEDA.
    assert 22 * 60.0 < stage.judge.sleeps[0] - stage.begin < 24 * 60.0


def test_without_a_waker_what_is_found_at_zero_stays_and_what_a_person_started_does_not_sleep_again(told):
    stage = told(stories.found_at_zero)

    assert stage.answers[0][1:] == (0, False, "no_wake_source")
    assert stage.judge.sleeps == []
    assert stage.answer() == (1, True, "no_wake_source")


def test_without_a_waker_what_is_found_awake_does_not_sleep(told):
    stage = told(stories.found_awake)

    assert stage.judge.sleeps == []
    assert stage.answer() == (1, True, "no_wake_source")


def test_no_room_for_two_hours_and_who_waits_is_not_given_up(told):
    stage = told(stories.stock_out)

    assert len(stage.judge.wakes) == 1
    assert all(request.answered_at is not None for request in stage.model.requests)


def test_no_room_for_two_hours_and_nobody_waits_the_start_is_given_up_and_begun_again_for_the_next(told):
    stage = told(stories.stock_out_without_patience)

    assert [round(at - stage.begin) // 600 for at in stage.judge.wakes] == [6, 15]
    assert stage.model.requests[1].answered_at is not None


def test_the_guide_shows_every_story_and_no_other():
    names = {line.split(" | ")[0].removeprefix("| ") for line in rows()[2:]}

    assert names == set(stories.STORIES)

"""Scenarios of a workload that may scale to zero. `play` asserts: no lost request, no wrong sleep, no wrong wake.

The marker `slow` (`make test-slow`) is on scenarios of days and weeks that compare keep-warm times. For the learned
time tests/scaler/policy/estimators has the same: test_keepwarm.py its bound against the rule and the oracle, a request
every 7 minutes, and nights; test_storyboards.py days of office hours.
"""

import pytest

from . import scenarios
from .table import rows


def reasons_since_first_response(stage):
    """Every reason since the first response: before it, a tick may find the workload unknown."""
    reasons = stage.reasons()
    return reasons[1:] if reasons[0] == "unknown" else reasons


def test_model_that_loads_for_ten_minutes_is_kept_and_serves_the_waiting_requests(play):
    stage = play(scenarios.ten_minutes_of_loading)

    assert reasons_since_first_response(stage) == ["asleep", "queued", "loading", "serving", "warm", "asleep"]
    assert len(stage.judge.wakes) == 1


def test_start_goes_on_for_the_next_request_after_its_client_gave_up(play):
    stage = play(scenarios.client_gives_up)
    first, second = stage.model.requests

    assert first.gave_up
    # The start for the first request ends 51 s after the second request arrives.
    assert 50.0 < second.answered_at - second.at - second.service_s < 53.0
    assert len(stage.judge.wakes) == 1


def test_start_that_never_ends_costs_no_more_than_its_grace(play):
    stage = play(scenarios.a_start_that_hangs)

    # 1800 s of start-up grace, 300 s of keep-warm, up to 40 s until KEDA follows.
    assert 2100.0 < stage.score().replica_hours * 3600.0 < 2150.0
    assert stage.answer() == (0, False, "asleep")


def test_restart_of_dcgm_exporter_does_not_put_a_batch_job_to_sleep(play):
    stage = play(scenarios.exporter_restarts)
    job_ends_s, asleep_s = 42 * 60.0, next(at for at, replicas, *_ in stage.answers if replicas == 0)

    assert asleep_s > job_ends_s + 300.0
    assert stage.answer() == (0, False, "asleep")


def test_outage_of_hours_changes_nothing_for_an_awake_workload(play):
    stage = play(scenarios.blind_and_awake)

    assert "held" in stage.reasons()
    assert "unknown" in stage.reasons()[1:]
    assert stage.score().worst_wait_s < 80.0  # one start, of the first hour at most


def test_outage_of_hours_wakes_no_workload(play):
    stage = play(scenarios.blind_and_asleep)

    assert reasons_since_first_response(stage)[:3] == ["asleep", "held", "asleep"]
    assert len(stage.judge.wakes) == 1  # the first request after the outage


def test_on_blind_wake_serves_a_request_during_an_outage(play):
    stage = play(scenarios.blind_and_woken)
    (request,) = stage.model.requests

    assert request.answered_at - request.at == request.service_s
    assert stage.answer() == (0, False, "asleep")


def test_daemon_killed_in_a_burst_scales_nothing_down(play):
    stage = play(scenarios.killed_in_a_burst)

    assert max(replicas or 0 for _, replicas, *_ in stage.answers) == 8
    assert len(stage.judge.wakes) == 1


def test_daemon_killed_in_a_burst_decides_from_its_checkpoint_as_before(play):
    stage = play(scenarios.killed_in_a_burst_and_restored)

    assert reasons_since_first_response(stage) == ["asleep", "queued", "loading", "capped", "serving", "warm", "asleep"]


def test_daemon_killed_at_zero_wakes_only_for_the_request_that_came_meanwhile(play):
    stage = play(scenarios.killed_at_zero)

    assert len(stage.judge.wakes) == 1
    assert stage.score().worst_wait_s < 120.0


def test_daemon_killed_at_zero_decides_from_its_checkpoint_as_before(play):
    stage = play(scenarios.killed_at_zero_and_restored)

    assert reasons_since_first_response(stage) == ["asleep", "queued", "loading", "serving", "warm", "asleep"]


@pytest.mark.slow
def test_constant_shorter_than_every_pause_pays_for_both(play):
    stage = play(scenarios.every_seven_minutes)

    assert len(stage.judge.wakes) > 100


@pytest.mark.slow
def test_learned_keep_warm_time_costs_no_more_than_the_constant(play):
    assert play(scenarios.every_seven_minutes_learned).score().paid <= scenarios.every_seven_minutes().score().paid


def test_nightly_batch_wakes_once_a_night(play):
    stage = play(scenarios.nightly_batch)

    assert len(stage.judge.wakes) == len(stage.judge.sleeps) == 7


@pytest.mark.slow
def test_nightly_batch_is_not_kept_warm_for_a_day(play):
    assert play(scenarios.nightly_batch_learned).score().idle_hours < 14 * 2.0


@pytest.mark.slow
def test_office_hours_end_at_night(play):
    stage = play(scenarios.office_hours)

    assert stage.score().replica_hours < 5 * 10.0


@pytest.mark.slow
def test_learned_office_hours_end_at_night_too(play):
    stage = play(scenarios.office_hours_learned)

    assert stage.score().regret <= 2.0


def test_scheduled_workload_is_warm_for_the_first_request_and_sleeps_afterwards(play):
    stage = play(scenarios.scheduled_morning)
    (request,) = stage.model.requests

    assert request.answered_at - request.at == request.service_s
    assert len(stage.judge.wakes) == len(stage.judge.sleeps) == 1
    assert "scheduled" in stage.reasons()


def test_health_probes_keep_no_workload_awake_and_wake_none(play):
    stage = play(scenarios.probed_all_night)

    assert len(stage.judge.sleeps) == 2  # after each of the two requests
    # From minute 10 on: 30 rises, one per scrape of 15 s; 5 minutes of keep-warm; up to 40 s of KEDA.
    assert 22 * 60.0 < stage.judge.sleeps[0] - stage.begin < 24 * 60.0


def test_workload_without_wake_source_stays_at_zero_and_once_started_by_hand_does_not_sleep(play):
    stage = play(scenarios.found_at_zero)

    assert stage.answers[0][1:] == (0, False, "no_wake_source")
    assert stage.judge.sleeps == []
    assert stage.answer() == (1, True, "no_wake_source")


def test_awake_workload_without_wake_source_does_not_sleep(play):
    stage = play(scenarios.found_awake)

    assert stage.judge.sleeps == []
    assert stage.answer() == (1, True, "no_wake_source")


def test_start_without_room_for_two_hours_is_not_given_up_while_a_request_waits(play):
    stage = play(scenarios.stock_out)

    assert len(stage.judge.wakes) == 1
    assert all(request.answered_at is not None for request in stage.model.requests)


def test_start_without_room_is_given_up_without_waiting_requests_and_repeated_for_the_next(play):
    stage = play(scenarios.stock_out_without_patience)

    assert [round(at - stage.begin) // 600 for at in stage.judge.wakes] == [6, 15]
    assert stage.model.requests[1].answered_at is not None


def test_document_has_every_scenario_and_no_other():
    names = {line.split(" | ")[0].removeprefix("| ") for line in rows()[2:]}

    assert names == set(scenarios.SCENARIOS)

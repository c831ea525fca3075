"""Whose replicas are Jobs, and what their words are by default."""

import pytest

from exporter.kubernetes.objects import Ref
from exporter.model import WorkloadKey
from scaler.config import Smoothing
from scaler.policy.columns import Signal
from scaler.workloads import targets
from tests.scaler.workloads.objects import configured, scaled, trigger

TUNE = WorkloadKey("ai", "tune")


def plan(place, census, key=TUNE):
    made = targets.plans(place.config, census.workloads, jobs=census.jobs)
    return next(each for each in made if each.workload == key)


def scaled_job(**words):
    return scaled("tune", trigger(engine="vllm", gateway="front", **words), kind="ScaledJob", maximum=7)


def test_nothing_that_is_not_written_keeps_the_number_of_a_scaled_job_up(cluster):
    place = cluster()
    made = plan(place, place.take(scaled_job()))
    spec = made.spec
    assert (spec.jobs, spec.keep_warm, spec.band, spec.lease_max, spec.young) == (True, 0.0, 0.0, 0.0, 0.0)
    assert (made.smoothing.up_s, made.smoothing.down_s, made.teaching.learns) == (0.0, 0.0, False)
    assert dict(spec.targets) == {Signal.WORK: 16.0}
    assert (spec.minimum, spec.maximum, spec.sleeps) == (0, 7, True)


def test_each_word_that_is_written_holds_and_the_others_are_as_jobs_need_them(cluster):
    place = cluster()
    written = {"keep_warm": "auto", "smoothing__down": "30s", "objectives__kv_cache": "0.8", "lease_max": "5m"}
    made = plan(place, place.take(scaled_job(**written, scale_down_band="0.1")))
    spec = made.spec
    assert (spec.keep_warm, spec.band, spec.lease_max, made.teaching.learns) == (300.0, 0.1, 300.0, True)
    assert (made.smoothing.up_s, made.smoothing.down_s) == (0.0, 30.0)
    assert dict(spec.targets) == {Signal.WORK: 16.0, Signal.KV_CACHE: 0.8}


def test_a_deployment_of_the_same_words_has_the_defaults_of_the_configuration(cluster):
    place = cluster()
    made = plan(place, place.take(scaled("tune", trigger(engine="vllm", gateway="front"))))
    assert (made.spec.jobs, made.spec.keep_warm, made.spec.band, made.spec.lease_max) == (False, 300.0, 0.2, 1800.0)
    assert (made.smoothing.up_s, made.smoothing.down_s, made.teaching.learns) == (5.0, 60.0, True)


def test_a_workload_of_the_configuration_that_a_scaled_job_names_is_one_of_jobs_too(cluster):
    place = cluster(configured("tune", smoothing=Smoothing(down=20.0)))
    census = place.take(scaled("nightly", trigger(workload="tune"), kind="ScaledJob"))
    assert census.targets == {TUNE: Ref("ai", "ScaledJob", "nightly")}
    made = plan(place, census)
    assert (made.spec.jobs, made.spec.keep_warm, made.smoothing.up_s, made.smoothing.down_s) == (True, 0.0, 0.0, 20.0)
    assert plan(place, place.take()).spec.jobs is False


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("keep_warm", "5m"),
        ("keep_warm", "auto"),
        ("lease_max", "5m"),
        ("smoothing__down", "30s"),
        ("scale_down_band", "0.2"),
        ("objectives__kv_cache", "0.9"),
        ("on_blind", "wake"),
        ("schedules", "0 8 * * 1-5 for 10h in Europe/Berlin floor 2"),
    ],
)
def test_a_word_that_starts_idle_jobs_is_said_of_a_scaled_job_and_of_nothing_else(cluster, word, value):
    place = cluster()

    def said(*objects):
        return [error.key for error in place.take(*objects).object_errors if "with nothing to do" in error.message]

    assert said(scaled_job(**{word: value})) == [f"spec.triggers.0.metadata.{word.replace('__', '.')}"]
    assert said(scaled("tune", trigger(engine="vllm", gateway="front", **{word: value}))) == []


@pytest.mark.parametrize(
    ("word", "value"),
    [("smoothing__down", "0"), ("scale_down_band", "0"), ("objectives__kv_cache", "null"), ("smoothing__up", "0")],
)
def test_a_word_that_says_what_jobs_have_anyhow_is_no_trouble(cluster, word, value):
    assert cluster().take(scaled_job(**{word: value})).object_errors == ()


def test_without_a_waker_it_is_said_that_no_job_is_started(cluster):
    (error,) = cluster().take(scaled("tune", trigger(engine="vllm"), kind="ScaledJob")).object_errors
    assert error.key == "spec.triggers.0.metadata.gateway"
    assert error.message.startswith("nothing shows work while no Job runs, so none is started (reason no_wake_source)")

"""Tests workloads whose replicas are Jobs, and their defaults."""

import pytest

from exporter.kubernetes.objects import Ref
from exporter.model import WorkloadKey
from scaler.config import Smoothing
from scaler.policy.columns import Signal
from scaler.workloads import targets
from tests.scaler.workloads.objects import configured, scaled, trigger

TUNE = WorkloadKey("ai", "tune")


def plan(scene, registry, key=TUNE):
    result = targets.Plans(scene.config).take(registry.workloads, jobs=registry.jobs)
    return next(each for each in result if each.workload == key)


def scaled_job(**keys):
    return scaled("tune", trigger(engine="vllm", gateway="front", **keys), kind="ScaledJob", maximum=7)


def test_defaults_of_a_scaled_job_keep_no_job_running(cluster):
    scene = cluster()
    result = plan(scene, scene.take(scaled_job()))
    spec = result.spec
    assert (spec.jobs, spec.keep_warm, spec.band, spec.lease_max, spec.young) == (True, 0.0, 0.0, 0.0, 0.0)
    assert (result.smoothing.up_s, result.smoothing.down_s, result.teaching.learns) == (0.0, 0.0, False)
    assert dict(spec.targets) == {Signal.WORK: 16.0}
    assert (spec.minimum, spec.maximum, spec.sleeps) == (0, 7, True)


def test_given_keys_apply_and_the_rest_has_the_defaults_of_jobs(cluster):
    scene = cluster()
    written = {"keep_warm": "auto", "smoothing__down": "30s", "objectives__kv_cache": "0.8", "lease_max": "5m"}
    result = plan(scene, scene.take(scaled_job(**written, scale_down_band="0.1")))
    spec = result.spec
    assert (spec.keep_warm, spec.band, spec.lease_max, result.teaching.learns) == (300.0, 0.1, 300.0, True)
    assert (result.smoothing.up_s, result.smoothing.down_s) == (0.0, 30.0)
    assert dict(spec.targets) == {Signal.WORK: 16.0, Signal.KV_CACHE: 0.8}


def test_deployment_with_the_same_keys_has_the_defaults_of_the_configuration(cluster):
    scene = cluster()
    result = plan(scene, scene.take(scaled("tune", trigger(engine="vllm", gateway="front"))))
    assert (result.spec.jobs, result.spec.keep_warm, result.spec.band, result.spec.lease_max) == (
        False,
        300.0,
        0.2,
        1800.0,
    )
    assert (result.smoothing.up_s, result.smoothing.down_s, result.teaching.learns) == (5.0, 60.0, True)


def test_configured_workload_of_a_scaled_job_has_the_defaults_of_jobs(cluster):
    scene = cluster(configured("tune", smoothing=Smoothing(down=20.0)))
    registry = scene.take(scaled("nightly", trigger(workload="tune"), kind="ScaledJob"))
    assert registry.targets == {TUNE: Ref("ai", "ScaledJob", "nightly")}
    result = plan(scene, registry)
    assert (result.spec.jobs, result.spec.keep_warm, result.smoothing.up_s, result.smoothing.down_s) == (
        True,
        0.0,
        0.0,
        20.0,
    )
    assert plan(scene, scene.take()).spec.jobs is False


@pytest.mark.parametrize(
    ("key", "value"),
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
def test_key_that_starts_idle_jobs_is_reported_for_a_scaled_job_only(cluster, key, value):
    scene = cluster()

    def warnings(*objects):
        return [error.key for error in scene.take(*objects).object_errors if "with nothing to do" in error.message]

    assert warnings(scaled_job(**{key: value})) == [f"spec.triggers.0.metadata.{key.replace('__', '.')}"]
    assert warnings(scaled("tune", trigger(engine="vllm", gateway="front", **{key: value}))) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [("smoothing__down", "0"), ("scale_down_band", "0"), ("objectives__kv_cache", "null"), ("smoothing__up", "0")],
)
def test_key_with_the_default_of_jobs_is_no_error(cluster, key, value):
    assert cluster().take(scaled_job(**{key: value})).object_errors == ()


def test_scaled_job_without_a_wake_source_is_reported(cluster):
    (error,) = cluster().take(scaled("tune", trigger(engine="vllm"), kind="ScaledJob")).object_errors
    assert error.key == "spec.triggers.0.metadata.gateway"
    assert error.message.startswith("nothing shows work while no Job runs, so none is started (reason no_wake_source)")

"""Tests warnings about KEDA's own keys that prevent scaling to zero, before a manifest is applied."""

import pytest

from tests.fakes.manifests import check_manifests

_TEXT = """\
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {{namespace: ai, name: chat, annotations: {{{annotations}}}}}
spec:
  scaleTargetRef: {{name: chat}}
  minReplicaCount: {minimum}
  cooldownPeriod: 30
  {more}
  triggers:
    - {{type: external-push, metadata: {{scalerAddress: "tidegate:6000", engine: vllm, gateway: epp}}}}
    {beside}
"""
_BETTER = 'tidegate.dev/brake: "freeze until ..." holds it and ends by itself'
_KEEPS = "and it does not engage while Tidegate is unreachable: without it KEDA keeps the replicas"


def _check(annotations="", minimum=0, more="", beside="", now=None):
    text = _TEXT.format(annotations=annotations, minimum=minimum, more=more, beside=beside)
    return [str(problem).removeprefix("m.yaml:") for problem in check_manifests(text, "m.yaml", None, now).problems]


def test_manifest_without_traps_has_no_problem():
    assert _check() == []


@pytest.mark.parametrize(("minimum", "replicas", "expected"), [
    (0, 1, "wakes a workload at zero when Tidegate has no value"),
    (0, 0, "scales to zero when Tidegate has no value, also under load"),
    (1, 4, "sets the replicas regardless of load when Tidegate has no value"),
])  # fmt: skip
def test_fallback_is_reported_with_its_effect(minimum, replicas, expected):
    lines = _check(minimum=minimum, more=f"fallback: {{replicas: {replicas}, failureThreshold: 3}}")
    assert lines == [f"8:3: warning TG004: spec.fallback: {expected}, {_KEEPS}"]


@pytest.mark.parametrize(("key", "minimum", "expected"), [
    ("paused", 0, "removes the HPA; unpaused after its cooldownPeriod, it scales to zero at once"),
    ("paused", 1, "removes the HPA, and nothing scales until it is unpaused"),
    ("paused-replicas", 0, ("sets that many replicas at once, without Tidegate; unpaused after its "
     "cooldownPeriod, it scales to zero at once")),
    ("paused-replicas", 1, "sets that many replicas at once, without Tidegate"),
    ("paused-scale-in", 0, "has no end, and prevents scaling to zero"),
    ("paused-scale-out", 0, "prevents waking, even with requests waiting"),
])  # fmt: skip
def test_pause_annotation_is_reported_with_its_effect_and_an_alternative(key, minimum, expected):
    (line,) = _check(f'autoscaling.keda.sh/{key}: "true"', minimum)
    assert line == f"3:53: warning TG005: metadata.annotations.autoscaling.keda.sh/{key}: {expected}: {_BETTER}"


def test_pause_annotation_with_false_is_not_reported():
    assert _check('autoscaling.keda.sh/paused: "false"') == []


def test_cron_trigger_beside_ours_is_reported():
    (line,) = _check(beside="- {type: cron, metadata: {timezone: UTC, start: 0 8 * * *, end: 0 9 * * *}}")
    assert line.startswith("11:8: warning TG025: spec.triggers.1.type: holds replicas that Tidegate does not know")


def test_schedule_of_a_trigger_is_checked_like_one_of_the_configuration():
    text = _TEXT.replace("gateway: epp", 'gateway: epp, schedules: "0 8 * * 1 for 1h floor 200"')
    (problem,) = check_manifests(text.format(annotations="", minimum=0, more="", beside=""), "m", None).problems
    assert str(problem) == (
        "m:10:111: warning TG084: spec.triggers.0.metadata.schedules: is above replicas.max (100), which takes "
        "precedence, got '200'"
    )


_EIGHT = 1795420800.0  # 2026-11-23T08:00Z


@pytest.mark.parametrize(("brake", "now", "expected"), [
    ('"freeze until 2026-11-23T08:00Z"', _EIGHT - 1, []),
    ('"freeze until 2026-11-23T08:00Z"', None, []),
    ('"freeze until 2026-11-23T08:00Z"', _EIGHT,
     [("3:53: warning TG082: metadata.annotations.tidegate.dev/brake: ended at 2026-11-23T08:00Z and has no effect")]),
    ("freeze", _EIGHT, [("3:53: warning TG081: metadata.annotations.tidegate.dev/brake: has no end: it holds "
     "until it is removed; add `until` and a time")]),
    ("[freeze]", None, ["3:53: metadata.annotations.tidegate.dev/brake: must be a string, not a mapping or list"]),
])  # fmt: skip
def test_brake_is_checked_before_it_is_applied(brake, now, expected):
    assert _check(f"tidegate.dev/brake: {brake}", now=now) == expected


def test_unreadable_brake_is_reported_with_its_effect():
    (line,) = _check('tidegate.dev/brake: "freeze 2h"')
    assert line.startswith("3:73: metadata.annotations.tidegate.dev/brake: must be freeze, never_down or floor N")
    assert line.endswith("Until then it counts as never_down, got 'freeze 2h'")


@pytest.mark.parametrize(("kind", "expected"), [
    ("Deployment", []),
    ("DaemonSet", [("m.yaml:3:35: warning TG080: metadata.annotations.tidegate.dev/brake: is not read here: it "
     "is read on "
                   "ScaledObject, ScaledJob, Deployment, StatefulSet, LeaderWorkerSet, Rollout")]),
])  # fmt: skip
def test_brake_alone_makes_no_workload_and_is_read_on_scalable_kinds(kind, expected):
    text = (
        f"apiVersion: apps/v1\nkind: {kind}\n"
        "metadata: {name: a, annotations: {tidegate.dev/brake: never_down until 2026-11-23T08:00Z}}\n"
    )
    assert [str(problem) for problem in check_manifests(text, "m.yaml", None).problems] == expected

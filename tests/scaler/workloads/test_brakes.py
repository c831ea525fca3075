"""Tests the brakes in `tidegate.dev/brake` annotations of the cluster's objects."""

import pytest

from exporter.kubernetes.objects import Ref
from exporter.model import WorkloadKey
from scaler.config import Schedule
from scaler.policy.overrides import Brake, BrakeWord, WorkloadOverrides, read_brake, unreadable
from scaler.workloads import ordered
from tests.scaler.workloads.objects import configured, deployment, errors, names, scaled, trigger

CHAT = WorkloadKey("ai", "chat")
FREEZE = "freeze until 2026-11-23T08:00Z because of the sale"


def warned(registry):
    return [str(problem) for problem in registry.object_errors if problem.severity == "warning"]


def frozen(source):
    return read_brake(FREEZE, source)


def test_brake_on_a_scaled_object_applies_to_all_of_its_triggers(cluster):
    both = trigger(engine="vllm"), trigger(engine="sglang", name="decode")
    registry = cluster().take(scaled("chat", *both, annotations={"brake": FREEZE}))
    assert registry.brakes == {
        CHAT: (frozen("ai/ScaledObject/chat"),),
        WorkloadKey("ai", "chat", "decode"): (frozen("ai/ScaledObject/chat"),),
    }
    assert errors(registry) == []


def test_brake_on_a_scale_target_applies_to_every_kind_of_workload(cluster):
    braked = deployment(brake=FREEZE)
    by_trigger = cluster().take(scaled("chat", trigger(engine="vllm")), braked)
    by_configuration = cluster(configured("chat")).take(scaled("chat", trigger(workload="chat")), braked)
    by_annotation = cluster().take(deployment(engine="vllm", replicas__min="1", brake=FREEZE))
    for registry in (by_trigger, by_configuration, by_annotation):
        assert registry.brakes == {CHAT: (frozen("ai/Deployment/chat"),)}
        assert (names(registry), errors(registry)) == (["ai/chat"], [])


def test_brake_alone_makes_no_workload(cluster):
    registry = cluster().take(deployment(brake=FREEZE))
    assert (registry.workloads, registry.brakes, errors(registry)) == ((), {}, [])
    assert warned(registry) == [
        "ai/Deployment/chat: warning: tidegate.dev/brake: stops nothing: no workload of Tidegate's is scaled by it"
    ]


def test_unreadable_brake_is_an_error_and_never_scales_down(cluster):
    registry = cluster().take(scaled("chat", trigger(engine="vllm")), deployment(brake="freeze 2h"))
    assert registry.brakes == {CHAT: (unreadable("ai/Deployment/chat"),)}
    assert names(registry) == ["ai/chat"]
    (line,) = errors(registry)
    assert line.startswith("ai/Deployment/chat: tidegate.dev/brake: must be freeze, never_down or floor N")
    assert line.endswith("Until then it counts as never_down, got 'freeze 2h'")


def test_brakes_on_both_objects_are_read(cluster):
    registry = cluster().take(
        scaled("chat", trigger(engine="vllm"), annotations={"brake": "floor 2"}), deployment(brake="never_down")
    )
    assert [str(brake) for brake in registry.brakes[CHAT]] == [
        "never_down (ai/Deployment/chat)", "floor 2 (ai/ScaledObject/chat)",
    ]  # fmt: skip


@pytest.mark.parametrize("kubernetes", [{"annotations": False}, {}])
def test_brake_is_read_if_annotations_make_no_workload(cluster, kubernetes):
    registry = cluster(kubernetes=kubernetes).take(scaled("chat", trigger(engine="vllm")), deployment(brake=FREEZE))
    assert registry.brakes == {CHAT: (frozen("ai/Deployment/chat"),)}


def test_brake_of_another_namespace_has_no_effect(cluster):
    registry = cluster().take(scaled("chat", trigger(engine="vllm")), deployment(namespace="other", brake=FREEZE))
    assert registry.brakes == {}


def test_misspelt_brake_on_a_scaled_object_is_an_error(cluster):
    registry = cluster().take(scaled("chat", trigger(engine="vllm"), annotations={"brakes": FREEZE, "engine": "vllm"}))
    assert errors(registry) == ["ai/ScaledObject/chat: tidegate.dev/brakes: stops nothing; did you mean brake?"]


def test_misspelt_brake_on_a_deployment_is_an_error_with_a_suggestion(cluster):
    registry = cluster().take(deployment(brke=FREEZE))
    assert errors(registry)[0] == "ai/Deployment/chat: tidegate.dev/brke: unknown key; did you mean brake?"


def test_overrides_of_the_configuration_and_the_cluster_are_combined(cluster):
    schedule = Schedule(start="0 8 * * *", duration=3600.0, floor=2)
    workload = configured("chat", brake=Brake(BrakeWord.FLOOR, 3), schedules=(schedule,))
    registry = cluster(workload).take(
        scaled("chat", trigger(workload="chat"), annotations={"brake": FREEZE}),
        scaled("b", trigger(engine="vllm", schedules="0 8 * * * for 1h floor 2"), target=Ref("ai", "Deployment", "b")),
    )
    assert names(registry) == ["ai/chat", "ai/b"]
    assert ordered(registry) == [
        WorkloadOverrides((frozen("ai/ScaledObject/chat"), Brake(BrakeWord.FLOOR, 3)), (schedule.order,)),
        WorkloadOverrides((), (schedule.order,)),
    ]


def test_unreadable_schedule_is_an_error_of_its_trigger(cluster):
    registry = cluster().take(scaled("chat", trigger(engine="vllm", schedules="0 25 * * * for 1h floor 2")))
    assert registry.workloads == ()
    (line,) = errors(registry)
    assert line.startswith("ai/ScaledObject/chat: spec.triggers.0.metadata.schedules: must be five cron fields")

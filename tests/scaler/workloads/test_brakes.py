"""What `tidegate.dev/brake` on the cluster's objects stops."""

import pytest

from exporter.kubernetes.objects import Ref
from exporter.model import WorkloadKey
from scaler.config import Schedule
from scaler.policy.overrides import Brake, BrakeWord, WorkloadOverrides, read_brake, unreadable
from scaler.workloads import ordered
from tests.scaler.workloads.objects import configured, deployment, names, said, scaled, trigger

CHAT = WorkloadKey("ai", "chat")
FREEZE = "freeze until 2026-11-23T08:00Z because of the sale"


def warned(census):
    return [str(trouble) for trouble in census.object_errors if trouble.severity == "warning"]


def frozen(source):
    return read_brake(FREEZE, source)


def test_a_brake_on_a_scaled_object_stops_what_its_triggers_make(cluster):
    both = trigger(engine="vllm"), trigger(engine="sglang", name="decode")
    census = cluster().take(scaled("chat", *both, annotations={"brake": FREEZE}))
    assert census.brakes == {
        CHAT: (frozen("ai/ScaledObject/chat"),),
        WorkloadKey("ai", "chat", "decode"): (frozen("ai/ScaledObject/chat"),),
    }
    assert said(census) == []


def test_a_brake_on_what_is_scaled_stops_it_whoever_speaks_for_it(cluster):
    braked = deployment(brake=FREEZE)
    by_trigger = cluster().take(scaled("chat", trigger(engine="vllm")), braked)
    by_configuration = cluster(configured("chat")).take(scaled("chat", trigger(workload="chat")), braked)
    by_annotation = cluster().take(deployment(engine="vllm", replicas__min="1", brake=FREEZE))
    for census in (by_trigger, by_configuration, by_annotation):
        assert census.brakes == {CHAT: (frozen("ai/Deployment/chat"),)}
        assert (names(census), said(census)) == (["ai/chat"], [])


def test_a_brake_alone_makes_no_workload(cluster):
    census = cluster().take(deployment(brake=FREEZE))
    assert (census.workloads, census.brakes, said(census)) == ((), {}, [])
    assert warned(census) == [
        "ai/Deployment/chat: warning: tidegate.dev/brake: stops nothing: no workload of Tidegate's is scaled by it"
    ]


def test_a_brake_that_cannot_be_read_is_its_objects_trouble_and_never_scales_down(cluster):
    census = cluster().take(scaled("chat", trigger(engine="vllm")), deployment(brake="freeze 2h"))
    assert census.brakes == {CHAT: (unreadable("ai/Deployment/chat"),)}
    assert names(census) == ["ai/chat"]
    (line,) = said(census)
    assert line.startswith("ai/Deployment/chat: tidegate.dev/brake: must be freeze, never_down or floor N")
    assert line.endswith("Until then it counts as never_down, got 'freeze 2h'")


def test_brakes_on_both_objects_are_both_read(cluster):
    census = cluster().take(
        scaled("chat", trigger(engine="vllm"), annotations={"brake": "floor 2"}), deployment(brake="never_down")
    )
    assert [str(brake) for brake in census.brakes[CHAT]] == [
        "never_down (ai/Deployment/chat)", "floor 2 (ai/ScaledObject/chat)",
    ]  # fmt: skip


@pytest.mark.parametrize("kubernetes", [{"annotations": False}, {}])
def test_a_brake_is_read_also_where_annotations_make_no_workloads(cluster, kubernetes):
    census = cluster(kubernetes=kubernetes).take(scaled("chat", trigger(engine="vllm")), deployment(brake=FREEZE))
    assert census.brakes == {CHAT: (frozen("ai/Deployment/chat"),)}


def test_another_namespaces_brake_stops_nobody_here(cluster):
    census = cluster().take(scaled("chat", trigger(engine="vllm")), deployment(namespace="other", brake=FREEZE))
    assert census.brakes == {}


def test_a_misspelt_brake_on_a_scaled_object_is_not_passed_over(cluster):
    census = cluster().take(scaled("chat", trigger(engine="vllm"), annotations={"brakes": FREEZE, "engine": "vllm"}))
    assert said(census) == ["ai/ScaledObject/chat: tidegate.dev/brakes: stops nothing; did you mean brake?"]


def test_a_misspelt_brake_on_a_deployment_is_told_the_word(cluster):
    census = cluster().take(deployment(brke=FREEZE))
    assert said(census)[0] == "ai/Deployment/chat: tidegate.dev/brke: unknown key; did you mean brake?"


def test_the_configurations_own_orders_stand_beside_those_of_the_cluster(cluster):
    schedule = Schedule(start="0 8 * * *", duration=3600.0, floor=2)
    own = configured("chat", brake=Brake(BrakeWord.FLOOR, 3), schedules=(schedule,))
    census = cluster(own).take(
        scaled("chat", trigger(workload="chat"), annotations={"brake": FREEZE}),
        scaled("b", trigger(engine="vllm", schedules="0 8 * * * for 1h floor 2"), target=Ref("ai", "Deployment", "b")),
    )
    assert names(census) == ["ai/chat", "ai/b"]
    assert ordered(census) == [
        WorkloadOverrides((frozen("ai/ScaledObject/chat"), Brake(BrakeWord.FLOOR, 3)), (schedule.order,)),
        WorkloadOverrides((), (schedule.order,)),
    ]


def test_a_schedule_that_cannot_be_read_is_its_triggers_trouble(cluster):
    census = cluster().take(scaled("chat", trigger(engine="vllm", schedules="0 25 * * * for 1h floor 2")))
    assert census.workloads == ()
    (line,) = said(census)
    assert line.startswith("ai/ScaledObject/chat: spec.triggers.0.metadata.schedules: must be five cron fields")

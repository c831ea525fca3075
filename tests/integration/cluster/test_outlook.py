"""What will become of a number, as the daemon says it of the HPAs and ScaledObjects that its cluster shows."""

import grpc.aio

from exporter.kubernetes.resources import HPAS
from tests.fakes import objects

from .keda import Keda
from .process import running
from .waiting import asked_again

BEHAVIOR = {"scaleUp": {"tolerance": "0"}, "scaleDown": {"stabilizationWindowSeconds": 30, "tolerance": "0"}}
METRIC = {
    "type": "External",
    "external": {"metric": {"name": "s0-tidegate-replicas"}, "target": {"type": "AverageValue", "averageValue": "1"}},
}
FAILED = {"type": "ScalingActive", "status": "False", "reason": "FailedGetExternalMetric", "message": "no such host"}


def hpa(place, **status):
    spec, owner = {"behavior": BEHAVIOR, "metrics": [METRIC]}, ("ScaledObject", "chat")
    return objects.hpa("keda-hpa-chat", place.name, target="chat", maximum=20, owner=owner, spec=spec, status=status)


def outlook(place, code):
    return f'tidegate_controller_outcome{{code="{code}",namespace="{place.name}",workload="chat"}}'


async def test_the_outlook_follows_what_the_hpa_and_the_cluster_say(place, page, tidegate, keda):
    # 80 requests at 16 a replica: 5, where there are 4.
    chat = place.deployment("chat", page.vllm(waiting=0, running=80), pods=1, wanted=4)
    scaled = place.scaled_object("chat", engine="vllm", minimum=1, maximum=20)
    await keda.until((5, True), scaled)
    await tidegate.until_metric(outlook(place, "no_hpa"), 1.0)
    place.put(hpa(place, currentReplicas=4, desiredReplicas=4))
    await tidegate.until_metric(outlook(place, "up"), 1.0)
    assert await tidegate.metric(outlook(place, "no_hpa")) is None

    chat.scale(5)
    place.put(hpa(place, currentReplicas=5, desiredReplicas=5))
    await tidegate.until_metric(outlook(place, "settled"), 1.0)
    desired = f'tidegate_hpa_desired_replicas{{namespace="{place.name}",workload="chat"}}'
    await tidegate.until_metric(desired, 5.0)

    place.put(hpa(place, currentReplicas=5, desiredReplicas=5, conditions=[FAILED]))
    await tidegate.until_metric(outlook(place, "controller_error"), 1.0)
    words = 'reason="FailedGetExternalMetric",status="False",type="ScalingActive",workload="chat"'
    assert await tidegate.metric(f'tidegate_hpa_condition{{namespace="{place.name}",{words}}}') == 1.0


async def test_hpas_that_rbac_hides_cost_nothing_else_and_are_spoken_of_once(new_cluster, page, tmp_path):
    with new_cluster() as cluster:
        cluster.fake.forbid(HPAS)
        config = tmp_path / "config.yaml"
        config.write_text(cluster.config(), encoding="utf-8")
        place = cluster.place("hidden")
        chat = place.deployment("chat", page.vllm(waiting=0, running=80), pods=1, wanted=4)
        scaled = place.scaled_object("chat", engine="vllm", minimum=1, maximum=20)
        with running(config, tmp_path / "log") as tidegate:
            async with grpc.aio.insecure_channel(tidegate.grpc) as channel:
                keda = Keda(channel)
                await keda.until((5, True), scaled)
                # Its HPA is taken to be what KEDA makes of the ScaledObject.
                await tidegate.until_metric(outlook(place, "up"), 1.0)
                assert await tidegate.metric('tidegate_kubernetes_synced{resource="horizontalpodautoscalers"}') == 0.0
                await asked_again(chat.pods[0], 3)
        said = [line for line in (tmp_path / "log").read_text().splitlines() if "horizontalpodautoscalers" in line]
        assert len(said) == 1
        assert 'apiGroups [\\"autoscaling\\"]' in said[0]

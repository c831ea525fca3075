"""The controller outcome for HPAs and ScaledObjects of the cluster."""

import grpc.aio

from exporter.kubernetes.resources import HPAS
from tests.fakes import objects
from tests.fakes.daemon import running
from tests.fakes.keda import Keda
from tests.fakes.waiting import until_scraped

BEHAVIOR = {"scaleUp": {"tolerance": "0"}, "scaleDown": {"stabilizationWindowSeconds": 30, "tolerance": "0"}}
METRIC = {
    "type": "External",
    "external": {"metric": {"name": "s0-tidegate-replicas"}, "target": {"type": "AverageValue", "averageValue": "1"}},
}
FAILED = {"type": "ScalingActive", "status": "False", "reason": "FailedGetExternalMetric", "message": "no such host"}


def hpa(tenant, **status):
    spec, owner = {"behavior": BEHAVIOR, "metrics": [METRIC]}, ("ScaledObject", "chat")
    return objects.hpa("keda-hpa-chat", tenant.name, target="chat", maximum=20, owner=owner, spec=spec, status=status)


def outcome(tenant, code):
    return f'tidegate_controller_outcome{{code="{code}",namespace="{tenant.name}",workload="chat"}}'


async def test_controller_outcome_follows_the_hpa_and_the_cluster(tenant, page, tidegate, keda):
    # 80 requests at 16 per replica: 5, where there are 4.
    chat = tenant.deployment("chat", page.vllm(waiting=0, running=80), pods=1, wanted=4)
    scaled = tenant.scaled_object("chat", engine="vllm", minimum=1, maximum=20)
    await keda.until((5, True), scaled)
    await tidegate.until_metric(outcome(tenant, "no_hpa"), 1.0)
    tenant.put(hpa(tenant, currentReplicas=4, desiredReplicas=4))
    await tidegate.until_metric(outcome(tenant, "up"), 1.0)
    assert await tidegate.metric(outcome(tenant, "no_hpa")) is None

    chat.scale(5)
    tenant.put(hpa(tenant, currentReplicas=5, desiredReplicas=5))
    await tidegate.until_metric(outcome(tenant, "settled"), 1.0)
    desired = f'tidegate_hpa_desired_replicas{{namespace="{tenant.name}",workload="chat"}}'
    await tidegate.until_metric(desired, 5.0)

    tenant.put(hpa(tenant, currentReplicas=5, desiredReplicas=5, conditions=[FAILED]))
    await tidegate.until_metric(outcome(tenant, "controller_error"), 1.0)
    labels = 'reason="FailedGetExternalMetric",status="False",type="ScalingActive",workload="chat"'
    assert await tidegate.metric(f'tidegate_hpa_condition{{namespace="{tenant.name}",{labels}}}') == 1.0


async def test_hpas_hidden_by_rbac_are_logged_once_and_change_nothing_else(new_cluster, page, tmp_path):
    with new_cluster() as cluster:
        cluster.fake.forbid(HPAS)
        config = tmp_path / "config.yaml"
        config.write_text(cluster.config(), encoding="utf-8")
        tenant = cluster.tenant("hidden")
        chat = tenant.deployment("chat", page.vllm(waiting=0, running=80), pods=1, wanted=4)
        scaled = tenant.scaled_object("chat", engine="vllm", minimum=1, maximum=20)
        with running(config, tmp_path / "log") as tidegate:
            async with grpc.aio.insecure_channel(tidegate.grpc) as channel:
                keda = Keda(channel)
                await keda.until((5, True), scaled)
                # The HPA is assumed to be the one that KEDA creates for the ScaledObject.
                await tidegate.until_metric(outcome(tenant, "up"), 1.0)
                assert await tidegate.metric('tidegate_kubernetes_synced{resource="horizontalpodautoscalers"}') == 0.0
                await until_scraped(chat.pods[0], 3)
        lines = [line for line in (tmp_path / "log").read_text().splitlines() if "horizontalpodautoscalers" in line]
        assert len(lines) == 1
        assert 'apiGroups [\\"autoscaling\\"]' in lines[0]

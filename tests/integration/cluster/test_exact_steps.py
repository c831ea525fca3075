"""The number published for a step that the HPA would drop, by the tolerance in the cluster."""

from tests.fakes import objects


async def test_published_step_exceeds_the_tolerance_of_the_hpa(tenant, page, tidegate, keda):
    # 170 requests at 16 per replica: 11, where there are 10.
    chat = tenant.deployment("chat", page.vllm(waiting=0, running=170), pods=1, wanted=10)
    scaled = tenant.scaled_object("chat", engine="vllm", minimum=1, maximum=20)
    await keda.until((12, True), scaled)
    entry = await tidegate.decision(tenant.name, "chat")
    assert (entry["replicas"], entry["published"]) == (11, 12)
    series = f'{{namespace="{tenant.name}",workload="chat"}}'
    assert await tidegate.metric(f"tidegate_replicas{series}") == 11.0
    assert await tidegate.metric(f"tidegate_published_replicas{series}") == 12.0

    def hpa(tolerance):
        behavior = {"behavior": {"scaleUp": {"tolerance": tolerance}}}
        owner = ("ScaledObject", "chat")
        return objects.hpa("keda-hpa-chat", tenant.name, target="chat", maximum=20, owner=owner, spec=behavior)

    tenant.put(hpa("200m"))
    await keda.until((13, True), scaled)
    tenant.put(hpa("0"))
    await keda.until((11, True), scaled)

    # The reverse: the HPA is deleted, and returns after the step was taken.
    tenant.delete(hpa("0"))
    await keda.until((12, True), scaled)
    chat.scale(12)
    await keda.until((11, True), scaled)

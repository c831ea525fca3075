"""What KEDA hears of a step that its HPA would drop, by the tolerance that the cluster shows."""

from tests.fakes import objects


async def test_a_step_is_told_past_the_tolerance_of_the_hpa_that_is_seen(place, page, tidegate, keda):
    # 170 requests at 16 a replica: 11, where there are 10.
    chat = place.deployment("chat", page.vllm(waiting=0, running=170), pods=1, wanted=10)
    scaled = place.scaled_object("chat", engine="vllm", minimum=1, maximum=20)
    await keda.until((12, True), scaled)
    entry = await tidegate.decision(place.name, "chat")
    assert (entry["replicas"], entry["published"]) == (11, 12)
    series = f'{{namespace="{place.name}",workload="chat"}}'
    assert await tidegate.metric(f"tidegate_replicas{series}") == 11.0
    assert await tidegate.metric(f"tidegate_published_replicas{series}") == 12.0

    def hpa(tolerance):
        behavior = {"behavior": {"scaleUp": {"tolerance": tolerance}}}
        owner = ("ScaledObject", "chat")
        return objects.hpa("keda-hpa-chat", place.name, target="chat", maximum=20, owner=owner, spec=behavior)

    place.put(hpa("200m"))
    await keda.until((13, True), scaled)
    place.put(hpa("0"))
    await keda.until((11, True), scaled)

    # The other way round: its HPA goes, and comes back when the step has been taken.
    place.delete(hpa("0"))
    await keda.until((12, True), scaled)
    chat.scale(12)
    await keda.until((11, True), scaled)

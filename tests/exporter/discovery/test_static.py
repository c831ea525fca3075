"""StaticTargets lists the configured targets."""

from exporter.discovery import Listing
from exporter.discovery.dns import StaticTargets
from exporter.model import Role, Target, WorkloadKey

CHAT = WorkloadKey("ai", "chat")


async def test_configured_targets_are_listed_before_the_first_refresh():
    configured = (Target("http://a/", "vllm", Role.PODS, CHAT), Target("http://b/", "vllm", Role.PODS, CHAT))
    targets = StaticTargets(iter(configured), owner=CHAT)
    assert targets.listing() == Listing(configured)
    await targets.refresh(1e12)
    assert targets.listing() == Listing(configured)
    assert targets.owner == CHAT


def test_empty_configuration_is_an_empty_list():
    assert StaticTargets(()).listing() == Listing(())

"""Targets that are written down."""

from exporter.discovery import Listing
from exporter.discovery.dns import StaticTargets
from exporter.model import Role, Target, WorkloadKey

CHAT = WorkloadKey("ai", "chat")


async def test_what_is_written_down_is_known_before_anybody_looks_and_stays():
    written = (Target("http://a/", "vllm", Role.PODS, CHAT), Target("http://b/", "vllm", Role.PODS, CHAT))
    targets = StaticTargets(iter(written), owner=CHAT)
    assert targets.listing() == Listing(written)
    await targets.refresh(1e12)
    assert targets.listing() == Listing(written)
    assert targets.owner == CHAT


def test_nothing_written_down_is_known_to_be_nothing():
    assert StaticTargets(()).listing() == Listing(())

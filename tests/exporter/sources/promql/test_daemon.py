"""The daemon, where engines can only be seen through somebody's Prometheus."""

import asyncio

import structlog

from exporter.clock import WallClock
from exporter.model import Failure
from scaler.config import parse
from scaler.daemon import Daemon
from scaler.model import Reason

SOON_S = 60.0
CONFIG = """
listen: {{http: "127.0.0.1:0", grpc: "127.0.0.1:0"}}
scrape: {{interval: 1s, timeout: 1s}}
tick: 200ms
freshness: {{hold: 5m}}
workloads:
  - namespace: ai
    name: chat
    engine: vllm
    replicas: {{min: 1, max: 8}}
    smoothing: {{up: 0s, down: 1h}}
    pods: {{prometheus: {{url: "{url}", selector: 'namespace="seen"', max_age: 10s}}}}
"""


async def until(true):
    async with asyncio.timeout(SOON_S):
        while not (found := true()):  # noqa: ASYNC110 - somebody else's state, which tells nobody
            await asyncio.sleep(0.05)
    return found


async def test_what_prometheus_scraped_decides_from_the_first_moment_on_and_its_failures_are_no_zeros(
    prometheus, pages, ask, look, pod, page, chat
):
    pages["seen-0"] = pages["seen-1"] = page.vllm(waiting=0, running=40)
    seen = ask(prometheus, selector='namespace="seen"', max_age_s=10.0)
    await look(seen, lambda found: len(found) == 2 and not any(isinstance(each, Failure) for each in found.values()))
    # Until now 80 ran: 80/16 = 5. From here on 20 do, and half of a fall is believed after an hour.
    pages["seen-0"] = pages["seen-1"] = page.vllm(waiting=0, running=10)
    await look(seen, lambda found: all(b" 10.0 " in each for each in found.values()))
    daemon, stop = Daemon(parse(CONFIG.format(url=prometheus), "config.yaml")[0], WallClock()), asyncio.Event()
    with structlog.testing.capture_logs() as log:
        running = asyncio.create_task(daemon.run(stop))
        try:
            decision = await until(lambda: (found := daemon.publisher.get(chat)) and found.replicas == 5 and found)
            assert (decision.reason, decision.evidence.running) == (Reason.SERVING, 20.0)
            pages["seen-1"] = None
            decision = await until(
                lambda: (found := daemon.publisher.get(chat)).reason is Reason.HELD and found.evidence.stale and found
            )
            assert decision.replicas == 5
            (stale,) = decision.evidence.stale
            assert "pod=seen-1" in stale
        finally:
            stop.set()
            await running
    assert [entry["workload"] for entry in log if entry["event"] == "backfill complete"] == ["ai/chat"]

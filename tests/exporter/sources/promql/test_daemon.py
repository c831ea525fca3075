"""The daemon decides from engines that only a Prometheus scrapes."""

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
    pods: {{prometheus: {{url: "{url}", selector: 'namespace="scraped"', max_age: 10s}}}}
"""


async def until(condition):
    async with asyncio.timeout(SOON_S):
        while not (result := condition()):  # noqa: ASYNC110 - the state has no event to wait for
            await asyncio.sleep(0.05)
    return result


async def test_history_of_prometheus_counts_at_once_and_its_failed_scrapes_are_no_zeros(
    prometheus, pages, ask, look, pod, page, chat
):
    pages["scraped-0"] = pages["scraped-1"] = page.vllm(waiting=0, running=40)
    targets = ask(prometheus, selector='namespace="scraped"', max_age_s=10.0)
    await look(targets, lambda found: len(found) == 2 and not any(isinstance(each, Failure) for each in found.values()))
    # Until now 80 requests ran: 80/16 = 5 replicas. From here on 20 run, and smoothing follows half of a fall per hour.
    pages["scraped-0"] = pages["scraped-1"] = page.vllm(waiting=0, running=10)
    await look(targets, lambda found: all(b" 10.0 " in each for each in found.values()))
    daemon, stop = Daemon(parse(CONFIG.format(url=prometheus), "config.yaml")[0], WallClock()), asyncio.Event()
    with structlog.testing.capture_logs() as log:
        running = asyncio.create_task(daemon.run(stop))
        try:
            decision = await until(lambda: (found := daemon.publisher.get(chat)) and found.replicas == 5 and found)
            assert (decision.reason, decision.evidence.running) == (Reason.SERVING, 20.0)
            pages["scraped-1"] = None
            decision = await until(
                lambda: (found := daemon.publisher.get(chat)).reason is Reason.HELD and found.evidence.stale and found
            )
            assert decision.replicas == 5
            (stale,) = decision.evidence.stale
            assert "pod=scraped-1" in stale
        finally:
            stop.set()
            await running
    assert [entry["workload"] for entry in log if entry["event"] == "backfill complete"] == ["ai/chat"]

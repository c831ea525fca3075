"""A request at the gateway of a workload at zero is noticed long before the next scrape interval."""

import asyncio

from exporter.model import ReplicaCount
from tests.fakes.waiting import until_scraped

SOON_S = 60.0  # the interval is five times as long
CONFIG = """\
scrape: {{interval: 5m, wake_interval: 100ms}}
tick: 0.1s
workloads:
  - {{namespace: ai, name: chat, replicas: {{min: 0, max: 8}}, gateway: {{url: "{chat}", kind: epp}}}}
  - {{namespace: ai, name: night, replicas: {{min: 0, max: 8}}, gateway: {{url: "{night}", kind: epp}}}}
"""


class Replicas:
    """Replica counts in the cluster, by workload name."""

    def __init__(self):
        self.wanted = {"chat": 0, "night": 0}

    def count(self, workload, now):
        wanted = self.wanted[workload.name]
        return ReplicaCount(wanted, wanted, now, existing=wanted)


async def test_gateway_request_wakes_a_workload_long_before_the_next_interval(in_process, targets, epp):
    chat, night = targets["chat"], targets["night"]
    chat.body = night.body = epp(ready=0)
    replicas = Replicas()
    async with in_process(
        CONFIG.format(chat=targets.url("chat"), night=targets.url("night")), replicas=replicas
    ) as ask:
        await ask.until((0, False))
        await ask.until((0, False), "night")
        async with asyncio.timeout(SOON_S):
            stream = ask.stub.StreamIsActive(ask.ref("chat"))
            while (await stream.read()).result:
                pass
            await until_scraped(chat, 10)

            chat.body = epp(queued=1, ready=0)
            assert (await stream.read()).result
            assert await ask.answer() == (1, True)

        # From now on it is scraped at its interval, whereas the other workload is still at zero.
        replicas.wanted["chat"] = 1
        await until_scraped(night, 2)
        before = chat.scrapes
        await until_scraped(night, 20)
        assert chat.scrapes - before <= 1

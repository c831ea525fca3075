"""The real daemon sees a request at a gateway of a workload at zero long before the next round of its scrapes."""

import asyncio

from exporter.model import ReplicaCount

SOON_S = 20.0  # the interval is three times as long
CONFIG = """\
scrape: {{interval: 60s, wake_interval: 100ms}}
tick: 0.1s
workloads:
  - {{namespace: ai, name: chat, replicas: {{min: 0, max: 8}}, gateway: {{url: "{chat}", kind: epp}}}}
  - {{namespace: ai, name: night, replicas: {{min: 0, max: 8}}, gateway: {{url: "{night}", kind: epp}}}}
"""


class Replicas:
    """What the cluster counts, by the name of a workload."""

    def __init__(self):
        self.wanted = {"chat": 0, "night": 0}

    def count(self, workload, now):
        wanted = self.wanted[workload.name]
        return ReplicaCount(wanted, wanted, now, existing=wanted)


async def scraped(page, times):
    before = page.asked
    async with asyncio.timeout(SOON_S):
        while True:
            if page.asked >= before + times:
                return
            await asyncio.sleep(0.02)


async def test_a_request_at_the_gateway_wakes_a_workload_long_before_the_next_interval(in_process, pages, epp):
    chat, night = pages["chat"], pages["night"]
    chat.body = night.body = epp(ready=0)
    replicas = Replicas()
    async with in_process(CONFIG.format(chat=pages.url("chat"), night=pages.url("night")), replicas=replicas) as ask:
        await ask.until((0, False))
        await ask.until((0, False), "night")
        async with asyncio.timeout(SOON_S):
            stream = ask.stub.StreamIsActive(ask.ref("chat"))
            while (await stream.read()).result:
                pass
            await scraped(chat, 10)

            chat.body = epp(queued=1, ready=0)
            assert (await stream.read()).result
            assert await ask.answer() == (1, True)

        # From now on it is scraped in rounds, whereas the other one is still at zero.
        replicas.wanted["chat"] = 1
        await scraped(night, 2)
        before = chat.asked
        await scraped(night, 20)
        assert chat.asked - before <= 1

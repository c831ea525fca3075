"""A gateway that cannot read its pods' metrics shows none as ready: its requests still keep a workload awake."""

from tests.fakes.waiting import until_scraped

CONFIG = """\
scrape: {{interval: 100ms}}
tick: 0.1s
freshness: {{at_start: 0s}}
workloads:
  - namespace: ai
    name: chat
    gateway: {{url: "{url}", kind: epp}}
    replicas: {{min: 0, max: 8}}
    keep_warm: 0.5s
    smoothing: {{up: 0s, down: 0s}}
"""
EPP = """\
llm_d_epp_ready_endpoints{{name="chat"}} 0
llm_d_epp_flow_control_queue_size{{inference_pool="chat",model_name="chat"}} 0
llm_d_epp_request_running{{model_name="chat"}} {running}
"""


async def test_request_through_a_gateway_that_shows_no_ready_pod_keeps_the_workload_awake(in_process, targets):
    front = targets["front"]
    front.body = EPP.format(running=1)
    async with in_process(CONFIG.format(url=targets.url("front"))) as ask:
        await ask.until((1, True))
        await until_scraped(front, 20)  # four keep-warm times
        assert await ask.answer() == (1, True)
        front.body = EPP.format(running=0)
        await ask.until((0, False))

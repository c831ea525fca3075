"""Workloads follow their own requests at a gateway, and no others."""

from tests.fakes.waiting import until_scraped

CONFIG = """\
scrape: {{interval: 100ms}}
tick: 0.1s
freshness: {{at_start: 0s}}
workloads:
  - namespace: ai
    name: chat
    model: chat
    gateway: {{url: "{url}", kind: {kind}}}
    replicas: {{min: 0, max: 8}}
    keep_warm: 0.5s
    smoothing: {{up: 0s, down: 0s}}
"""
EPP = """\
llm_d_epp_ready_endpoints{{name="chat"}} 0
llm_d_epp_flow_control_queue_size{{inference_pool="chat",model_name="chat"}} 0
llm_d_epp_request_running{{model_name="chat"}} {running}
"""
ROUTE = 'interceptor_request_concurrency{{route_name="chat",route_namespace="{}"}} {}\n'


async def test_request_through_a_gateway_that_shows_no_ready_pod_keeps_the_workload_awake(in_process, targets):
    """An endpoint picker shows no pod as ready whose metrics it cannot read."""
    front = targets["front"]
    front.body = EPP.format(running=1)
    async with in_process(CONFIG.format(url=targets.url("front"), kind="epp")) as ask:
        await ask.until((1, True))
        await until_scraped(front, 20)  # four keep-warm times
        assert await ask.answer() == (1, True)
        front.body = EPP.format(running=0)
        await ask.until((0, False))


async def test_route_of_the_same_name_in_another_namespace_neither_wakes_nor_hides_a_workload(in_process, targets):
    front = targets["front"]
    front.body = ROUTE.format("ai", 0)
    async with in_process(CONFIG.format(url=targets.url("front"), kind="http_addon")) as ask:
        await ask.until((0, False))
        front.body = ROUTE.format("ai", 0) + ROUTE.format("test", 5)
        await until_scraped(front, 10)
        assert await ask.answer() == (0, False)
        front.body = ROUTE.format("ai", 1) + ROUTE.format("test", 5)
        await ask.until((1, True))

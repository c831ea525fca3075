"""A stand-in for vLLM with sleep mode, and the gateway in front of it: it answers as they do, and computes nothing.

It is no vLLM: sleep mode needs a GPU. It has the endpoints, their parameters, the states and the series of vLLM 0.17:
while it sleeps, a request is kept and no series shows it; the gateway counts it as open. The responses of its metrics
say `stand_in_for_vllm 1`.

Worked example: `async with serving_vllm() as vllm:` serves `vllm.metrics` and `vllm.gateway`; `vllm.request()` is a
request, which ends at once while the engine is awake; `vllm.calls` are the calls so far, as `["sleep"]`.
"""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web


@dataclass
class Vllm:
    """awake: its state. open, finished: requests. calls: in order, with the level and mode of a sleep.

    behaviour: of calls: "ok", "missing" (404: no sleep mode), "broken" (500), "hang" (no response until `release`).
    authorization: the header of the last call.
    """

    port: int = 0
    awake: bool = True
    open: int = 0
    finished: int = 0
    behaviour: str = "ok"
    calls: list = field(default_factory=list)
    queries: list = field(default_factory=list)
    authorization: str | None = None
    release: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def metrics(self):
        return f"http://127.0.0.1:{self.port}/metrics"

    @property
    def gateway(self):
        return f"http://127.0.0.1:{self.port}/gateway"

    def request(self):
        """A request comes: it waits while the engine sleeps."""
        self.open += 1
        self._serve()

    def _serve(self):
        if self.awake:
            self.finished, self.open = self.finished + self.open, 0

    def wake(self):
        self.awake = True
        self._serve()

    async def get_metrics(self, _request):
        labels = 'model_name="m",engine="0"'
        states = {"awake": self.awake, "weights_offloaded": not self.awake, "discard_all": False}
        lines = [f'vllm:engine_sleep_state{{sleep_state="{name}",{labels}}} {int(on)}' for name, on in states.items()]
        lines += [f"vllm:num_requests_waiting{{{labels}}} 0", f"vllm:num_requests_running{{{labels}}} 0"]
        lines += [f'vllm:request_success_total{{finished_reason="stop",{labels}}} {self.finished}']
        return _text(*lines, "stand_in_for_vllm 1")

    async def get_gateway(self, _request):
        return _text(
            'inference_extension_flow_control_queue_size{fairness_id="",priority="0",inference_pool="p"} 0',
            'inference_pool_ready_pods{name="p"} 1',
            f'inference_objective_running_requests{{model_name="m"}} {self.open}',
        )

    async def post(self, request):
        call = request.path.removeprefix("/")
        self.calls.append(call)
        self.queries.append(request.query_string)
        self.authorization = request.headers.get("Authorization")
        match self.behaviour:
            case "missing":
                return web.Response(status=404)
            case "broken":
                return web.Response(status=500, text="CUDA error")
            case "hang":
                await self.release.wait()
        if call == "sleep":
            self.awake = False
        else:
            self.wake()
        return web.Response()

    async def get_is_sleeping(self, _request):
        return web.json_response({"is_sleeping": not self.awake})


def _text(*lines):
    return web.Response(text="\n".join(lines) + "\n")


@asynccontextmanager
async def serving_vllm(*, has_sleep_mode=True):
    vllm, app = Vllm(), web.Application()
    app.router.add_get("/metrics", vllm.get_metrics)
    app.router.add_get("/gateway", vllm.get_gateway)
    if has_sleep_mode:
        app.router.add_get("/is_sleeping", vllm.get_is_sleeping)
        app.router.add_post("/sleep", vllm.post)
        app.router.add_post("/wake_up", vllm.post)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    vllm.port = runner.addresses[0][1]
    try:
        yield vllm
    finally:
        vllm.release.set()
        await runner.cleanup()

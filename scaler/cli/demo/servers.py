"""Serves the demo's pages over HTTP: one server per ready pod, one per node's dcgm-exporter, one for the gateway.

All listen on 127.0.0.1 on a free port. A loading pod does not listen, so a scrape of it is a refused connection, as
with a real engine.

Worked example:
`curl -d '{"prompt": "Why is the sea salty?", "max_tokens": 64}' http://127.0.0.1:PORT/v1/completions`
takes as long as in the simulated cluster, at zero replicas until one is started.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

from aiohttp import web

from .engine import Completion

MAX_OUTPUT_TOKENS = 4096
MAX_PROMPT_TOKENS = 32_768
_BYTES_PER_TOKEN = 4  # average of English text with common vocabularies
_EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"

Complete = Callable[[int, int], Awaitable[Completion]]


def page_app(page: Callable[[], str]) -> web.Application:
    """Serves one metrics page, rendered on each request."""

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=page().encode(), headers={"Content-Type": _EXPOSITION})

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    return app


def gateway_app(page: Callable[[], str], model: str, complete: Complete) -> web.Application:
    """Serves the gateway's page and OpenAI's completions. complete: (prompt tokens, output tokens) -> Completion."""

    async def completions(request: web.Request) -> web.Response:
        try:
            prompt_tokens, output_tokens = _read_completion(await request.read())
        except ValueError as error:
            problem = {"error": {"message": str(error), "type": "invalid_request_error"}}
            return web.json_response(problem, status=400)
        return web.json_response(_completion(model, await complete(prompt_tokens, output_tokens)))

    app = page_app(page)
    app.router.add_post("/v1/completions", completions)
    return app


async def listen(app: web.Application) -> tuple[web.AppRunner, str]:
    """Serves on a free port of 127.0.0.1; `await runner.cleanup()` stops it."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    return runner, f"http://{host}:{port}"


def _read_completion(body: bytes) -> tuple[int, int]:
    """(prompt tokens, output tokens) of a request body. Raises ValueError."""
    try:
        document = json.loads(body)
    except ValueError as error:
        raise ValueError(f"body: not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ValueError('body: must be an object such as {"prompt": "Hello", "max_tokens": 16}')  # noqa: TRY004
    prompt, output_tokens = document.get("prompt"), document.get("max_tokens", 16)
    if not isinstance(prompt, str) or not prompt:
        raise ValueError("prompt: must be a non-empty string")
    if isinstance(output_tokens, bool) or not isinstance(output_tokens, int):
        raise ValueError(f"max_tokens: must be a whole number, got {output_tokens!r}")  # noqa: TRY004
    if not 1 <= output_tokens <= MAX_OUTPUT_TOKENS:
        raise ValueError(f"max_tokens: must be from 1 to {MAX_OUTPUT_TOKENS}, got {output_tokens}")
    prompt_tokens = -(-len(prompt.encode()) // _BYTES_PER_TOKEN)
    if prompt_tokens > MAX_PROMPT_TOKENS:
        raise ValueError(f"prompt: must be at most {MAX_PROMPT_TOKENS} tokens, got about {prompt_tokens}")
    return prompt_tokens, output_tokens


def _completion(model: str, answer: Completion) -> dict[str, object]:
    request = answer.request
    held_s = answer.submitted_at - request.arrived_at
    first_s = answer.first_token_at - request.arrived_at
    total_s = answer.finished_at - request.arrived_at
    text = (
        f"(simulated: held by the gateway for {held_s:.1f} s, first token after {first_s:.1f} s, "
        f"all {request.output_tokens} tokens after {total_s:.1f} s)"
    )
    return {
        "id": f"cmpl-{request.number}",
        "object": "text_completion",
        "created": int(request.arrived_at),
        "model": model,
        "choices": [{"index": 0, "text": text, "logprobs": None, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": request.prompt_tokens,
            "completion_tokens": request.output_tokens,
            "total_tokens": request.prompt_tokens + request.output_tokens,
        },
    }

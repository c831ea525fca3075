"""Compares what the simulator predicts with a live engine, from a profile fitted from its metrics.

`python benchmarks/calibrate.py [vllm] [--write]`: llama.cpp, or vLLM as `make test-engines` installs it. `--write`
writes benchmarks/CALIBRATION.md or CALIBRATION-VLLM.md.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import aiohttp
import numpy as np
from report import show, table

from exporter.model import Floats
from scaler.cli.demo import llamacpp
from scaler.cli.replay.calibrate import calibrated
from scaler.replay.columns import AT, DONE, FIRST, ReplayWorld
from scaler.replay.engine import advance, scale
from scaler.replay.servers import ServerProfile, parse_profile
from tests.engines import vllm_server

TITLE = "The simulator against a live engine"
ABOUT = """
`tidegate replay --calibrate` reads the metrics of {server}
every 5 s while 1, 2, 3 and 4 clients send requests one after the other, and fits a profile. Then other requests are
sent at random times for a minute, and the same requests are played in the simulator with that profile. TTFT and ITL are
means over requests, measured by the clients; throughput is generated tokens until the last answer. The calibration has
50 to 400 prompt tokens and 50 to 300 generated ones, the measured loads have the sizes in the table.
Repeat with `python benchmarks/{command}`.
"""
HERE = Path(__file__).parent
MODEL = llamacpp.ModelSize(layers=6, width=512, heads=8)
SLOTS, EVERY_S = 4, 5.0
CLIENTS = (1, 2, 3, 4)
# (name, requests per second as a share of what the profile sustains, prompt tokens, generated tokens)
LOADS = (
    ("light", 0.3, (50, 400), (50, 300)),
    ("busy", 0.5, (50, 400), (50, 300)),
    ("long prompts", 0.5, (300, 800), (30, 100)),
    ("long answers", 0.5, (20, 100), (200, 600)),
)
LOAD_S = 60.0


class Engine(NamedTuple):
    """server: what it is. file: of the report. open: serves until the block ends; yields its URL. path, body: of a
    request with so many prompt and generated tokens; the text begins like no other, so no prompt is in a cache.
    """

    server: str
    command: str
    file: str
    open: Callable[[], AbstractContextManager[str]]
    path: str
    body: Callable[[str, int, int], dict[str, Any]]


class Requests(NamedTuple):
    at: Floats
    prompt: Any
    output: Any


class Outcome(NamedTuple):
    """ttft_s, itl_s: means over requests. tokens_per_s: until the last answer."""

    ttft_s: float
    itl_s: float
    tokens_per_s: float


def session_of_clients() -> aiohttp.ClientSession:
    """A connection for each request: llama.cpp closes them after some."""
    return aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=None), connector=aiohttp.TCPConnector(force_close=True, limit=0)
    )


async def send(
    engine: Engine, url: str, session: aiohttp.ClientSession, prompt: int, output: int
) -> tuple[float, float, float]:
    """POSIX seconds of sending, of the first and of the last token."""
    body = engine.body(f"{time.perf_counter_ns()}", prompt, output)
    sent = time.perf_counter()
    async with session.post(f"{url}{engine.path}", json=body) as response:
        response.raise_for_status()
        await response.content.readany()
        first = time.perf_counter()
        await response.read()
    return sent, first, time.perf_counter()


async def closed_loop(engine: Engine, url: str, stop: asyncio.Event) -> None:
    generator = np.random.default_rng(5)
    async with session_of_clients() as session:

        async def client(until: float) -> None:
            while time.monotonic() < until and not stop.is_set():
                await send(engine, url, session, int(generator.integers(50, 400)), int(generator.integers(50, 300)))

        while not stop.is_set():
            for count in CLIENTS:
                await asyncio.gather(*(client(time.monotonic() + EVERY_S * 2) for _ in range(count)))


async def profile_of(engine: Engine, url: str, reads: int) -> tuple[ServerProfile, str]:
    stop = asyncio.Event()
    load = asyncio.create_task(closed_loop(engine, url, stop))
    await asyncio.sleep(1.0)
    text = await asyncio.to_thread(calibrated, [f"{url}/metrics"], reads, EVERY_S)
    stop.set()
    await load
    profile = parse_profile(text, "calibrated")[0]
    return replace(profile, server=profile.server._replace(batch=SLOTS)), text  # vLLM's metrics do not show it


def requests(profile: ServerProfile, share: float, prompts: tuple[int, int], outputs: tuple[int, int]) -> Requests:
    """Poisson arrivals at a share of the rate that all slots sustain."""
    server, generator = profile.server, np.random.default_rng(11)
    prompt, output = sum(prompts) / 2, sum(outputs) / 2
    step = server.step + server.per_sequence * SLOTS + server.per_token * SLOTS * (prompt + output / 2)
    rate = share / (output * step / SLOTS + prompt / server.prompt_rate)
    at = np.cumsum(generator.exponential(1.0 / rate, max(10, int(rate * LOAD_S))))
    return Requests(at, generator.integers(*prompts, len(at)), generator.integers(*outputs, len(at)))


async def measured(engine: Engine, url: str, load: Requests) -> Outcome:
    async with session_of_clients() as session:
        begun = time.perf_counter()

        async def one(at: float, prompt: int, output: int) -> tuple[float, float, float]:
            await asyncio.sleep(begun + at - time.perf_counter())
            return await send(engine, url, session, prompt, output)

        tasks = [one(*each) for each in zip(load.at.tolist(), load.prompt.tolist(), load.output.tolist(), strict=True)]
        times = np.array(await asyncio.gather(*tasks))
    return outcome(times[:, 0], times[:, 1], times[:, 2], load)


def predicted(profile: ServerProfile, load: Requests) -> Outcome:
    world = ReplayWorld.of(load.at, load.prompt, load.output, 1, profile.server.batch)
    scale(world, 1, np.zeros(1))
    advance(world, profile.server, float(load.at[-1]) + 600.0)
    times = world.request_times
    return outcome(times[:, AT], times[:, FIRST], times[:, DONE], load)


def outcome(sent: Floats, first: Floats, last: Floats, load: Requests) -> Outcome:
    itl = (last - first) / np.maximum(load.output - 1, 1)
    return Outcome(
        float((first - sent).mean()), float(itl.mean()), float(load.output.sum() / (last.max() - sent.min()))
    )


@contextmanager
def llama_server() -> Iterator[str]:
    with TemporaryDirectory() as folder:
        model, port = Path(folder) / "random.gguf", llamacpp.free_port()
        llamacpp.write_model(model, MODEL)
        process = llamacpp.start(model, port, llamacpp.ServerOptions(slots=SLOTS))
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


def llama_body(begin: str, prompt: int, output: int) -> dict[str, Any]:
    # The token that begins a text is one of the prompt's.
    text = begin.ljust(prompt - 1, "x")[: prompt - 1]
    return {"prompt": text, "n_predict": output, "ignore_eos": True, "stream": True, "cache_prompt": False}


@contextmanager
def vllm() -> Iterator[str]:
    with TemporaryDirectory() as folder:
        model, port = Path(folder) / "model", llamacpp.free_port()
        vllm_server.write_model(model)
        with vllm_server.serving(model, port, log=Path(folder) / "log", slots=SLOTS) as server:
            yield server.url


def vllm_body(begin: str, prompt: int, output: int) -> dict[str, Any]:
    text = begin[::-1].ljust(prompt, "x")[:prompt]  # the digits that differ come first
    return {
        "prompt": text, "max_tokens": output, "ignore_eos": True, "stream": True, "skip_special_tokens": False,
    }  # fmt: skip


LLAMA = Engine(
    "llama.cpp's own server (a random model of 50 MB, 4 slots, one thread)",
    "calibrate.py", "CALIBRATION.md", llama_server, "/completion", llama_body,
)  # fmt: skip
VLLM = Engine(
    "vLLM on CPU (a random model of 60 MB, 4 sequences, one thread)",
    "calibrate.py vllm", "CALIBRATION-VLLM.md", vllm, "/v1/completions", vllm_body,
)  # fmt: skip


async def healthy(url: str) -> None:
    async with aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(f"{url}/health") as response:
                    if response.ok:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.02)


async def measure(engine: Engine, reads: int) -> tuple[list[dict[str, Any]], str]:
    with engine.open() as url:
        await healthy(url)
        profile, text = await profile_of(engine, url, reads)
        rows = []
        for name, share, prompts, outputs in LOADS:
            load = requests(profile, share, prompts, outputs)
            real, simulated = await measured(engine, url, load), predicted(profile, load)
            rows += [row(name, prompts, outputs, part, real, simulated) for part in Outcome._fields]
        return rows, text


def row(
    name: str, prompts: tuple[int, int], outputs: tuple[int, int], part: str, real: Outcome, simulated: Outcome
) -> dict[str, Any]:
    found, said = getattr(real, part), getattr(simulated, part)
    return {
        "load": f"{name}: {prompts[0]} to {prompts[1]} + {outputs[0]} to {outputs[1]} tokens",
        "what": {"ttft_s": "TTFT, ms", "itl_s": "ITL, ms", "tokens_per_s": "tokens/s"}[part],
        "measured": found * (1000 if part.endswith("_s") and part != "tokens_per_s" else 1),
        "predicted": said * (1000 if part.endswith("_s") and part != "tokens_per_s" else 1),
        "error": f"{100 * (said / found - 1):+.0f} %",
    }


def main() -> None:
    facts, engine = "", VLLM if "vllm" in sys.argv else LLAMA
    if "--write" in sys.argv:
        from run import machine  # noqa: PLC0415 - it imports every benchmark

        facts = machine()
    rows, text = asyncio.run(measure(engine, 13))
    show(rows)
    print(text)
    if facts:
        fitted = f"The fitted profile:\n\n<!-- a server of `tidegate replay` -->\n```yaml\n{text}```"
        about = ABOUT.strip().format(server=engine.server, command=engine.command)
        whole = "\n\n".join((f"# {TITLE}", about, facts, table(rows), fitted)) + "\n"
        HERE.joinpath(engine.file).write_text(whole)


if __name__ == "__main__":
    main()

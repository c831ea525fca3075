"""A name server without responses delays only the targets behind its names."""

import asyncio
import os

SOON_S = 60.0
NAMES = 64
# Longer than any test waits: a process that waits for its look-ups at exit exceeds the fixture's timeout and is killed.
HANGING = """
import socket, threading
resolved = socket.getaddrinfo
def getaddrinfo(host, *rest, **more):
    if str(host).endswith(".hangs.test"):
        threading.Event().wait(600.0)
    return resolved(host, *rest, **more)
socket.getaddrinfo = getaddrinfo
"""


def workloads(url):
    urls = {"chat": url} | {f"behind-{n}": f"http://n{n}.hangs.test:8000/metrics" for n in range(NAMES)}
    common = "namespace: ai, engine: vllm, replicas: {min: 1, max: 8}"
    return "".join(f'  - {{{common}, name: {name}, pods: {{url: "{url}"}}}}\n' for name, url in urls.items())


async def until(condition):
    async with asyncio.timeout(SOON_S):
        while True:
            if await condition():
                return
            await asyncio.sleep(0.05)


async def test_64_hanging_lookups_delay_neither_metrics_nor_checkpoints_nor_other_targets(
    daemon, targets, vllm, tmp_path, monkeypatch
):
    patched, state = tmp_path / "patched", tmp_path / "state"
    patched.mkdir()
    (patched / "sitecustomize.py").write_text(HANGING)
    monkeypatch.setenv("PYTHONPATH", f"{patched}:{os.environ.get('PYTHONPATH', '')}")
    targets["engine"].body = vllm(running=40)
    top = f'state: {{directory: "{state}", interval: 1s}}'

    async def all_have_timed_out():
        return (await running.get("/metrics"))[1].count('reason="timeout"') == NAMES

    async def another_checkpoint():
        return bool({file.name for file in state.glob("*.state")} - before)

    async with daemon(workloads(targets.url("engine")), top) as running:
        await running.ask.until((3, True))
        await until(all_have_timed_out)
        before = {file.name for file in state.glob("*.state")}
        await until(another_checkpoint)
        assert await running.ask.answer() == (3, True)

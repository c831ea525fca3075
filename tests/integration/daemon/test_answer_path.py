"""/livez covers the gRPC server, not only the ticks."""

import asyncio
import signal
from pathlib import Path

import pytest

STUCK = str(Path(__file__).with_name("stuck.py"))
SOON_S = 60.0


@pytest.fixture
def workload(targets, vllm):
    targets["engine"].body = vllm(running=20)
    return f'- {{namespace: ai, name: chat, engine: vllm, pods: {{url: "{targets.url("engine")}"}}}}\n'


@pytest.mark.parametrize("broken", [signal.SIGUSR1, signal.SIGUSR2], ids=["hangs", "ended"])
async def test_livez_fails_while_ticks_go_on_when_grpc_does_not_answer(daemon, workload, broken):
    async with daemon(workload, program=STUCK) as running:
        await running.ask.until((2, True))
        assert await until(running, "/livez?verbose", 200) == "[+] ticks ok\n[+] answers ok\nok\n"
        running.process.send_signal(broken)
        text = await until(running, "/livez?verbose", 503)
        assert text.startswith("[+] ticks ok\n[-] answers: the gRPC server did not answer the last ")
        assert (await running.get("/readyz"))[0] == 503
        ticks = sweeps(await until(running, "/metrics"))
        await until(running, "/metrics", is_so=lambda text: sweeps(text) > ticks)
        await running.kill()  # as the kubelet does


async def test_livez_checks_are_not_in_the_metrics_of_grpc_calls(daemon, workload):
    async with daemon(workload) as running:
        await running.ask.until((2, True))
        # 50 ticks take 5 s, in which checks run.
        text = await until(running, "/metrics", is_so=lambda text: sweeps(text) > 50)
        assert 'method="GetMetrics"' in text
        assert 'method="Check"' not in text


async def until(running, path, status=200, is_so=bool):
    async with asyncio.timeout(SOON_S):
        while True:
            got, text = await running.get(path)
            if got == status and is_so(text):
                return text
            await asyncio.sleep(0.02)


def sweeps(text):
    name = "tidegate_tick_duration_seconds_count "
    return next(float(line.removeprefix(name)) for line in text.splitlines() if line.startswith(name))

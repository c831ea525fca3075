"""/livez speaks of the answers that KEDA gets, not only of the decisions behind them."""

import asyncio
import signal
from pathlib import Path

import pytest

STUCK = str(Path(__file__).with_name("stuck.py"))
SOON_S = 20.0


@pytest.fixture
def workload(pages, vllm):
    pages["engine"].body = vllm(running=20)
    return f'- {{namespace: ai, name: chat, engine: vllm, pods: {{url: "{pages.url("engine")}"}}}}\n'


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
        await until(running, "/metrics", is_so=lambda page: sweeps(page) > ticks)
        await running.kill()  # as the kubelet does


async def test_checks_of_the_answers_are_not_in_the_metrics_of_calls(daemon, workload):
    async with daemon(workload) as running:
        await running.ask.until((2, True))
        # 50 ticks take 5 s, in which checks are made.
        page = await until(running, "/metrics", is_so=lambda page: sweeps(page) > 50)
        assert 'method="GetMetrics"' in page
        assert 'method="Check"' not in page


async def until(running, path, status=200, is_so=bool):
    async with asyncio.timeout(SOON_S):
        while True:
            got, text = await running.get(path)
            if got == status and is_so(text):
                return text
            await asyncio.sleep(0.02)


def sweeps(page):
    name = "tidegate_tick_duration_seconds_count "
    return next(float(line.removeprefix(name)) for line in page.splitlines() if line.startswith(name))

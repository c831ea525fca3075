"""From observe to act and back: `mode` at the top level of the configuration, in a running daemon."""

import json
import signal

import grpc

from scaler.report.ledger import build_report as report
from tests.integration.daemon.test_storyboard import workload

OBSERVED = grpc.StatusCode.FAILED_PRECONDITION


async def accounts(running):
    (entry,) = json.loads((await running.get("/api/v1/accounts"))[1])["workloads"]
    return entry


async def test_mode_changes_on_reload_and_accounting_continues(daemon, targets, vllm, epp):
    targets["engine"].body, targets["gateway"].body = vllm(running=20, finished=100), epp()

    def rewrite(running, before, after):
        running.config.write_text(running.config.read_text().replace(before, after))
        running.process.send_signal(signal.SIGHUP)

    # With a number for `work`: what a request takes would be learned from the 30 that finish, and 1 replica suffice.
    config = workload(targets) + "    objectives: {work: 16}\n"
    async with daemon(config, top="mode: observe") as running:
        await running.until_metric('tidegate_shadow_replicas{namespace="ai",workload="chat"} 2.0')
        assert await running.ask.answer() == OBSERVED
        assert ((await running.decision())["replicas"], (await running.decision())["observed"]) == (2, True)
        targets["engine"].body = vllm(running=20, finished=130)
        await running.until_metric('tidegate_requests_finished_total{namespace="ai",workload="chat"} 30.0')
        first = await accounts(running)
        assert (first["observed"], first["shadow"]["gpu_seconds_saved"]) == (True, None)

        rewrite(running, "mode: observe", "mode: act")
        await running.ask.until((2, True))
        rewrite(running, "mode: act", "mode: observe")
        await running.ask.until(OBSERVED)
        last = await accounts(running)
        assert (last["since"], last["requests_finished"]) == (first["since"], 30.0)
        assert last["state_seconds"]["serving"] > first["state_seconds"]["serving"]
        assert report(json.loads((await running.get("/api/v1/accounts"))[1]))["total"]["gpus_unknown"] == 1

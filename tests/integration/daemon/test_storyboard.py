"""The running daemon over real gRPC while its sources work, fail, send garbage and recover."""

import asyncio
import signal

import grpc
import pytest

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


def workload(targets, name="chat", engine="engine", gateway="gateway", keep_warm="1s"):
    front = f'\n    gateway: {{url: "{targets.url(gateway)}"}}' if gateway else ""
    return (
        f"  - namespace: ai\n    name: {name}\n    engine: vllm\n"
        f'    pods: {{url: "{targets.url(engine)}"}}{front}\n'
        f"    keep_warm: {keep_warm}\n    smoothing: {{up: 0s, down: 0.3s}}\n    replicas: {{min: 0, max: 8}}\n"
    )


async def test_no_data_then_load_then_an_outage_then_idle_then_woken_by_the_stream(daemon, targets, vllm, epp):
    targets["engine"].behaviour = targets["gateway"].behaviour = "error"
    async with daemon(workload(targets)) as running:
        ask = running.ask
        # No data yet: an error, never a zero; GetMetricSpec succeeds all the same.
        assert await ask.answer() == UNAVAILABLE
        (spec,) = (await ask.stub.GetMetricSpec(ask.ref())).metricSpecs
        assert (spec.metricName, spec.targetSizeFloat) == ("tidegate-replicas", 1.0)

        # Load: 40 requests at 16 per replica.
        targets["engine"].body, targets["gateway"].body = vllm(waiting=30, running=10), epp()
        targets["engine"].behaviour = targets["gateway"].behaviour = "ok"
        assert (await ask.until((3, True)))[-1] == (3, True)

        # The engine fails: held, then an error. No other response in between, above all no zero.
        targets["engine"].behaviour = "closed"
        assert await ask.until(UNAVAILABLE) == [(3, True), UNAVAILABLE]
        assert (await running.decision())["reason"] == "unknown"
        assert 'tidegate_replicas{namespace="ai",workload="chat"}' not in (await running.get("/metrics"))[1]

        # It recovers with less work.
        targets["engine"].body, targets["engine"].behaviour = vllm(running=10, finished=30), "ok"
        assert (await ask.until((1, True)))[-1] == (1, True)

        # Idle for the keep-warm time: inactive, with proof.
        stream = ask.stub.StreamIsActive(ask.ref())
        assert (await stream.read()).result is True
        targets["engine"].body = vllm(finished=40)
        assert (await ask.until((0, False)))[-1] == (0, False)
        assert (await stream.read()).result is False
        assert (await running.decision())["reason"] == "asleep"

        # KEDA scales to zero: the engine is gone. A request at the gateway wakes the workload through the open stream.
        targets["engine"].behaviour = "closed"
        await running.until_metric('tidegate_stale_targets{namespace="ai",workload="chat"} 1')
        assert await ask.answer() == (0, False)
        targets["gateway"].body = epp(queued=1, ready=0)
        async with asyncio.timeout(60.0):
            assert (await stream.read()).result is True
        assert await ask.answer() == (1, True)
        stream.cancel()


async def test_bad_metadata_is_an_error_for_its_own_workload_only(daemon, targets, vllm, epp):
    targets["engine"].body, targets["gateway"].body = vllm(running=20), epp()
    async with daemon(workload(targets)) as running:
        ask = running.ask
        await ask.until((2, True))
        for call in (ask.replicas, ask.active):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call(wrokload="chat")
            assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
            assert "wrokload" in refused.value.details()
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await ask.replicas("unknown")
        assert unknown.value.code() == grpc.StatusCode.NOT_FOUND
        assert await ask.answer() == (2, True)


@pytest.mark.parametrize("fault", ["garbage", "endless", "hang", "a million series", "empty"])
async def test_misbehaving_target_delays_no_other_workload(daemon, targets, vllm, epp, fault):
    targets["engine"].body, targets["gateway"].body = vllm(running=20), epp()
    misbehaving = targets["rogue"]
    match fault:
        case "garbage":
            misbehaving.body = bytes(range(256)) * 200
        case "a million series":
            misbehaving.body = b"".join(b'vllm:num_requests_waiting{model_name="%d"} 1\n' % n for n in range(1_000_000))
        case "empty":
            misbehaving.body = b""
        case _:
            misbehaving.behaviour = fault
    both = workload(targets) + workload(targets, name="other", engine="rogue", gateway=None)
    async with daemon(both) as running:
        await running.ask.until((2, True))
        await running.until_metric("tidegate_scrape_failures_total{")
        before = misbehaving.scrapes
        for running_requests in (40, 100, 20):
            targets["engine"].body = vllm(running=running_requests)
            await running.ask.until((-(-running_requests // 16), True))
        assert misbehaving.scrapes > before, "the misbehaving target is still scraped"
        assert await running.ask.answer("other") == UNAVAILABLE
        status, text = await running.get("/livez?verbose")
        assert (status, "ok" in text) == (200, True)
        assert "tidegate_ticks_failed_total 0.0" in (await running.get("/metrics"))[1]


async def test_sigterm_ends_streams_with_ok_so_that_keda_comes_back_soon(daemon, targets, vllm, epp):
    targets["engine"].body, targets["gateway"].body = vllm(running=20), epp()
    async with daemon(workload(targets)) as running:
        await running.ask.until((2, True))
        stream = running.ask.stub.StreamIsActive(running.ask.ref())
        assert (await stream.read()).result is True
        running.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60.0):
            assert await stream.read() is grpc.aio.EOF
            assert await stream.code() == grpc.StatusCode.OK
            assert await asyncio.to_thread(running.process.wait) == 0


async def test_sighup_applies_a_valid_configuration_and_rejects_an_invalid_one(daemon, targets, vllm, epp):
    targets["engine"].body, targets["gateway"].body = vllm(running=20), epp()
    async with daemon(workload(targets)) as running:
        await running.ask.until((2, True))
        good = running.config.read_text()

        running.config.write_text(good.replace("max: 8", "max: -8"))
        running.process.send_signal(signal.SIGHUP)
        await running.until_metric("tidegate_config_last_reload_successful 0.0")
        assert await running.ask.answer() == (2, True)

        running.config.write_text(good.replace("max: 8", "max: 1") + workload(targets, name="second"))
        running.process.send_signal(signal.SIGHUP)
        await running.until_metric("tidegate_config_last_reload_successful 1.0")
        assert await running.ask.until((1, True)) in ([(2, True), (1, True)], [(1, True)])
        assert (await running.ask.until((2, True), "second"))[-1] == (2, True)


async def test_reload_changes_no_decision_of_a_remaining_workload(daemon, targets, vllm, epp):
    targets["engine"].body, targets["gateway"].body = vllm(running=100), epp()
    async with daemon(workload(targets)) as running:
        await running.ask.until((7, True))
        targets["engine"].behaviour = "closed"
        running.config.write_text(running.config.read_text() + workload(targets, name="second"))
        running.process.send_signal(signal.SIGHUP)
        text = await running.until_metric('tidegate_reason{namespace="ai",reason="unknown",workload="second"}')
        assert 'tidegate_replicas{namespace="ai",workload="chat"} 7.0' in text
        assert await running.ask.answer() == (7, True)

"""State survives a restart of the real process, killed at the worst moments."""

import asyncio
import os
from contextlib import asynccontextmanager

import grpc
import pytest

from scaler.engine.checkpoint_format import FORMAT
from scaler.engine.checkpoint_store import Directory

SOON_S = 60.0
HOLD = "300s"  # longer than a start


def workload(targets, keep_warm="1s"):
    return (
        f'  - namespace: ai\n    name: chat\n    engine: vllm\n    pods: {{url: "{targets.url("engine")}"}}\n'
        f'    gateway: {{url: "{targets.url("gateway")}"}}\n    keep_warm: {keep_warm}\n'
        "    smoothing: {up: 0s, down: 0.3s}\n    replicas: {min: 0, max: 8}\n"
    )


@pytest.fixture
def restartable(daemon, targets, tmp_path):
    """`async with restartable(keep_warm) as running:`, with a checkpoint each second in `restartable.directory`."""
    directory = Directory(tmp_path / "state")

    @asynccontextmanager
    async def run(keep_warm="1s", interval="1s", path=directory.path):
        top = f'state: {{directory: "{path}", interval: {interval}}}'
        async with daemon(workload(targets, keep_warm), top, hold=HOLD) as running:
            yield running

    async def until_checkpoint():
        """Wait for a checkpoint that was begun after now: the second from now."""
        before = newest()
        async with asyncio.timeout(SOON_S):
            while True:
                if newest() >= before + 2:
                    return
                await asyncio.sleep(0.02)

    def newest():
        found = sorted(int(file.name[:12]) for file in directory.path.glob("*.state"))
        return found[-1] if found else 0

    run.directory, run.until_checkpoint = directory, until_checkpoint
    return run


async def test_restart_in_a_burst_changes_nothing_while_the_sources_fail(restartable, targets, vllm, epp):
    targets["engine"].body, targets["gateway"].body = vllm(waiting=80, running=20), epp()
    async with restartable() as running:
        await running.ask.until((7, True))
        await restartable.until_checkpoint()
        before = await running.decision()
        await running.kill()
    targets["engine"].behaviour = targets["gateway"].behaviour = "closed"
    async with restartable() as running:
        assert await running.ask.answer() == (7, True), "the first decision after the start"
        await running.until_metric('tidegate_stale_targets{namespace="ai",workload="chat"} 2')
        assert await running.ask.answer() == (7, True)
        targets["engine"].behaviour = targets["gateway"].behaviour = "ok"
        await running.until_metric('tidegate_stale_targets{namespace="ai",workload="chat"} 0')
        assert await running.ask.until((7, True)) == [(7, True)]
        after = await running.decision()
        assert (after["replicas"], after["reason"]) == (before["replicas"], before["reason"])


async def test_restart_at_zero_wakes_no_workload_and_the_next_request_does(restartable, targets, vllm, epp):
    targets["engine"].body, targets["gateway"].body = vllm(finished=40), epp()
    async with restartable() as running:
        await running.ask.until((0, False))
        targets["engine"].behaviour = "closed"
        await restartable.until_checkpoint()
        await running.kill()
    async with restartable() as running:
        assert await running.ask.answer() == (0, False), "the first decision after the start"
        stream = running.ask.stub.StreamIsActive(running.ask.ref())
        assert (await stream.read()).result is False
        await running.until_metric('tidegate_stale_targets{namespace="ai",workload="chat"} 1')
        assert await running.ask.answer() == (0, False)
        targets["gateway"].body = epp(queued=1, ready=0)
        async with asyncio.timeout(SOON_S):
            assert (await stream.read()).result is True
        stream.cancel()


@pytest.mark.parametrize("finished_meanwhile", [0, 1])
async def test_keep_warm_continues_after_a_restart_unless_a_request_finished_meanwhile(
    restartable, targets, vllm, epp, finished_meanwhile
):
    targets["engine"].body, targets["gateway"].body = vllm(finished=40), epp()
    async with restartable("1h") as running:
        await running.ask.until((1, True))
        idle_since = await _idle_since(running)
        await restartable.until_checkpoint()
        await running.kill()
    targets["engine"].body = vllm(finished=40 + finished_meanwhile)
    async with restartable("1h") as running:
        again = await _idle_since(running)
        assert (again == idle_since, again > idle_since) == (not finished_meanwhile, bool(finished_meanwhile))


async def _idle_since(running):
    """The first value on the Board: by then all targets have been scraped, and idleness is proven or not."""
    async with asyncio.timeout(SOON_S):
        while True:
            since = (await running.decision())["idle_since"]
            if since is not None:
                return since
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("fault", ["torn", "of another format"])
async def test_unreadable_checkpoint_is_logged_and_the_previous_one_is_read(restartable, targets, vllm, epp, fault):
    targets["engine"].body, targets["gateway"].body = vllm(running=40), epp()
    async with restartable() as running:
        await running.ask.until((3, True))
        await restartable.until_checkpoint()
        await restartable.until_checkpoint()
        await running.kill()
    newest = max(restartable.directory.path.glob("*.state"))
    whole = bytearray(newest.read_bytes())
    if fault == "torn":
        del whole[len(whole) // 2 :]
    else:
        whole[8] = FORMAT + 1
    newest.write_bytes(whole)
    targets["engine"].behaviour = "closed"
    async with restartable(interval="1h") as running:
        assert await running.ask.answer() == (3, True)
    assert newest.with_name(newest.name + ".torn").exists() is (fault == "torn")
    assert str(newest) in running.stderr
    assert "checkpoint read" in running.stderr


async def test_sigterm_writes_a_last_checkpoint(restartable, targets, vllm, epp):
    targets["engine"].body, targets["gateway"].body = vllm(running=40), epp()
    async with restartable(interval="1h") as running:
        await running.ask.until((3, True))
        assert restartable.directory.read().states == []
    (state,) = restartable.directory.read().states
    assert state.columns["memory.replicas"].tolist() == [3.0]


async def test_unwritable_directory_costs_only_the_checkpoints(restartable, targets, vllm, epp, tmp_path):
    in_the_way = tmp_path / "file"
    in_the_way.write_text("no directory")
    targets["engine"].body, targets["gateway"].body = vllm(running=40), epp()
    async with restartable(path=in_the_way) as running:
        await running.until_metric("tidegate_checkpoint_failures_total 2.0")
        await running.ask.until((3, True))
        assert "tidegate_ticks_failed_total 0.0" in (await running.get("/metrics"))[1]
        in_the_way.unlink()
        await running.until_metric("tidegate_checkpoint_size_bytes")
    assert running.stderr.count("checkpoint write failed") == 1
    assert running.stderr.count("checkpoint write recovered") == 1


async def test_without_a_directory_no_state_survives(daemon, targets, vllm, epp):
    targets["engine"].body, targets["gateway"].body = vllm(running=40), epp()
    async with daemon(workload(targets), hold=HOLD) as running:
        await running.ask.until((3, True))
        assert "tidegate_checkpoint" not in (await running.get("/metrics"))[1]
        await running.kill()
    targets["engine"].behaviour = "closed"
    async with daemon(workload(targets), hold=HOLD) as running:
        assert await running.ask.answer() == grpc.StatusCode.UNAVAILABLE


async def test_links_and_fifos_in_the_directory_do_not_block_the_start(restartable, targets, vllm, epp):
    targets["engine"].body, targets["gateway"].body = vllm(running=40), epp()
    async with restartable() as running:
        await running.ask.until((3, True))
        await restartable.until_checkpoint()
        await running.kill()
    directory = restartable.directory.path
    (directory / "900000000001.state").symlink_to("/dev/zero")
    os.mkfifo(directory / "900000000002.state")
    targets["engine"].behaviour = "closed"
    async with restartable(interval="1h") as running:
        assert await running.ask.answer() == (3, True)
    assert "got a symbolic link" in running.stderr
    assert "got a FIFO" in running.stderr
    assert "checkpoint read" in running.stderr


async def test_second_process_on_a_directory_serves_and_does_not_write_until_the_first_ends(
    restartable, targets, vllm, epp
):
    targets["engine"].body, targets["gateway"].body = vllm(running=40), epp()
    async with restartable() as running:
        await running.ask.until((3, True))
        await restartable.until_checkpoint()
    assert restartable.directory.claim().owned, "this test is the first process"
    before = sorted(restartable.directory.path.iterdir())
    targets["engine"].behaviour = "closed"
    async with restartable() as running:
        assert await running.ask.answer() == (3, True), "restored from the first process's checkpoint"
        await running.until_metric("tidegate_checkpoint_directory_owned 0.0")
        await running.until_metric('tidegate_held_seconds{namespace="ai",workload="chat"} ')
        assert sorted(restartable.directory.path.iterdir()) == before
        restartable.directory.release()
        await running.until_metric("tidegate_checkpoint_directory_owned 1.0")
        assert sorted(restartable.directory.path.iterdir()) != before
    assert f"pid {os.getpid()}" in running.stderr
    assert running.stderr.count("checkpoint directory locked") == 1
    assert running.stderr.count("checkpoint directory acquired") == 1

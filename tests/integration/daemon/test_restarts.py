"""Law 5 through the real process: killed at the worst moments, it goes on where it was."""

import asyncio
import os
from contextlib import asynccontextmanager

import grpc
import pytest

from scaler.engine.checkpoint_format import FORMAT
from scaler.engine.checkpoint_store import Directory

SOON_S = 20.0
HOLD = "300s"  # longer than a start takes


def workload(pages, keep_warm="1s"):
    return (
        f'  - namespace: ai\n    name: chat\n    engine: vllm\n    pods: {{url: "{pages.url("engine")}"}}\n'
        f'    gateway: {{url: "{pages.url("gateway")}"}}\n    keep_warm: {keep_warm}\n'
        "    smoothing: {up: 0s, down: 0.3s}\n    replicas: {min: 0, max: 8}\n"
    )


@pytest.fixture
def restartable(daemon, pages, tmp_path):
    """`async with restartable(keep_warm) as running:`, with snapshots of every second in `restartable.directory`."""
    directory = Directory(tmp_path / "state")

    @asynccontextmanager
    async def run(keep_warm="1s", interval="1s", path=directory.path):
        top = f'state: {{directory: "{path}", interval: {interval}}}'
        async with daemon(workload(pages, keep_warm), top, hold=HOLD) as running:
            yield running

    async def written():
        """Wait for a snapshot that was begun after now: the second from now is."""
        before = newest()
        async with asyncio.timeout(SOON_S):
            while True:
                if newest() >= before + 2:
                    return
                await asyncio.sleep(0.02)

    def newest():
        found = sorted(int(file.name[:12]) for file in directory.path.glob("*.state"))
        return found[-1] if found else 0

    run.directory, run.written = directory, written
    return run


async def test_a_restart_changes_nothing_killed_in_a_burst_while_the_sources_die(restartable, pages, vllm, epp):
    pages["engine"].body, pages["gateway"].body = vllm(waiting=80, running=20), epp()
    async with restartable() as running:
        await running.ask.until((7, True))
        await restartable.written()
        before = await running.decision()
        await running.kill()
    pages["engine"].behaviour = pages["gateway"].behaviour = "closed"
    async with restartable() as running:
        assert await running.ask.answer() == (7, True), "its first answer"
        await running.until_metric('tidegate_stale_targets{namespace="ai",workload="chat"} 2')
        assert await running.ask.answer() == (7, True)
        pages["engine"].behaviour = pages["gateway"].behaviour = "ok"
        await running.until_metric('tidegate_stale_targets{namespace="ai",workload="chat"} 0')
        assert await running.ask.until((7, True)) == [(7, True)]
        after = await running.decision()
        assert (after["replicas"], after["reason"]) == (before["replicas"], before["reason"])


async def test_killed_at_zero_it_wakes_nobody_and_the_next_request_does(restartable, pages, vllm, epp):
    pages["engine"].body, pages["gateway"].body = vllm(finished=40), epp()
    async with restartable() as running:
        await running.ask.until((0, False))
        pages["engine"].behaviour = "closed"
        await restartable.written()
        await running.kill()
    async with restartable() as running:
        assert await running.ask.answer() == (0, False), "its first answer"
        stream = running.ask.stub.StreamIsActive(running.ask.ref())
        assert (await stream.read()).result is False
        await running.until_metric('tidegate_stale_targets{namespace="ai",workload="chat"} 1')
        assert await running.ask.answer() == (0, False)
        pages["gateway"].body = epp(queued=1, ready=0)
        async with asyncio.timeout(SOON_S):
            assert (await stream.read()).result is True
        stream.cancel()


@pytest.mark.parametrize("finished_meanwhile", [0, 1])
async def test_killed_while_it_is_kept_warm_the_clock_goes_on_unless_something_was_finished(
    restartable, pages, vllm, epp, finished_meanwhile
):
    pages["engine"].body, pages["gateway"].body = vllm(finished=40), epp()
    async with restartable("1h") as running:
        await running.ask.until((1, True))
        idle_since = await _idle_since(running)
        await restartable.written()
        await running.kill()
    pages["engine"].body = vllm(finished=40 + finished_meanwhile)
    async with restartable("1h") as running:
        again = await _idle_since(running)
        assert (again == idle_since, again > idle_since) == (not finished_meanwhile, bool(finished_meanwhile))


async def _idle_since(running):
    """The first that the Board shows: by then all pages have been heard, and it is proven, or it is not."""
    async with asyncio.timeout(SOON_S):
        while True:
            since = (await running.decision())["idle_since"]
            if since is not None:
                return since
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("spoilt", ["torn", "of another format"])
async def test_the_newest_snapshot_spoilt_the_one_before_it_is_read_and_that_is_said(
    restartable, pages, vllm, epp, spoilt
):
    pages["engine"].body, pages["gateway"].body = vllm(running=40), epp()
    async with restartable() as running:
        await running.ask.until((3, True))
        await restartable.written()
        await restartable.written()
        await running.kill()
    newest = max(restartable.directory.path.glob("*.state"))
    whole = bytearray(newest.read_bytes())
    if spoilt == "torn":
        del whole[len(whole) // 2 :]
    else:
        whole[8] = FORMAT + 1
    newest.write_bytes(whole)
    pages["engine"].behaviour = "closed"
    async with restartable(interval="1h") as running:
        assert await running.ask.answer() == (3, True)
    assert newest.with_name(newest.name + ".torn").exists() is (spoilt == "torn")
    assert str(newest) in running.complaints
    assert "checkpoint read" in running.complaints


async def test_told_to_end_it_writes_a_last_one(restartable, pages, vllm, epp):
    pages["engine"].body, pages["gateway"].body = vllm(running=40), epp()
    async with restartable(interval="1h") as running:
        await running.ask.until((3, True))
        assert restartable.directory.read().states == []
    (state,) = restartable.directory.read().states
    assert state.columns["memory.replicas"].tolist() == [3.0]


async def test_a_directory_that_cannot_be_written_costs_the_snapshots_and_nothing_else(
    restartable, pages, vllm, epp, tmp_path
):
    in_the_way = tmp_path / "file"
    in_the_way.write_text("no directory")
    pages["engine"].body, pages["gateway"].body = vllm(running=40), epp()
    async with restartable(path=in_the_way) as running:
        await running.until_metric("tidegate_checkpoint_failures_total 2.0")
        await running.ask.until((3, True))
        assert "tidegate_ticks_failed_total 0.0" in (await running.get("/metrics"))[1]
        in_the_way.unlink()
        await running.until_metric("tidegate_checkpoint_size_bytes")
    assert running.complaints.count("checkpoint write failed") == 1
    assert running.complaints.count("checkpoint write recovered") == 1


async def test_without_a_directory_nothing_is_remembered(daemon, pages, vllm, epp):
    pages["engine"].body, pages["gateway"].body = vllm(running=40), epp()
    async with daemon(workload(pages), hold=HOLD) as running:
        await running.ask.until((3, True))
        assert "tidegate_checkpoint" not in (await running.get("/metrics"))[1]
        await running.kill()
    pages["engine"].behaviour = "closed"
    async with daemon(workload(pages), hold=HOLD) as running:
        assert await running.ask.answer() == grpc.StatusCode.UNAVAILABLE


async def test_links_and_fifos_in_the_directory_do_not_block_the_start(restartable, pages, vllm, epp):
    pages["engine"].body, pages["gateway"].body = vllm(running=40), epp()
    async with restartable() as running:
        await running.ask.until((3, True))
        await restartable.written()
        await running.kill()
    directory = restartable.directory.path
    (directory / "900000000001.state").symlink_to("/dev/zero")
    os.mkfifo(directory / "900000000002.state")
    pages["engine"].behaviour = "closed"
    async with restartable(interval="1h") as running:
        assert await running.ask.answer() == (3, True)
    assert "got a symbolic link" in running.complaints
    assert "got a FIFO" in running.complaints
    assert "checkpoint read" in running.complaints


async def test_second_process_on_a_directory_serves_and_does_not_write_until_the_first_ends(
    restartable, pages, vllm, epp
):
    pages["engine"].body, pages["gateway"].body = vllm(running=40), epp()
    async with restartable() as running:
        await running.ask.until((3, True))
        await restartable.written()
    assert restartable.directory.claim().owned, "the first process: it is this one"
    before = sorted(restartable.directory.path.iterdir())
    pages["engine"].behaviour = "closed"
    async with restartable() as running:
        assert await running.ask.answer() == (3, True), "it remembers what the first one wrote"
        await running.until_metric("tidegate_checkpoint_directory_owned 0.0")
        await running.until_metric('tidegate_held_seconds{namespace="ai",workload="chat"} ')
        assert sorted(restartable.directory.path.iterdir()) == before
        restartable.directory.release()
        await running.until_metric("tidegate_checkpoint_directory_owned 1.0")
        assert sorted(restartable.directory.path.iterdir()) != before
    assert f"pid {os.getpid()}" in running.complaints
    assert running.complaints.count("checkpoint directory locked") == 1
    assert running.complaints.count("checkpoint directory acquired") == 1

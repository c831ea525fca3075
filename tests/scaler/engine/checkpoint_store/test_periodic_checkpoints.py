"""Tests periodic checkpoints: a failure is logged once, counted, and stops nothing else."""

import asyncio
import errno
import os
import shutil
import threading

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from scaler import config
from scaler.api.http.collectors import CheckpointCollector
from scaler.engine.checkpoint_store import CheckpointStore, Directory


def settings(directory, interval=10.0):
    return config.Checkpoints(directory=str(directory), interval=interval)


@pytest.fixture
def current_states(state):
    async def states():
        return [state(3)]

    return states


def events(logged):
    return [line["event"] for line in logged]


async def test_checkpoint_is_written_every_interval(tmp_path, clock, state, replicas):
    time, written_at = clock(naps=3), []
    kept = CheckpointStore(settings(tmp_path), time)

    async def states():
        written_at.append(time.now())
        return [state(len(written_at))]

    keeping = asyncio.create_task(kept.keep(states))
    await time.over.wait()
    keeping.cancel()
    assert written_at == [1010.0, 1020.0, 1030.0]
    assert replicas(Directory(tmp_path).read().states) == [[3.0]]


async def test_nothing_is_overwritten_before_there_is_state(tmp_path, clock, state, replicas):
    Directory(tmp_path).write([state(7)])

    async def nothing():
        return []

    await CheckpointStore(settings(tmp_path), clock()).write(nothing)
    assert [file.name for file in tmp_path.glob("*.state")] == ["000000000001.state"]
    assert replicas(Directory(tmp_path).read().states) == [[7.0]]


async def test_unwritable_directory_is_logged_once_and_so_is_its_recovery(
    tmp_path, clock, current_states, logged, monkeypatch
):
    kept, registry = CheckpointStore(settings(tmp_path), clock()), CollectorRegistry()
    registry.register(CheckpointCollector(kept, lambda: 1007.0))

    def fail(*_args):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as read_only:
        read_only.setattr("scaler.engine.checkpoint_store.mkstemp", fail)
        for _ in range(3):
            await kept.write(current_states)
    assert logged == [
        {
            "event": "checkpoint write failed",
            "log_level": "warning",
            "directory": str(tmp_path),
            "problem": "Read-only file system",
        }
    ]
    assert b"tidegate_checkpoint_failures_total 3.0\n" in generate_latest(registry)
    assert b"\ntidegate_checkpoint_size_bytes " not in generate_latest(registry), "unknown is never zero"
    for _ in range(2):
        await kept.write(current_states)
    assert events(logged)[1:] == ["checkpoint write recovered"]
    (file,) = [each for each in tmp_path.iterdir() if each.name.endswith("5.state") or each.name.endswith("2.state")]
    shown = generate_latest(registry)
    assert f"tidegate_checkpoint_size_bytes {file.stat().st_size}.0\n".encode() in shown
    assert b"tidegate_checkpoint_age_seconds 7.0\n" in shown


async def test_bug_while_copying_state_is_logged_and_stops_nothing(tmp_path, clock, current_states, logged):
    kept = CheckpointStore(settings(tmp_path), clock())

    async def broken():
        raise RuntimeError("a bug")

    await kept.write(broken)
    assert (events(logged)[0], kept.failures) == ("checkpoint internal error", 1)
    await kept.write(current_states)
    assert events(logged)[-1] == "checkpoint write recovered"


async def test_hanging_disk_does_not_block_the_shutdown(tmp_path, clock, logged, monkeypatch):
    monkeypatch.setattr("scaler.engine.checkpoint_store.LAST_WRITE_S", 0.01)
    kept = CheckpointStore(settings(tmp_path), clock())
    await kept.write_last(asyncio.Event().wait)
    assert [line["problem"] for line in logged] == ["the last one took more than 0.01 s"]


async def test_start_logs_which_checkpoint_was_read_and_which_was_not(tmp_path, clock, state, logged, replicas):
    directory = Directory(tmp_path)
    directory.write([state(1, at=988.0), state(2, at=500.0)])
    directory.write([state(3)])
    (tmp_path / "000000000002.state").write_bytes(b"TIDEGATE")
    kept = await CheckpointStore(settings(tmp_path), clock()).read()
    assert replicas(kept.rest(1000.0)) == [[1.0], [2.0]]
    assert logged == [
        {
            "event": "checkpoint corrupt",
            "log_level": "warning",
            "file": str(tmp_path / "000000000002.state"),
            "problem": "byte 0: 56 bytes must begin a state, got 8",
        },
        {
            "event": "checkpoint read",
            "log_level": "info",
            "file": str(tmp_path / "000000000001.state"),
            "workloads": 2,
            "age_s": 12.0,
        },
    ]


async def test_start_without_a_readable_checkpoint_is_logged(tmp_path, clock, logged):
    (tmp_path / "000000000002.state").write_bytes(b"?")
    kept = await CheckpointStore(settings(tmp_path), clock()).read()
    assert kept.rest(1000.0) == []
    assert events(logged)[-1] == "started without state"


async def test_file_in_place_of_the_directory_is_a_logged_error(tmp_path, clock, current_states, logged):
    (tmp_path / "state").write_text("mine")
    kept = CheckpointStore(settings(tmp_path / "state"), clock())
    assert (await kept.read()).rest(1000.0) == []
    await kept.write(current_states)
    assert [line["problem"] for line in logged] == ["Not a directory", "File exists"]


async def test_reload_changes_the_interval_and_not_the_directory(tmp_path, clock, state, logged):
    time, written_at = clock(naps=2), []
    kept = CheckpointStore(settings(tmp_path), time)
    kept.reload(settings(tmp_path, interval=3.0))
    assert logged == []
    for other in (settings(tmp_path / "elsewhere", interval=5.0), None):
        kept.reload(other)

    async def states():
        written_at.append(time.now())
        return [state(1)]

    keeping = asyncio.create_task(kept.keep(states))
    await time.over.wait()
    keeping.cancel()
    assert written_at == [1003.0, 1006.0]
    assert events(logged) == ["restart required"] * 2
    assert not (tmp_path / "elsewhere").exists()


async def test_without_settings_nothing_is_written_or_exposed(clock, current_states, logged):
    kept, registry = CheckpointStore(None, clock()), CollectorRegistry()
    registry.register(CheckpointCollector(kept, lambda: 1007.0))
    assert (await kept.read()).rest(1000.0) == []
    await kept.keep(current_states)
    await kept.write(current_states)
    await kept.write_last(current_states)
    assert generate_latest(registry) == b""
    assert logged == []


class SlowDisk:
    """Blocks the first fsync until `release` is set; sets `begun` when it is reached. `writes`: fsyncs of files."""

    def __init__(self, monkeypatch):
        self.begun, self.release, self.writes, self._fsync = threading.Event(), threading.Event(), 0, os.fsync
        monkeypatch.setattr(os, "fsync", self._slow)

    def _slow(self, descriptor):
        self.writes += 1
        if self.writes == 1:
            self.begun.set()
            assert self.release.wait(60.0)
        self._fsync(descriptor)


async def test_final_write_waits_for_the_periodic_one_and_is_restored(tmp_path, clock, state, replicas, monkeypatch):
    disk, time, copied, final_copied = SlowDisk(monkeypatch), clock(), [], asyncio.Event()
    kept = CheckpointStore(settings(tmp_path), time)

    async def current_states():
        copied.append(time.now())
        if len(copied) == 2:
            final_copied.set()
        return [state(replicas=time.now(), at=time.now())]

    periodic = asyncio.create_task(kept.write(current_states))
    assert await asyncio.to_thread(disk.begun.wait, 60.0)
    time.time = 1002.0
    final = asyncio.create_task(kept.write_last(current_states))
    await final_copied.wait()
    assert disk.writes == 1, "the final write has not begun"
    disk.release.set()
    await asyncio.gather(periodic, final)
    assert replicas(Directory(tmp_path).read().states) == [[1002.0]]
    assert [file.name for file in sorted(tmp_path.glob("*.state"))] == ["000000000001.state", "000000000002.state"]


async def test_cancelled_periodic_write_does_not_supersede_the_final_one(tmp_path, clock, state, replicas, monkeypatch):
    disk, time, copied, final_copied = SlowDisk(monkeypatch), clock(), [], asyncio.Event()
    kept = CheckpointStore(settings(tmp_path), time)

    async def current_states():
        copied.append(time.now())
        if len(copied) == 2:
            final_copied.set()
        return [state(replicas=time.now(), at=time.now())]

    periodic = asyncio.create_task(kept.write(current_states))
    assert await asyncio.to_thread(disk.begun.wait, 60.0)
    periodic.cancel()  # its thread continues
    await asyncio.gather(periodic, return_exceptions=True)
    time.time = 1002.0
    final = asyncio.create_task(kept.write_last(current_states))
    await final_copied.wait()
    disk.release.set()
    await final
    assert replicas(Directory(tmp_path).read().states) == [[1002.0]]
    assert [file.name for file in sorted(tmp_path.glob("*.state"))] == ["000000000001.state", "000000000002.state"]


async def test_second_process_on_a_directory_reads_and_does_not_write(
    tmp_path, clock, current_states, logged, replicas
):
    first, second, registry = *(CheckpointStore(settings(tmp_path), clock()) for _ in range(2)), CollectorRegistry()
    registry.register(CheckpointCollector(second, lambda: 1007.0))
    await first.read()
    await first.write(current_states)
    (tmp_path / ".x.tmp").write_bytes(b"the first is writing this")
    (tmp_path / "000000000009.state").write_bytes(b"torn")
    logged.clear()
    assert replicas((await second.read()).rest(1000.0)) == [[3.0]]
    await second.write(current_states)
    await second.write(current_states)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        ".lock", ".x.tmp", "000000000001.state", "000000000009.state",
    ]  # fmt: skip
    (locked,) = [line for line in logged if line["event"] == "checkpoint directory locked"]
    assert (locked["log_level"], locked["directory"]) == ("warning", str(tmp_path))
    assert str(os.getpid()) in locked["owner"]
    assert (second.failures, second.size) == (0, None)
    assert b"tidegate_checkpoint_directory_owned 0.0\n" in generate_latest(registry)
    first.close()
    first._thread.shutdown(wait=True)
    await second.write(current_states)
    assert (tmp_path / "000000000010.state").exists(), "after the first process has ended, the second writes"
    assert events(logged)[-1] == "checkpoint directory acquired"
    assert b"tidegate_checkpoint_directory_owned 1.0\n" in generate_latest(registry)


async def test_directory_without_lock_support_is_written_and_logged(
    tmp_path, clock, current_states, logged, monkeypatch
):
    kept = CheckpointStore(settings(tmp_path), clock())

    def no_locks(*_args):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("scaler.engine.checkpoint_store.flock", no_locks)
    await kept.read()
    for _ in range(2):
        await kept.write(current_states)
    assert (tmp_path / "000000000002.state").exists()
    assert [(line["event"], line["problem"]) for line in logged] == [
        ("checkpoint directory cannot be locked", "No locks available")
    ]


async def test_replaced_directory_is_locked_again(tmp_path, clock, current_states, logged):
    directory = tmp_path / "state"
    first = CheckpointStore(settings(directory), clock())
    await first.read()
    await first.write(current_states)
    shutil.rmtree(directory)
    await first.write(current_states)
    second = CheckpointStore(settings(directory), clock())
    await second.write(current_states)
    assert [file.name for file in directory.glob("*.state")] == ["000000000001.state"]
    assert events(logged)[-1] == "checkpoint directory locked"

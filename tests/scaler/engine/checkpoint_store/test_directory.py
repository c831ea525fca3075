"""Tests the checkpoint files: a complete one exists at every moment, whatever happens to the process or the disk."""

import errno
import os

import pytest

from scaler.engine import checkpoint_store
from scaler.engine.checkpoint_format import FORMAT, pack
from scaler.engine.checkpoint_store import Directory


@pytest.fixture
def directory(tmp_path):
    """The directory, locked by this process."""
    directory = Directory(tmp_path / "state")
    directory.claim()
    yield directory
    directory.release()


def names(directory):
    return sorted(file.name for file in directory.path.iterdir() if file.name != ".lock")


def numbered(number):
    return f"{number:012d}.state"


def test_newest_checkpoint_is_read(directory, state, replicas):
    for count in (1, 2, 3):
        directory.write([state(count), state(10 * count)])
    found = directory.read()
    assert replicas(found.states) == [[3.0], [30.0]]
    assert (found.file.name, found.refused) == (numbered(3), [])


def test_last_two_checkpoints_are_kept(directory, state):
    for count in range(5):
        directory.write([state(count)])
    assert names(directory) == [numbered(4), numbered(5)]


def test_missing_checkpoint_is_read_as_none(directory):
    assert directory.read() == ([], None, [])
    assert Directory(directory.path / "not there").read() == ([], None, [])


def test_torn_checkpoint_is_set_aside_and_the_previous_one_is_read(directory, state, replicas):
    directory.write([state(1)])
    directory.write([state(2)])
    torn = directory.path / numbered(2)
    torn.write_bytes(torn.read_bytes()[:-1])
    found = directory.read()
    assert replicas(found.states) == [[1.0]]
    (refusal,) = found.refused
    assert (refusal.file.name, refusal.set_aside) == (numbered(2), True)
    assert refusal.why.startswith("byte 56: ")
    assert names(directory) == [numbered(1), numbered(2) + ".torn"]
    directory.write([state(3)])
    assert names(directory) == [numbered(1), numbered(2) + ".torn", numbered(3)], "a name is never reused"


def test_only_one_torn_checkpoint_is_kept(directory, state):
    for turn in (1, 2):
        directory.write([state(turn)])
        (directory.path / numbered(turn)).write_bytes(b"")
        assert directory.read().states == []
    assert names(directory) == [numbered(2) + ".torn"]


def test_previous_checkpoint_is_read_if_the_newest_is_torn_at_any_byte(directory, state, replicas):
    directory.write([state(1)])
    directory.write([state(2)])
    newest = directory.path / numbered(2)
    whole = newest.read_bytes()
    for end in range(len(whole)):
        newest.write_bytes(whole[:end])
        assert replicas(directory.read().states) == [[1.0]]


def test_checkpoint_of_another_format_stays_for_the_version_that_wrote_it(directory, state, replicas):
    directory.write([state(1)])
    later = bytearray(pack(state(2)))
    later[8] = FORMAT + 1
    (directory.path / numbered(2)).write_bytes(bytes(later))
    found = directory.read()
    assert replicas(found.states) == [[1.0]]
    (refusal,) = found.refused
    assert (refusal.set_aside, "another version wrote it" in refusal.why) == (False, True)
    assert names(directory) == [numbered(1), numbered(2)]


def test_too_large_checkpoint_is_not_read(directory, state, monkeypatch, replicas):
    directory.write([state(1)])
    size = directory.write([state(1), state(2)])
    monkeypatch.setattr(checkpoint_store, "LARGEST_BYTES", size - 1)
    found = directory.read()
    assert replicas(found.states) == [[1.0]]
    assert found.refused[0].why == f"{size} bytes; more than {size - 1} are not read"


@pytest.mark.parametrize("call", ["write", "fsync", "rename"])
def test_failed_write_leaves_the_previous_checkpoint_intact(directory, state, replicas, monkeypatch, call):
    directory.write([state(1)])

    def fail(*_args, **_more):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    target = {"write": (checkpoint_store, "pack"), "fsync": (os, "fsync"), "rename": (checkpoint_store.Path, "rename")}[
        call
    ]
    with monkeypatch.context() as broken:
        broken.setattr(*target, fail)
        with pytest.raises(OSError, match="No space left on device"):
            directory.write([state(2)])
    assert names(directory) == [numbered(1)], "a partial file does not stay on a full disk"
    assert replicas(directory.read().states) == [[1.0]]


def test_partial_file_is_removed_at_the_next_start(directory, state, replicas):
    directory.write([state(1)])
    (directory.path / ".x7f3.tmp").write_bytes(b"half")
    directory.release()
    directory.claim()
    assert replicas(directory.read().states) == [[1.0]]
    assert names(directory) == [numbered(1)]


def test_checkpoint_and_its_name_are_synced_before_and_after_the_rename(directory, state, monkeypatch):
    steps, fsync, rename = [], os.fsync, checkpoint_store.Path.rename
    monkeypatch.setattr(os, "fsync", lambda file: (steps.append("fsync"), fsync(file)))
    monkeypatch.setattr(
        checkpoint_store.Path, "rename", lambda file, to: (steps.append(f"to {to.name}"), rename(file, to))
    )
    directory.write([state(1)])
    assert steps == ["fsync", f"to {numbered(1)}", "fsync"]


def test_checkpoint_is_readable_by_its_owner_only(directory, state):
    directory.write([state(1)])
    assert (directory.path / numbered(1)).stat().st_mode & 0o777 == 0o600


def test_foreign_files_are_left_alone(directory, state):
    foreign = ["lost+found", "notes.state", "notes.tmp", "1.state", "000000000009.state.bak"]
    for name in foreign:
        (directory.path / name).write_bytes(b"mine")
    directory.release()
    directory.claim()
    directory.write([state(1)])
    directory.read()
    assert names(directory) == sorted([*foreign, numbered(1)])


def test_directory_in_place_of_a_checkpoint_is_skipped(directory, state, replicas, monkeypatch):
    directory.write([state(1)])
    (directory.path / numbered(2)).mkdir()
    found = directory.read()
    assert replicas(found.states) == [[1.0]]
    assert [(refusal.why, refusal.set_aside) for refusal in found.refused] == [
        ("must be a regular file, got a directory", False)
    ]


@pytest.fixture
def one_written(directory, state):
    """Checkpoint 1 is complete; the test creates the file of checkpoint 2 at the returned path."""
    directory.write([state(1)])
    return directory.path / numbered(2)


# A device is endless, and a FIFO without a writer blocks: a bug here would never return.
def test_symbolic_link_is_refused_and_its_device_is_not_read(directory, one_written, replicas, monkeypatch):
    one_written.symlink_to("/dev/zero")
    monkeypatch.setattr(checkpoint_store, "LARGEST_BYTES", 10_000)  # what a bug would read
    found = directory.read()
    assert replicas(found.states) == [[1.0]]
    assert [(refusal.why, refusal.set_aside) for refusal in found.refused] == [
        ("must be a regular file, got a symbolic link", False)
    ]


def test_fifo_does_not_block_the_start(directory, one_written, replicas):
    os.mkfifo(one_written)
    opened = os.open(one_written, os.O_RDWR | os.O_NONBLOCK)  # so that a bug reads nothing and returns
    try:
        found = directory.read()
    finally:
        os.close(opened)
    assert replicas(found.states) == [[1.0]]
    assert [(refusal.why, refusal.set_aside) for refusal in found.refused] == [
        ("must be a regular file, got a FIFO", False)
    ]


def test_number_of_13_digits_is_read_back_and_incremented(directory, state, replicas):
    directory.write([state(1)])
    (directory.path / numbered(1)).rename(directory.path / "999999999999.state")
    for count in (2, 3):
        directory.write([state(count)])
        assert replicas(directory.read().states) == [[float(count)]]
    assert names(directory) == ["1000000000000.state", "1000000000001.state"]


def test_newest_state_by_its_recorded_time_is_restored(directory, state, replicas):
    directory.write([state(2, at=1020.0)])
    directory.write([state(1, at=1010.0)])  # an older writer that finished last
    assert replicas(directory.read(now=1030.0).states) == [[2.0]]
    assert directory.read(now=1030.0).refused == []


def test_later_number_is_restored_after_the_clock_was_set_back(directory, state, replicas):
    directory.write([state(1, at=4600.0)])
    directory.write([state(2, at=1010.0)])
    assert replicas(directory.read(now=1020.0).states) == [[2.0]]


def test_states_too_large_to_be_read_back_are_not_written(directory, state, replicas, monkeypatch):
    directory.write([state(1)])
    monkeypatch.setattr(checkpoint_store, "LARGEST_BYTES", 100)
    with pytest.raises(OSError, match="File too large"):
        directory.write([state(2)])
    monkeypatch.undo()
    assert names(directory) == [numbered(1)]

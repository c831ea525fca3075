"""The files: a whole one is there at every moment, whatever happens to the process or to the disk."""

import errno
import os

import pytest

from scaler.engine import checkpoint_store
from scaler.engine.checkpoint_format import FORMAT, pack
from scaler.engine.checkpoint_store import Directory


@pytest.fixture
def directory(tmp_path):
    """As the process that holds its lock has it."""
    made = Directory(tmp_path / "state")
    made.claim()
    yield made
    made.release()


def names(directory):
    return sorted(file.name for file in directory.path.iterdir() if file.name != ".lock")


def numbered(number):
    return f"{number:012d}.state"


def test_what_was_written_last_is_read(directory, state, replicas):
    for count in (1, 2, 3):
        directory.write([state(count), state(10 * count)])
    found = directory.read()
    assert replicas(found.states) == [[3.0], [30.0]]
    assert (found.file.name, found.refused) == (numbered(3), [])


def test_the_last_two_are_kept(directory, state):
    for count in range(5):
        directory.write([state(count)])
    assert names(directory) == [numbered(4), numbered(5)]


def test_where_there_is_none_there_is_none(directory):
    assert directory.read() == ([], None, [])
    assert Directory(directory.path / "not there").read() == ([], None, [])


def test_a_torn_one_is_set_aside_and_the_one_before_it_is_read(directory, state, replicas):
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
    assert names(directory) == [numbered(1), numbered(2) + ".torn", numbered(3)], "a name is never used twice"


def test_of_all_that_were_torn_one_is_kept_to_look_into(directory, state):
    for turn in (1, 2):
        directory.write([state(turn)])
        (directory.path / numbered(turn)).write_bytes(b"")
        assert directory.read().states == []
    assert names(directory) == [numbered(2) + ".torn"]


def test_torn_at_every_byte_the_one_before_it_is_read(directory, state, replicas):
    directory.write([state(1)])
    directory.write([state(2)])
    newest = directory.path / numbered(2)
    whole = newest.read_bytes()
    for end in range(len(whole)):
        newest.write_bytes(whole[:end])
        assert replicas(directory.read().states) == [[1.0]]


def test_one_of_another_format_stays_for_the_version_that_wrote_it(directory, state, replicas):
    directory.write([state(1)])
    later = bytearray(pack(state(2)))
    later[8] = FORMAT + 1
    (directory.path / numbered(2)).write_bytes(bytes(later))
    found = directory.read()
    assert replicas(found.states) == [[1.0]]
    (refusal,) = found.refused
    assert (refusal.set_aside, "another version wrote it" in refusal.why) == (False, True)
    assert names(directory) == [numbered(1), numbered(2)]


def test_one_that_is_too_large_is_not_even_read(directory, state, monkeypatch, replicas):
    directory.write([state(1)])
    size = directory.write([state(1), state(2)])
    monkeypatch.setattr(checkpoint_store, "LARGEST_BYTES", size - 1)
    found = directory.read()
    assert replicas(found.states) == [[1.0]]
    assert found.refused[0].why == f"{size} bytes; more than {size - 1} are not read"


@pytest.mark.parametrize("call", ["write", "fsync", "rename"])
def test_killed_or_failing_at_any_step_leaves_the_last_one_whole(directory, state, replicas, monkeypatch, call):
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
    assert names(directory) == [numbered(1)], "half a file does not stay on a full disk"
    assert replicas(directory.read().states) == [[1.0]]


def test_what_a_kill_left_unfinished_is_removed_at_the_next_start(directory, state, replicas):
    directory.write([state(1)])
    (directory.path / ".x7f3.tmp").write_bytes(b"half")
    directory.release()
    directory.claim()
    assert replicas(directory.read().states) == [[1.0]]
    assert names(directory) == [numbered(1)]


def test_it_is_durable_before_it_has_its_name_and_so_is_the_name(directory, state, monkeypatch):
    steps, fsync, rename = [], os.fsync, checkpoint_store.Path.rename
    monkeypatch.setattr(os, "fsync", lambda file: (steps.append("fsync"), fsync(file)))
    monkeypatch.setattr(
        checkpoint_store.Path, "rename", lambda file, to: (steps.append(f"to {to.name}"), rename(file, to))
    )
    directory.write([state(1)])
    assert steps == ["fsync", f"to {numbered(1)}", "fsync"]


def test_nobody_else_may_read_it(directory, state):
    directory.write([state(1)])
    assert (directory.path / numbered(1)).stat().st_mode & 0o777 == 0o600


def test_other_peoples_files_are_left_alone(directory, state):
    others = ["lost+found", "notes.state", "notes.tmp", "1.state", "000000000009.state.bak"]
    for name in others:
        (directory.path / name).write_bytes(b"mine")
    directory.release()
    directory.claim()
    directory.write([state(1)])
    directory.read()
    assert names(directory) == sorted([*others, numbered(1)])


def test_a_file_that_may_not_be_read_costs_that_file(directory, state, replicas, monkeypatch):
    directory.write([state(1)])
    (directory.path / numbered(2)).mkdir()
    found = directory.read()
    assert replicas(found.states) == [[1.0]]
    assert [(refusal.why, refusal.set_aside) for refusal in found.refused] == [
        ("must be a regular file, got a directory", False)
    ]


@pytest.fixture
def one_written(directory, state):
    """Number 1 is a whole checkpoint, and what number 2 is a test says."""
    directory.write([state(1)])
    return directory.path / numbered(2)


# A device has no end, and a FIFO without a writer none to wait for: a fault here would never return.
def test_symbolic_link_is_refused_and_the_device_behind_it_is_not_read(directory, one_written, replicas, monkeypatch):
    one_written.symlink_to("/dev/zero")
    monkeypatch.setattr(checkpoint_store, "LARGEST_BYTES", 10_000)  # what the fault would read
    found = directory.read()
    assert replicas(found.states) == [[1.0]]
    assert [(refusal.why, refusal.set_aside) for refusal in found.refused] == [
        ("must be a regular file, got a symbolic link", False)
    ]


def test_fifo_does_not_block_the_start(directory, one_written, replicas):
    os.mkfifo(one_written)
    opened = os.open(one_written, os.O_RDWR | os.O_NONBLOCK)  # so that the fault reads nothing and returns
    try:
        found = directory.read()
    finally:
        os.close(opened)
    assert replicas(found.states) == [[1.0]]
    assert [(refusal.why, refusal.set_aside) for refusal in found.refused] == [
        ("must be a regular file, got a FIFO", False)
    ]


def test_number_of_13_digits_is_read_back_and_counted_on(directory, state, replicas):
    directory.write([state(1)])
    (directory.path / numbered(1)).rename(directory.path / "999999999999.state")
    for count in (2, 3):
        directory.write([state(count)])
        assert replicas(directory.read().states) == [[float(count)]]
    assert names(directory) == ["1000000000000.state", "1000000000001.state"]


def test_newest_state_by_its_own_time_is_restored(directory, state, replicas):
    directory.write([state(2, at=1020.0)])
    directory.write([state(1, at=1010.0)])  # a writer of before that finished last
    assert replicas(directory.read(now=1030.0).states) == [[2.0]]
    assert directory.read(now=1030.0).refused == []


def test_after_the_clock_was_set_back_the_later_number_is_restored(directory, state, replicas):
    directory.write([state(1, at=4600.0)])
    directory.write([state(2, at=1010.0)])
    assert replicas(directory.read(now=1020.0).states) == [[2.0]]


def test_states_that_would_not_be_read_back_are_not_written(directory, state, replicas, monkeypatch):
    directory.write([state(1)])
    monkeypatch.setattr(checkpoint_store, "LARGEST_BYTES", 100)
    with pytest.raises(OSError, match="File too large"):
        directory.write([state(2)])
    monkeypatch.undo()
    assert names(directory) == [numbered(1)]

"""The files: a whole one is there at every moment, whatever happens to the process or to the disk."""

import errno
import os

import pytest

from scaler import snapshots
from scaler.snapshots import Directory
from scaler.state import FORMAT, pack


@pytest.fixture
def directory(tmp_path):
    return Directory(tmp_path / "state")


def names(directory):
    return sorted(file.name for file in directory.path.iterdir())


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
    assert directory.read().states == []
    directory.path.mkdir()
    assert directory.read() == ([], None, [])


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
    monkeypatch.setattr(snapshots, "LARGEST_BYTES", size - 1)
    found = directory.read()
    assert replicas(found.states) == [[1.0]]
    assert found.refused[0].why == f"{size} bytes; more than {size - 1} are not read"


@pytest.mark.parametrize("call", ["write", "fsync", "rename"])
def test_killed_or_failing_at_any_step_leaves_the_last_one_whole(directory, state, replicas, monkeypatch, call):
    directory.write([state(1)])

    def fail(*_args, **_more):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    target = {"write": (snapshots, "pack"), "fsync": (os, "fsync"), "rename": (snapshots.Path, "rename")}[call]
    with monkeypatch.context() as broken:
        broken.setattr(*target, fail)
        with pytest.raises(OSError, match="No space left on device"):
            directory.write([state(2)])
    assert names(directory) == [numbered(1)], "half a file does not stay on a full disk"
    assert replicas(directory.read().states) == [[1.0]]


def test_what_a_kill_left_unfinished_is_removed_at_the_next_start(directory, state, replicas):
    directory.write([state(1)])
    (directory.path / ".x7f3.tmp").write_bytes(b"half")
    assert replicas(directory.read().states) == [[1.0]]
    assert names(directory) == [numbered(1)]


def test_it_is_durable_before_it_has_its_name_and_so_is_the_name(directory, state, monkeypatch):
    steps, fsync, rename = [], os.fsync, snapshots.Path.rename
    monkeypatch.setattr(os, "fsync", lambda file: (steps.append("fsync"), fsync(file)))
    monkeypatch.setattr(snapshots.Path, "rename", lambda file, to: (steps.append(f"to {to.name}"), rename(file, to)))
    directory.write([state(1)])
    assert steps == ["fsync", f"to {numbered(1)}", "fsync"]


def test_nobody_else_may_read_it(directory, state):
    directory.write([state(1)])
    assert (directory.path / numbered(1)).stat().st_mode & 0o777 == 0o600


def test_other_peoples_files_are_left_alone(directory, state):
    directory.path.mkdir()
    for name in ("lost+found", "notes.state", "1.state", "000000000009.state.bak"):
        (directory.path / name).write_bytes(b"mine")
    directory.write([state(1)])
    directory.read()
    assert names(directory) == sorted(["lost+found", "notes.state", "1.state", "000000000009.state.bak", numbered(1)])


def test_a_file_that_may_not_be_read_costs_that_file(directory, state, replicas, monkeypatch):
    directory.write([state(1)])
    (directory.path / numbered(2)).mkdir()
    found = directory.read()
    assert replicas(found.states) == [[1.0]]
    assert [(refusal.why, refusal.set_aside) for refusal in found.refused] == [("Is a directory", False)]

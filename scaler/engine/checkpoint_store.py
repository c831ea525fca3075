"""Checkpoints: states as files, of which a whole one is there at every moment.

A snapshot is written beside the others under another name, made durable, and renamed: a process that is killed, or a
machine that loses its power, leaves the last one as it was. The last two are kept. One that cannot be read is set aside
under `.torn`, said once, and the one before it is read. Names count up, because clocks go back.

One process writes: the one that holds the lock of the directory. Another one on the same directory reads, serves, and
writes as soon as the lock is free.

Reading and writing take place in one thread of their own, in the order in which the states were copied: an older state
never supersedes a newer one. A directory that is full, read-only or gone is one line in the log when that begins and
one when it ends; nothing else depends on it.

Worked example: `000000000007.state` and `000000000008.state` lie there, and the second was torn by a bad disk: it
becomes `000000000008.state.torn`, the first is read, and the next one that is written is `000000000009.state`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import socket
import stat
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from fcntl import LOCK_EX, LOCK_NB, flock
from io import BufferedReader
from math import inf
from pathlib import Path
from tempfile import mkstemp
from typing import NamedTuple, TypeAlias, TypeVar

import structlog

from exporter.clock import Clock
from scaler import config
from scaler.columns import State

from .checkpoint import UnclaimedState
from .checkpoint_format import (
    LARGEST_BYTES,
    OtherVersionError,
    TornError,
    UnreadableError,
    moment_of,
    pack,
    size_of,
    unpack_all,
)

# Padded to 12 digits. A number of more digits is read as well, because it may be counted up to.
_NAME = re.compile(r"^([0-9]{12,})\.state$")
_TORN, _UNFINISHED, _LOCK = ".torn", ".tmp", ".lock"
_OWNER_BYTES = 300
KEPT_FILES = 2
Remembered: TypeAlias = Callable[[], Awaitable[Sequence[State]]]
_Result = TypeVar("_Result")
# A hanging disk must not delay the end of a process after SIGTERM.
LAST_WRITE_S = 5.0


@dataclass(frozen=True, slots=True)
class RejectedCheckpoint:
    """A snapshot that was not taken: which, why, and whether it was set aside."""

    file: Path
    why: str
    set_aside: bool


class CheckpointFound(NamedTuple):
    """The checkpoint that was read at the start. file: None if no file could be read."""

    states: list[State]
    file: Path | None
    refused: list[RejectedCheckpoint]


class Claim(NamedTuple):
    """The result of asking for a directory's lock.

    owned:   this process writes there. owner: the host and process that does, if another one does.
    problem: why the directory cannot be locked: then each process that asks is an owner.
    """

    owned: bool
    owner: str = ""
    problem: str | None = None


class Directory:
    """The files. Everything here blocks and may raise OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None  # the descriptor of the lock file, while the lock is ours
        self._claim = Claim(owned=False)

    def claim(self) -> Claim:
        """Lock the directory for this process, until `release` or its end. Files that a kill left unfinished go."""
        if self._lock is not None and self._is_there(self._lock):
            return self._claim
        self.release()
        self.path.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(self.path / _LOCK, flags, 0o600)
        try:
            self._claim = _locked(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        if not self._claim.owned:
            os.close(descriptor)
            return self._claim
        self._lock = descriptor
        for left in self.path.glob(f".*{_UNFINISHED}"):
            with suppress(OSError):
                left.unlink()
        return self._claim

    def release(self) -> None:
        """Let another process have the directory."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock, self._claim = None, Claim(owned=False)

    def _is_there(self, descriptor: int) -> bool:
        """Whether this is still the directory's lock file; the directory may have been replaced."""
        try:
            return os.path.samestat(os.fstat(descriptor), os.lstat(self.path / _LOCK))
        except OSError:
            return False

    def read(self, now: float = inf) -> CheckpointFound:
        """The newest that is whole, and what was wrong with those that were tried before it.

        now: POSIX seconds. The newest by its own time is read; one from after `now` only where there is no other.
        """
        refused: list[RejectedCheckpoint] = []
        if not self.path.exists():
            return CheckpointFound([], None, refused)
        files = self._files()
        # Stable: of two that are equal the higher number is first.
        for file in sorted(files, key=lambda each: _rank(_moment(each), now), reverse=True):
            try:
                return CheckpointFound(_read(file), file, refused)
            except OtherVersionError as error:
                refused.append(RejectedCheckpoint(file, str(error), set_aside=False))
            except UnreadableError as error:
                refused.append(RejectedCheckpoint(file, str(error), set_aside=self._set_aside(file)))
            except OSError as error:
                refused.append(RejectedCheckpoint(file, error.strerror or str(error), set_aside=False))
        return CheckpointFound([], None, refused)

    def write(self, states: Sequence[State]) -> int:
        """Write one, and remove those that are not needed any more; returns its bytes."""
        self.path.mkdir(parents=True, exist_ok=True)
        number = 1 + max((int(name[1]) for name in self._names()), default=0)
        descriptor, unfinished = mkstemp(_UNFINISHED, ".", self.path)
        try:
            with os.fdopen(descriptor, "wb") as file:
                size = sum(file.write(pack(state)) for state in states)
                _check_size(max(size, sum(size_of(state) for state in states)))
                file.flush()
                os.fsync(file.fileno())
            Path(unfinished).rename(self.path / f"{number:012d}.state")
        except BaseException:
            with suppress(OSError):  # half a file on a full disk is in everybody's way
                Path(unfinished).unlink()
            raise
        _make_durable(self.path)
        for old in self._files()[KEPT_FILES:]:
            with suppress(OSError):
                old.unlink()
        return size

    def _files(self) -> list[Path]:
        """The snapshots, the highest number first."""
        named = ((_NAME.match(file.name), file) for file in self.path.iterdir())
        numbered = [(int(name[1]), file) for name, file in named if name is not None]
        return [file for _, file in sorted(numbered, reverse=True)]

    def _names(self) -> Iterator[re.Match[str]]:
        """The matched names of all checkpoint files, rejected ones included."""
        for file in self.path.iterdir():
            name = _NAME.match(file.name.removesuffix(_TORN))
            if name is not None:
                yield name

    def _set_aside(self, file: Path) -> bool:
        """One is enough to look into. What cannot be renamed stays: the directory may be read-only, or another's."""
        if not self._claim.owned:
            return False
        try:
            for old in self.path.glob(f"*{_TORN}"):
                old.unlink()
            file.rename(file.with_name(file.name + _TORN))
        except OSError:
            return False
        return True


def _check_size(size: int) -> None:
    """Raises OSError for a checkpoint that is too large to be read back."""
    if size > LARGEST_BYTES:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))


def _locked(descriptor: int) -> Claim:
    """Locks an open file and writes this process's name into it."""
    try:
        flock(descriptor, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        owner = os.pread(descriptor, _OWNER_BYTES, 0).decode(errors="replace")
        return Claim(owned=False, owner=owner.strip() or "unknown")
    except OSError as error:  # a file system without locks, as NFS without its lock manager
        return Claim(owned=True, problem=error.strerror or str(error))
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{socket.gethostname()} pid {os.getpid()}\n".encode(), 0)
    return Claim(owned=True)


def _rank(moment: float | None, now: float) -> float:
    """Sort key of a file: an unknown time is read first, so that it is rejected by name; a future one last."""
    return inf if moment is None else moment if moment <= now else -inf


def _moment(file: Path) -> float | None:
    try:
        with _opened(file) as opened:
            return moment_of(opened.read)
    except (OSError, UnreadableError):
        return None


def _read(file: Path) -> list[State]:
    with _opened(file) as opened:
        size = os.fstat(opened.fileno()).st_size
        if size > LARGEST_BYTES:
            raise TornError(f"{size} bytes; more than {LARGEST_BYTES} are not read")
        return unpack_all(opened.read(size))


def _opened(file: Path) -> BufferedReader:
    """A regular file: a link may lead to a device without end, and a FIFO waits for a writer. Raises OSError."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "must be a regular file, got a symbolic link") from error
        raise
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    kind = "a directory" if stat.S_ISDIR(mode) else "a FIFO" if stat.S_ISFIFO(mode) else "a device"
    raise OSError(errno.EINVAL, f"must be a regular file, got {kind}")


def _make_durable(directory: Path) -> None:
    """A rename is on the disk when its directory is."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class CheckpointStore:
    """Keeps what is remembered in a directory, every so often; without settings, nowhere.

    written_at: POSIX seconds of the last one, or of the start. size: its bytes; None before the first.
    owned:      this process writes there; another one may hold the directory.
    """

    def __init__(self, settings: config.Checkpoints | None, clock: Clock) -> None:
        self._settings, self._clock = settings, clock
        self._directory = None if settings is None else Directory(Path(settings.directory))
        self._log = structlog.get_logger()
        self._problem: str | None = None
        self._claim = Claim(owned=True)  # as it was logged
        # One thread: writes reach the disk in the order of their submission, even if the caller no longer waits.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoints")
        self._copying = asyncio.Lock()
        self.written_at, self.failures = clock.now(), 0
        self.size: int | None = None

    @property
    def on(self) -> bool:
        """Is anything kept?"""
        return self._directory is not None

    @property
    def owned(self) -> bool:
        return self._claim.owned

    def reload(self, settings: config.Checkpoints | None) -> None:
        """Take another interval; another directory takes a restart."""
        if (settings and settings.directory) != (self._settings and self._settings.directory):
            self._log.warning("restart required", key="state.directory")
        else:
            self._settings = settings

    def close(self) -> None:
        """Let another process have the directory once what was submitted is written."""
        if self._directory is not None:
            self._thread.submit(self._directory.release)
        self._thread.shutdown(wait=False)

    async def read(self) -> UnclaimedState:
        """The state of the last checkpoint; empty if there is none."""
        if self._directory is None:
            return UnclaimedState()
        where = str(self._directory.path)
        try:
            claim, found = await self._in_thread(_claim_and_read, self._directory, self._clock.now())
        except OSError as error:
            problem = error.strerror or str(error)
            self._log.warning("checkpoint read failed", directory=where, problem=problem)
            return UnclaimedState()
        if claim is not None:
            self._report(claim)
        for refusal in found.refused:
            what = "checkpoint corrupt" if refusal.set_aside else "checkpoint unreadable"
            self._log.warning(what, file=str(refusal.file), problem=refusal.why)
        if found.file is not None:
            ages = [round(self._clock.now() - state.at, 1) for state in found.states]
            workloads = sum(len(state.workloads) for state in found.states)
            self._log.info("checkpoint read", file=str(found.file), workloads=workloads, age_s=min(ages))
        elif found.refused:
            self._log.warning("started without state", directory=where)
        return UnclaimedState(found.states)

    async def keep(self, remembered: Remembered) -> None:
        """Write one every so often, until cancelled. `remembered`: what there is; nothing is: not yet."""
        while self._settings is not None:
            await self._clock.sleep(self._settings.interval)
            await self.write(remembered)

    async def write(self, remembered: Remembered) -> None:
        """Write one now, after those that were begun before. Whatever fails is counted, and said when it begins."""
        if self._directory is None:
            return
        try:
            async with self._copying:  # so that states are submitted in the order in which they were copied
                now, states = self._clock.now(), await remembered()
                if not states:
                    return
                writing = self._in_thread(_claim_and_write, self._directory, states)
            claim, size = await writing
        except OSError as error:
            self._fail(self._directory, error.strerror or str(error))
        except Exception as error:  # noqa: BLE001 - a bug of ours in remembering must not end what answers
            self._log.exception("checkpoint internal error")
            self._fail(self._directory, repr(error))
        else:
            self._report(claim)
            if size is None:
                return
            self.size, self.written_at = size, now
            if self._problem is not None:
                self._log.info("checkpoint write recovered", directory=str(self._directory.path))
            self._problem = None

    async def write_last(self, remembered: Remembered) -> None:
        """Before the end. A disk that hangs is not waited for."""
        if self._directory is None:
            return
        try:
            await asyncio.wait_for(self.write(remembered), LAST_WRITE_S)
        except TimeoutError:
            self._fail(self._directory, f"the last one took more than {LAST_WRITE_S:g} s")

    def _in_thread(self, work: Callable[..., _Result], *arguments: object) -> asyncio.Future[_Result]:
        """Submits work. It is done even if its caller is cancelled: a final state waits here for a slow disk."""
        return asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments))

    def _report(self, claim: Claim) -> None:
        """Logs a change of the directory's owner."""
        before, self._claim = self._claim, claim
        if claim == before or self._directory is None:
            return
        where = str(self._directory.path)
        if not claim.owned:
            self._log.warning("checkpoint directory locked", directory=where, owner=claim.owner)
        elif claim.problem is not None:
            self._log.warning("checkpoint directory cannot be locked", directory=where, problem=claim.problem)
        else:
            self._log.info("checkpoint directory acquired", directory=where)

    def _fail(self, directory: Directory, problem: str) -> None:
        self.failures += 1
        if self._problem is None:
            self._log.warning("checkpoint write failed", directory=str(directory.path), problem=problem)
        self._problem = problem


def _claim_and_read(directory: Directory, now: float) -> tuple[Claim | None, CheckpointFound]:
    """No claim where there is no directory yet, or where it cannot be written: writing it will say why."""
    claim = None
    if directory.path.exists():
        with suppress(OSError):
            claim = directory.claim()
    return claim, directory.read(now)


def _claim_and_write(directory: Directory, states: Sequence[State]) -> tuple[Claim, int | None]:
    """The bytes that were written; None while another process holds the directory."""
    claim = directory.claim()
    return claim, directory.write(states) if claim.owned else None

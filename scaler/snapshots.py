"""Snapshots: states as files, of which a whole one is there at every moment.

A snapshot is written beside the others under another name, made durable, and renamed: a process that is killed, or a
machine that loses its power, leaves the last one as it was. The last two are kept. One that cannot be read is set aside
under `.torn`, said once, and the one before it is read. Names count up, because clocks go back.

Writing takes place in a thread. A directory that is full, read-only or gone is one line in the log when that begins and
one when it ends; nothing else depends on it.

Worked example: `000000000007.state` and `000000000008.state` lie there, and the second was torn by a bad disk: it
becomes `000000000008.state.torn`, the first is read, and the next one that is written is `000000000009.state`.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkstemp
from typing import NamedTuple, TypeAlias

import structlog

from exporter.clock import Clock

from . import config
from .state import Kept, OtherVersionError, State, TornError, UnreadableError, pack, unpack_all
from .state.wire import LARGEST_BYTES

_NAME = re.compile(r"^(\d{12})\.state$")
_TORN, _UNFINISHED = ".torn", ".tmp"
KEPT_FILES = 2
Remembered: TypeAlias = Callable[[], Awaitable[Sequence[State]]]
# A disk that hangs must not keep a process from ending that has been told to.
LAST_WRITE_S = 5.0


@dataclass(frozen=True, slots=True)
class Refusal:
    """A snapshot that was not taken: which, why, and whether it was set aside."""

    file: Path
    why: str
    set_aside: bool


class Found(NamedTuple):
    """What was read at a start. file: None is: there was none that can be read."""

    states: list[State]
    file: Path | None
    refused: list[Refusal]


class Directory:
    """The files. Everything here blocks and may raise OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Found:
        """The newest that is whole, and what was wrong with those that are newer. An unfinished one is removed."""
        refused: list[Refusal] = []
        if not self.path.exists():
            return Found([], None, refused)
        for left in self.path.glob(f"*{_UNFINISHED}"):
            with suppress(OSError):
                left.unlink()
        for file in self._files():
            try:
                return Found(_read(file), file, refused)
            except OtherVersionError as error:
                refused.append(Refusal(file, str(error), set_aside=False))
            except UnreadableError as error:
                refused.append(Refusal(file, str(error), set_aside=self._set_aside(file)))
            except OSError as error:
                refused.append(Refusal(file, error.strerror or str(error), set_aside=False))
        return Found([], None, refused)

    def write(self, states: Sequence[State]) -> int:
        """Write one, and remove those that are not needed any more; returns its bytes."""
        self.path.mkdir(parents=True, exist_ok=True)
        number = 1 + max((int(name[1]) for name in self._names()), default=0)
        descriptor, unfinished = mkstemp(_UNFINISHED, ".", self.path)
        try:
            with os.fdopen(descriptor, "wb") as file:
                size = sum(file.write(pack(state)) for state in states)
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
        """The snapshots, the newest first."""
        return sorted((file for file in self.path.iterdir() if _NAME.match(file.name)), reverse=True)

    def _names(self) -> Iterator[re.Match[str]]:
        """Of all that ever was a snapshot, whatever became of it."""
        for file in self.path.iterdir():
            name = _NAME.match(file.name.removesuffix(_TORN))
            if name is not None:
                yield name

    def _set_aside(self, file: Path) -> bool:
        """One is enough to look into. What cannot be renamed stays: the directory may be read-only."""
        try:
            for old in self.path.glob(f"*{_TORN}"):
                old.unlink()
            file.rename(file.with_name(file.name + _TORN))
        except OSError:
            return False
        return True


def _read(file: Path) -> list[State]:
    with file.open("rb") as opened:
        size = os.fstat(opened.fileno()).st_size
        if size > LARGEST_BYTES:
            raise TornError(f"{size} bytes; more than {LARGEST_BYTES} are not read")
        return unpack_all(opened.read())


def _make_durable(directory: Path) -> None:
    """A rename is on the disk when its directory is."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Snapshots:
    """Keeps what is remembered in a directory, every so often; without settings, nowhere.

    written_at: POSIX seconds of the last one, or of the start. size: its bytes; None before the first.
    """

    def __init__(self, settings: config.Snapshots | None, clock: Clock) -> None:
        self._settings, self._clock = settings, clock
        self._directory = None if settings is None else Directory(Path(settings.directory))
        self._log = structlog.get_logger()
        self._trouble: str | None = None
        self.written_at, self.failures = clock.now(), 0
        self.size: int | None = None

    @property
    def on(self) -> bool:
        """Is anything kept?"""
        return self._directory is not None

    def reload(self, settings: config.Snapshots | None) -> None:
        """Take another interval; another directory takes a restart."""
        if (settings and settings.directory) != (self._settings and self._settings.directory):
            self._log.warning("state.directory has changed: that takes a restart; everything else is taken now")
        else:
            self._settings = settings

    async def read(self) -> Kept:
        """What was remembered when the last snapshot was written; nothing where there is none."""
        if self._directory is None:
            return Kept()
        where = str(self._directory.path)
        try:
            found = await asyncio.to_thread(self._directory.read)
        except OSError as error:
            problem = error.strerror or str(error)
            self._log.warning("snapshots cannot be read; nothing is remembered", directory=where, problem=problem)
            return Kept()
        for refusal in found.refused:
            what = "a snapshot was torn and is set aside" if refusal.set_aside else "a snapshot cannot be read"
            self._log.warning(what, file=str(refusal.file), problem=refusal.why)
        if found.file is not None:
            ages = [round(self._clock.now() - state.at, 1) for state in found.states]
            workloads = sum(len(state.workloads) for state in found.states)
            self._log.info("snapshot read", file=str(found.file), workloads=workloads, age_s=min(ages))
        elif found.refused:
            self._log.warning("nothing is remembered: what the cluster has is held", directory=where)
        return Kept(found.states)

    async def keep(self, remembered: Remembered) -> None:
        """Write one every so often, until cancelled. `remembered`: what there is; nothing is: not yet."""
        while self._settings is not None:
            await self._clock.sleep(self._settings.interval)
            await self.write(remembered)

    async def write(self, remembered: Remembered) -> None:
        """Write one now. Whatever fails is counted, and said when it begins."""
        if self._directory is None:
            return
        now = self._clock.now()
        try:
            states = await remembered()
            if not states:
                return
            self.size = await asyncio.to_thread(self._directory.write, states)
        except OSError as error:
            self._fail(self._directory, error.strerror or str(error))
        except Exception as error:  # noqa: BLE001 - a bug of ours in remembering must not end what answers
            self._log.exception("a snapshot failed: please report")
            self._fail(self._directory, repr(error))
        else:
            self.written_at = now
            if self._trouble is not None:
                self._log.info("snapshots are written again", directory=str(self._directory.path))
            self._trouble = None

    async def write_last(self, remembered: Remembered) -> None:
        """Before the end. A disk that hangs is not waited for."""
        if self._directory is None:
            return
        try:
            await asyncio.wait_for(self.write(remembered), LAST_WRITE_S)
        except TimeoutError:
            self._fail(self._directory, f"the last one took more than {LAST_WRITE_S:g} s")

    def _fail(self, directory: Directory, problem: str) -> None:
        self.failures += 1
        if self._trouble is None:
            self._log.warning(
                "snapshots cannot be written: a restart will remember nothing since the last one",
                directory=str(directory.path),
                problem=problem,
            )
        self._trouble = problem

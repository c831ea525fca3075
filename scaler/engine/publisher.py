"""Publishes the Board that every reader is served from, and wakes readers when an entry changes.

Publishing is one assignment; no reader waits for a lock. A reader that waits for a change compares the entry it has
with the present one, so that no change is lost.

With several replicas of Tidegate this one keeps its local Board beside the leader's. It serves the leader's while it
follows (`follow`), and its local Board after `alone`. A workload without an entry of the leader, or with a
refused one (`admits`), is served from the local Board.

Worked example: `publish([chat at 2], 10.0)` serves 2. After `follow({chat: at 3}, 11.0)` it serves 3, whatever is
published; after `alone()` it serves the 2 that was published last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from exporter.model import WorkloadKey
from scaler.model import EMPTY, Board, Decision, Reason


class Publisher:
    """Holds the present Board. One writer, the daemon's loop; any number of readers in the same loop.

    admits:    whether a decision of the leader is allowed here. It is called once for each entry, and again when the
               list of workloads changes.
    renew:     brings the evidence of the Board up to the last sweep. Readers of evidence await it first: a sweep builds
               a Decision only if the answer is another one.
    on_change: called with the previous decisions, the changed ones, and the Board's time (POSIX seconds).
               It is called in the middle of a decision, so it must not wait for anything.
    """

    def __init__(self, workloads: Iterable[WorkloadKey]) -> None:
        self.on_change: Callable[[Mapping[WorkloadKey, Decision], Mapping[WorkloadKey, Decision], float], None] | None
        self.on_change = None
        self.admits: Callable[[Decision], bool] = lambda _: True
        self.renew: Callable[[], Awaitable[None]] = _nothing
        self._workloads = frozenset(workloads)
        self._local = self._board = EMPTY
        self._led: Mapping[WorkloadKey, Decision] | None = None
        self._waiting: dict[WorkloadKey, asyncio.Event] = {}
        self._decided = asyncio.Event()

    @property
    def board(self) -> Board:
        """The Board that is served."""
        return self._board

    @property
    def local(self) -> Board:
        """The Board of this replica's decisions."""
        return self._local

    @property
    def following(self) -> bool:
        """Whether the leader's Board is served."""
        return self._led is not None

    def knows(self, workload: WorkloadKey) -> bool:
        """Whether the workload exists, decided or not."""
        return workload in self._workloads

    def get(self, workload: WorkloadKey) -> Decision | None:
        return self._board.decisions.get(workload)

    def publish(self, changed: Iterable[Decision], at: float) -> None:
        """Replace some own entries. `at`: POSIX seconds of the decision.

        A response of the last configuration may land while the next one starts: removed workloads stay removed.
        """
        fresh = {decision.workload: decision for decision in changed if self.knows(decision.workload)}
        old = self._local
        decisions = MappingProxyType({**old.decisions, **fresh}) if fresh else old.decisions
        self._local = Board(version=old.version + bool(fresh), at=at, decisions=decisions)
        if self._led is None:
            self._answer(fresh, at)
        else:
            led, answers = self._led, self._board.decisions
            local = [key for key in fresh if key not in led or answers.get(key) is not led[key]]
            self._answer(local, self._board.at)
        self._decided.set()
        self._decided = asyncio.Event()

    def follow(self, decisions: Mapping[WorkloadKey, Decision], at: float) -> None:
        """Answer with these, the whole of the leader's Board. `at`: POSIX seconds of its last sweep, by our clock."""
        self._led = decisions
        self._answer(self._workloads, at)

    def alone(self) -> None:
        """Serves the local Board again."""
        if self._led is not None:
            self._led = None
            self._answer(self._workloads, self._local.at)

    def give_up(self, at: float) -> None:
        """Nothing has been decided for too long: local entries become unknown. Workloads at zero stay there: an error
        would let KEDA's fallback wake all of them at once.
        """
        held_since = self._local.at
        given_up = (
            _expire(decision, held_since, at)
            for decision in self._local.decisions.values()
            if decision.replicas is not None
        )
        self.publish([decision for decision in given_up if decision is not None], held_since)

    def keep_only(self, workloads: Iterable[WorkloadKey], at: float, begun: Iterable[WorkloadKey] = ()) -> None:
        """Applies a new configuration: removes the entries of removed workloads and notifies their readers.

        begun: workloads with new state; their published decisions were for another scale target.
        """
        self._workloads = frozenset(workloads)
        kept = self._workloads.difference(begun)
        self._local = _only(kept, self._local, at)
        self._board = _only(kept, self._board, at)
        if self._led is not None:
            self._led = {key: entry for key, entry in self._led.items() if self.admits(entry)}
            self._answer(self._workloads, self._board.at)
        for workload in set(self._waiting) - self._workloads:
            self._wake(workload)

    def judge_again(self, workloads: Iterable[WorkloadKey]) -> None:
        """Asks `admits` again for the leader's entries of these workloads, because their bounds have changed."""
        led = self._led
        if led is None:
            return
        touched = tuple(workloads)
        refused = {key for key in touched if key in led and not self.admits(led[key])}
        if refused:
            self._led = {key: entry for key, entry in led.items() if key not in refused}
        self._answer(touched, self._board.at)

    async def changed(self, workload: WorkloadKey, last: Decision | None) -> Decision | None:
        """Wait until the entry is not `seen`; None is: the workload is no longer configured."""
        while self.knows(workload):
            present = self.get(workload)
            if present is not last:
                return present
            await self._waiting.setdefault(workload, asyncio.Event()).wait()
        return None

    async def decided(self) -> None:
        """Wait until something is decided here, or a sweep finds that nothing is to be."""
        await self._decided.wait()

    def _answer(self, touched: Iterable[WorkloadKey], at: float) -> None:
        """Give the answers to these workloads, of which some may be other than before."""
        local, old = self._local.decisions, self._board
        now = {key: decision for key in touched if (decision := self._led_entry(key) or local.get(key)) is not None}
        fresh = {key: decision for key, decision in now.items() if old.decisions.get(key) is not decision}
        decisions = MappingProxyType({**old.decisions, **fresh}) if fresh else old.decisions
        self._board = Board(version=old.version + bool(fresh), at=at, decisions=decisions)
        for workload in fresh:
            self._wake(workload)
        if fresh and self.on_change is not None:
            self.on_change(old.decisions, fresh, at)

    def _led_entry(self, workload: WorkloadKey) -> Decision | None:
        """The leader's entry, where it may be the answer."""
        entry = None if self._led is None else self._led.get(workload)
        is_same = entry is None or self._board.decisions.get(workload) is entry
        return entry if entry is None or is_same or self.admits(entry) else None

    def _wake(self, workload: WorkloadKey) -> None:
        event = self._waiting.pop(workload, None)
        if event is not None:
            event.set()


async def _nothing() -> None:
    """No control loop decides yet."""


def _only(workloads: frozenset[WorkloadKey], board: Board, at: float) -> Board:
    decisions = {key: decision for key, decision in board.decisions.items() if key in workloads}
    return Board(version=board.version + 1, at=at, decisions=MappingProxyType(decisions))


def _expire(decision: Decision, held_since: float, at: float) -> Decision | None:
    """The decision in place of one that is not renewed; None: it stays."""
    if decision.active or decision.evidence.replicas_wanted:  # what still runs must not be put to sleep by an old proof
        return replace(decision, replicas=None, published=None, active=True, reason=Reason.UNKNOWN, decided_at=at)
    if decision.reason is Reason.HELD:
        return None
    return replace(decision, reason=Reason.HELD, decided_at=at, held_since=held_since)

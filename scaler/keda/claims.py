"""Whom a call is believed to be now, by the last word of the cluster or the configuration, and who waits for the next.

It knows that what is believed gets replaced while streams are open; how a call is compared is `census`'s business,
or `metadata`'s where there is no Kubernetes. Nothing is kept of a call that is refused.

Worked example: a stream is open for `ai/chat`, and the ScaledObject is edited. `take(census)` finds that what is
believed about `ai/chat` is no longer what it was, and ends the turn that the stream waits in; it asks `whose` again
and is told. A census that says the same of `ai/chat` wakes nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, Protocol
from weakref import WeakValueDictionary

from exporter.model import WorkloadKey

from ..census import Doubt, Refused, Unbelieved


class Believed(Protocol):
    """What is believed at one moment: a Census, or what the configuration alone says."""

    @property
    def triggers(self) -> int:
        """The number of external triggers, which bounds how many calls KEDA has open."""

    def whose(self, namespace: str, name: str, metadata: Mapping[str, str]) -> WorkloadKey:
        """The workload that a call speaks for. Raises Unbelieved."""

    def about(self, namespace: str, name: str) -> object:
        """Equal as long as every call in this object's name gets the same answer from `whose`."""


class Turn:
    """As long as nothing else is believed of one object."""

    def __init__(self) -> None:
        self.over = False
        self._waits: set[asyncio.Timeout] = set()

    def end(self) -> None:
        self.over = True
        for wait in self._waits:
            wait.reschedule(asyncio.get_running_loop().time())

    async def until(self, change: Coroutine[Any, Any, object]) -> None:
        """Wait for a change, but not longer than this turn. What is waited for runs in the caller's own task: a push is
        then under way one step of the loop after its decision, which is what a draining server gives it.
        """
        if self.over:
            change.close()
            return
        try:
            async with asyncio.timeout(None) as wait:
                self._waits.add(wait)
                try:
                    await change
                finally:
                    self._waits.discard(wait)
        except TimeoutError:
            if not self.over:
                raise


class Claims:
    """One writer, the daemon's loop; any number of readers in the same loop.

    triggers: the number of external triggers that are known; None before the first list.
    """

    def __init__(self) -> None:
        self.triggers: int | None = None
        self._believed: Believed | None = None
        self._sighted = True
        # Weak: a turn lives as long as a stream that waits in it, whatever names were made up.
        self._turns: WeakValueDictionary[tuple[str, str], Turn] = WeakValueDictionary()

    def take(self, believed: Believed) -> None:
        """Believe this from now on, and wake the streams of objects that it says something else of."""
        old, self._believed, self._sighted = self._believed, believed, True
        self.triggers = believed.triggers
        for name, turn in list(self._turns.items()):
            if old is None or old.about(*name) != believed.about(*name):
                del self._turns[name]
                turn.end()

    def lose_sight(self) -> None:
        """The cluster has not answered for too long: what it said is still believed, what it did not say is unknown."""
        self._sighted = False

    def whose(self, namespace: str, name: str, metadata: Mapping[str, str]) -> WorkloadKey:
        """The workload that a call speaks for. Raises Unbelieved."""
        if self._believed is None:
            raise Unbelieved(Refused(Doubt.UNSEEN, "the cluster's ScaledObjects have not been listed yet"))
        try:
            return self._believed.whose(namespace, name, metadata)
        except Unbelieved as doubted:
            if self._sighted or doubted.refused.doubt not in {Doubt.NOBODY, Doubt.OTHERWISE}:
                raise
            sentence = f"the Kubernetes API does not answer Tidegate; when it last did: {doubted.refused.sentence}"
            raise Unbelieved(Refused(Doubt.UNSEEN, sentence, doubted.refused.detail)) from None

    def turn(self, namespace: str, name: str) -> Turn:
        """Over once something else is believed of this object. Keep it for as long as that matters."""
        turn = self._turns.get((namespace, name))
        if turn is None:
            turn = self._turns[namespace, name] = Turn()
        return turn

"""The scrapes and decisions of the configuration in force, for everybody who asks of them; before the first there are
none, and who asks hears nothing.

Worked example: `InForce().counters()` is `{}` while the daemon begins to listen. Once its works are made,
`in_force.works = works`, it is what the scrapes of each target have come to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from exporter.model import PodKey, Target, WorkloadKey
from exporter.scrape import Counters

from .pod_numbers import Chosen, PodNumbers
from .state import State, pack, translated, unpack

if TYPE_CHECKING:
    from .decider import Decider
    from .witness import Witness
    from .works import Works


class InForce:
    """works: a reload puts others in their place."""

    def __init__(self) -> None:
        self.works: Works | None = None

    async def states(self) -> Sequence[State]:
        """What survives, for a snapshot; of the control loop that a reload begins meanwhile, if it does."""
        while (works := self.works) is not None:
            states = await works.states()
            if works is self.works:
                return states
        return []

    def memory(self, workloads: Collection[WorkloadKey] | None) -> Callable[[], bytes]:
        """What is remembered of these workloads, or of all, for a follower; packing it may be left to a thread."""
        return bytes if self.works is None else partial(pack, self.works.share(workloads))

    async def learned(self, memory: bytes, offset_s: float) -> None:
        """What the leader remembers takes the place of what is remembered here. offset_s: our clock less its."""
        state = await asyncio.to_thread(unpack, memory)
        if self.works is not None:
            self.works.go_along(translated(state, offset_s))

    def books(self) -> Decider | None:
        """Who keeps the accounts."""
        return None if self.works is None else self.works.bookkeeping

    def witness(self) -> Witness | None:
        """Who remembers what was decided, and from what."""
        return None if self.works is None else self.works.witness

    def pods(self, namespace: str, chosen: Chosen, now: float) -> Mapping[PodKey, tuple[PodNumbers, ...]]:
        return {} if self.works is None else self.works.pods(namespace, chosen, now)

    def counters(self) -> Mapping[Target, Counters]:
        return {} if self.works is None else self.works.counters

"""What was kept of workloads that have not been seen again yet.

After a start the workloads come one after the other: those of the configuration at once, those of the cluster when its
API has answered. Until then what was kept of them is kept on, and is written into every new snapshot beside what is
remembered of the others: a second restart while the API is silent costs nobody's memory.

Worked example: kept of `chat` and `code`, and `chat` comes: `claim([chat])` hands over its part, `rest` is `code`'s.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from exporter.model import WorkloadKey

from .record import State
from .wire import LARGEST_BYTES, size_of

# A workload that has not come back in so long has been deleted, and what was learned of it describes nobody.
FORGOTTEN_AFTER_S = 7 * 86400.0
# Each restart may leave a few parts behind: those of workloads that went while nobody looked.
MOST_PARTS = 256


class Kept:
    """Parts of states, the newest first. Of a workload that is in several only the newest counts."""

    def __init__(self, states: Sequence[State] = ()) -> None:
        self._states = list(states)

    def keep(self, state: State) -> None:
        """What is remembered of workloads that somebody else has seen already, in place of what was kept of them."""
        if state.workloads:
            rest = (each.without(state.workloads) for each in self._states)
            self._states = _bounded([state, *(each for each in rest if each.workloads)])

    def claim(self, workloads: Collection[WorkloadKey]) -> list[State]:
        """What is kept of these; it is theirs from now on, and not kept any more."""
        claimed: list[State] = []
        wanted = set(workloads)
        for state in self._states:
            part = state.only(wanted)
            if part.workloads:
                claimed.append(part)
                wanted -= set(part.workloads)
        gone = set(workloads)
        rest = [state.without(gone) for state in self._states] if gone else self._states
        self._states = [state for state in rest if state.workloads]
        return claimed

    def rest(self, now: float) -> list[State]:
        """What goes into the next snapshot. `now`: POSIX seconds."""
        return [state for state in self._states if abs(now - state.at) <= FORGOTTEN_AFTER_S][:MOST_PARTS]


def _bounded(states: Sequence[State]) -> list[State]:
    """The newest that may be kept: who tells of ever other workloads must not fill the memory."""
    kept, total = [], 0
    for state in states[:MOST_PARTS]:
        total += size_of(state)
        if total > LARGEST_BYTES:
            break
        kept.append(state)
    return kept

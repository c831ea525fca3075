"""An outlook: what will become of a number. A value and nothing else.

Worked example: 5 are told, 4 are there, and the HPA is free to go: code `up`, "in at most 15 s the HPA sets 5: 4 -> 5",
replicas 5, within 15 s, and that one `Act`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .codes import Code

# The HPA controller's --horizontal-pod-autoscaler-sync-period, by default.
SYNC_S = 15.0


class Act(NamedTuple):
    """In at most `within_s` seconds there are `replicas`."""

    within_s: float
    replicas: int
    why: str


@dataclass(frozen=True, slots=True)
class Outlook:
    """sentences: for a person; the first one is the answer, the others what it rests on.

    acts: what follows, in order, if nothing else changes; none is: nothing is foreseen.
    """

    code: Code
    sentences: tuple[str, ...]
    acts: tuple[Act, ...] = ()

    @property
    def replicas(self) -> int | None:
        """That the next act sets; None: none is foreseen."""
        return self.acts[0].replicas if self.acts else None

    @property
    def within_s(self) -> float | None:
        """Seconds until then, at most."""
        return self.acts[0].within_s if self.acts else None

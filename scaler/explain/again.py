"""Deciding an entry of the log again, with the policy's own kernel. Pure.

A workload is decided from its own columns alone: what its group asked of it is in its entry, as a floor. So one entry
and the plan that held then are enough, and the answer is the same to the last bit, as long as the kernel is the same.

Worked example: an entry of 3 replicas, `serving`, decided again by the Tidegate that wrote it has no differences. By
another version it may: `differences` then has `("replicas", 3.0, 4.0)`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..policy import REASONS, Memory, Signal, Specs, Verdicts, step
from .entry import Entry


class Difference(NamedTuple):
    """One thing that came out otherwise. None: nothing, or unknown."""

    what: str
    then: Any
    now: Any


def again(entry: Entry) -> tuple[Verdicts, Memory]:
    """What `policy.step` answers to this entry, and what it would remember; every column has one slot."""
    given = entry.given
    raise_only = bool(given.when.raise_only[0])
    specs = Specs.stack([entry.plan.spec])
    return step(specs, given.readings, given.standing, given.memory, entry.at, raise_only=raise_only)


def differences(entry: Entry) -> list[Difference]:
    """What comes out otherwise than it did then, in the order of a verdict's columns."""
    then, now = told(entry.given.verdicts), told(again(entry)[0])
    return [Difference(what, then[what], now[what]) for what in then if then[what] != now[what]]


def told(verdicts: Verdicts) -> dict[str, Any]:
    """One verdict by name: its demand by objective, its reason as a word, None for what is not known."""
    demands = {f"demand of {signal.name.lower()}": _known(verdicts.demand[0, signal]) for signal in Signal}
    return {
        "replicas": _known(verdicts.replicas[0]),
        "active": bool(verdicts.active[0]),
        "reason": str(REASONS[verdicts.reason[0]]),
        **demands,
    }


def _known(value: Any) -> float | None:
    return None if np.isnan(value) else float(value)

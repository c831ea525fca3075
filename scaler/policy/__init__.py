"""Demand, the idle verdict, keep-warm and capacity: pure functions over arrays of workloads."""

from __future__ import annotations

from .arrays import OWN, Memory, Readings, Signal, Spec, Specs, Standing, Verdicts
from .codes import REASONS
from .groups import Groups, Membership, closure
from .shares import Sharing
from .step import answered, choose, imputed, step
from .together import Decided, decide_groups

__all__ = [
    "OWN",
    "REASONS",
    "Decided",
    "Groups",
    "Membership",
    "Memory",
    "Readings",
    "Sharing",
    "Signal",
    "Spec",
    "Specs",
    "Standing",
    "Verdicts",
    "answered",
    "choose",
    "closure",
    "decide_groups",
    "imputed",
    "step",
]

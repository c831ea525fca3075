"""Demand, the idle verdict, keep-warm and capacity: pure functions over arrays of workloads."""

from __future__ import annotations

from .arrays import Memory, Readings, Signal, Spec, Specs, Verdicts
from .step import REASONS, answered, choose, imputed, step

__all__ = [
    "REASONS",
    "Memory",
    "Readings",
    "Signal",
    "Spec",
    "Specs",
    "Verdicts",
    "answered",
    "choose",
    "imputed",
    "step",
]

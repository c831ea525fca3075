"""Builds the registry of workloads from the configuration, ScaledObjects' triggers and annotations. Pure.

An invalid object costs its own workload alone. `engine` decides the replicas of the registry's workloads.
"""

from .annotations import ordered
from .caller_check import CallRejected, Doubt, RejectedCall, TriggerClaim, not_configured, observed
from .model import ObjectError, Registry
from .registry import ParsedObjects, take

__all__ = [
    "CallRejected",
    "Doubt",
    "ObjectError",
    "ParsedObjects",
    "Registry",
    "RejectedCall",
    "TriggerClaim",
    "not_configured",
    "observed",
    "ordered",
    "take",
]

"""Which workloads there are: the configuration's, those of ScaledObjects' triggers, those of annotations. Pure.

Objects of the cluster in, a `Census` out, and one tenant's mistake costs its own workload alone. Who is scaled by how
much is decided elsewhere, from the census's workloads.
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

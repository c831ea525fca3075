"""Which workloads there are: the configuration's, those of ScaledObjects' triggers, those of annotations. Pure.

Objects of the cluster in, a `Census` out, and one tenant's mistake costs its own workload alone. Who is scaled by how
much is decided elsewhere, from the census's workloads.
"""

from .claims import Doubt, Refused, Said, Unbelieved, not_configured, observed
from .count import ParsedObjects, take
from .orders import ordered
from .record import Census, Trouble

__all__ = [
    "Census",
    "Doubt",
    "ParsedObjects",
    "Refused",
    "Said",
    "Trouble",
    "Unbelieved",
    "not_configured",
    "observed",
    "ordered",
    "take",
]

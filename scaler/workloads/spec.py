"""What the decider needs to know of one workload, in the words of the rooms that do the work."""

from __future__ import annotations

from dataclasses import dataclass, field

from exporter.model import WorkloadKey
from scaler.policy.columns import Spec
from scaler.policy.constraints import Teaching
from scaler.policy.groups import Membership
from scaler.policy.overrides import WorkloadOverrides
from scaler.signals.smoothing import HalfLives


@dataclass(frozen=True, slots=True)
class WorkloadSpec:
    """Everything about one workload that the decider needs.

    queue:       only this queue of its pages; None is all.
    pod_pattern: glob of its pods' names; None is those its controller would make.
    observed:    decided and published, and nobody may ask for it.
    ordered:     what people order of it. teaching: what may be learned of it.
    member:      of which group; None is: it stands by itself.
    probe_period: seconds; regular requests that are no further apart are probes'. 0 is: every request counts.
    target:      its scale target in its own namespace, as `Deployment/chat`; "" while that is not known.
    tolerance:   of its HPA, a ratio: a step up within it is dropped, and so is told rounded outward. 0 drops nothing.
    """

    workload: WorkloadKey
    spec: Spec
    smoothing: HalfLives = field(default=HalfLives())
    queue: str | None = None
    pod_pattern: str | None = None
    observed: bool = False
    member: Membership | None = None
    ordered: WorkloadOverrides = field(default=WorkloadOverrides())
    teaching: Teaching = field(default=Teaching())
    probe_period: float = 0.0
    tolerance: float = 0.0
    target: str = ""

"""Holds everything about one workload that the decider needs."""

from __future__ import annotations

from dataclasses import dataclass, field

from exporter.model import WorkloadKey
from scaler.config.workload import GpuShare
from scaler.policy.columns import Spec
from scaler.policy.constraints import KeepWarmConfig
from scaler.policy.estimators.sleep_plan import SleepConfig
from scaler.policy.groups import Membership
from scaler.policy.overrides import WorkloadOverrides
from scaler.signals.smoothing import HalfLives


@dataclass(frozen=True, slots=True)
class WorkloadSpec:
    """One workload.

    queue:       only this queue of its targets; None: all.
    pod_pattern: glob of its pods' names; None: the names that its controller gives.
    observed:    decided and published, and not served to controllers.
    ordered:     its overrides. teaching: what may be learned.
    member:      its membership in a group; None: none.
    probe_period: seconds; regular requests at most this far apart are probes. 0: every request counts.
    target:      its scale target in its namespace, as `Deployment/chat`; "" if unknown.
    tolerance:   of its HPA, a ratio: a step up within it is dropped, so the published number is rounded past it.
    share:       its part of the GPUs, for `policy.sharing`; without effect if those are not shared.
    sleep:       its sleep mode; None: its engines are not put to sleep.
    gpu_hour:    the price of one of its GPUs for an hour; None: that of the model.
    slo_unsized: why its SLO is measured and does not size it, for people; "" if it does.
    """

    workload: WorkloadKey
    spec: Spec
    smoothing: HalfLives = field(default=HalfLives())
    queue: str | None = None
    pod_pattern: str | None = None
    observed: bool = False
    member: Membership | None = None
    ordered: WorkloadOverrides = field(default=WorkloadOverrides())
    teaching: KeepWarmConfig = field(default=KeepWarmConfig())
    probe_period: float = 0.0
    tolerance: float = 0.0
    target: str = ""
    slo_unsized: str = ""
    share: GpuShare = field(default=GpuShare())
    sleep: SleepConfig | None = None
    gpu_hour: float | None = None

"""The policy's reasons and signals as numbers: what its kernels are compiled with.

Worked example: `REASONS[ASLEEP]` is `Reason.ASLEEP`; a workload's work is in column `WORK` of its signals.
"""

from __future__ import annotations

from ..board import Reason
from .arrays import Signal

# A kernel takes plain numbers; so they are spelled here, and must agree with what they mirror, or nothing starts.
REASONS = (
    Reason.SERVING,
    Reason.QUEUED,
    Reason.GPU_BUSY,
    Reason.LOADING,
    Reason.WARM,
    Reason.ASLEEP,
    Reason.HELD,
    Reason.UNKNOWN,
    Reason.NO_WAKER,
    Reason.SCHEDULED,
    Reason.FROZEN,
    Reason.CAPPED,
    Reason.INCOMPLETE,
)
SERVING, QUEUED, GPU_BUSY, LOADING, WARM, ASLEEP, HELD, UNKNOWN, NO_WAKER, SCHEDULED, FROZEN, CAPPED, INCOMPLETE = (
    range(13)
)
WORK, KV_CACHE, GPU_ENGINE = 0, 1, 2
if set(REASONS) != set(Reason) or tuple(Signal) != (WORK, KV_CACHE, GPU_ENGINE):
    raise AssertionError("scaler.policy.codes does not know all reasons and signals")

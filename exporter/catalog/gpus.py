"""Weighs MIG instances and finds lost GPUs, whatever exporter shows them.

**MIG.** A profile says how many of a GPU's compute slices an instance has: `3g.40gb` has 3. How they are divided into
compute instances is unknown. DCGM measures activity against the whole instance, so one busy compute instance of one
slice reads 1/N on an instance of N slices: 1.0, 0.5 and 0.33 at most were measured on 1g, 2g and 3g (NVIDIA/DCGM#138).
Such a value may be all that a pod can reach or a third of it. So it is never divided here: the ceiling is exposed
beside it, and it is a ceiling that the instance *may* have.

Worked example: of `3g.40gb` on an H100 the slices are 3, the ceiling 0.333 and the share of the GPU 3/7.

**Lost GPUs.** DCGM exposes the last Xid code of a GPU and never clears it (NVIDIA/DCGM#277, dcgm-exporter#500): after a
repair it is still 79. So a code alone proves nothing. A GPU is lost if its code *changed* to a fatal one between two
responses, and its activity, which it had before, is missing. A GPU that keeps its activity has survived; with
returning activity it is well again. Missing activity alone is no proof either: profiling may pause, and an Xid 31 of
an application can blank the profiling fields (NVIDIA/DCGM#202). Not detected: an error before the first response, two
errors between two responses of which the last is harmless (Xid 45 follows many), a GPU that is not exposed any more.

Worked example: responses have `engine 0.9, no Xid`, then `engine 0.9, Xid 79`, then `Xid 79` and no activity: from the
third on `GPU_LOST` is 1 on the GPU's row. A GPU with 79 from the first response on is not lost.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from exporter.model import Floats, Gpu, Quantity, Samples, Subject

from .plan import Mask

# "1g.5gb", "1g.10gb+me", "2g.24gb-me", "1c.3g.20gb" (a compute instance of it), "MIG 1g.5gb", "mig-1g.5gb": the
# digits before the g are the slices (docs.nvidia.com MIG user guide, "Supported MIG Profiles").
_PROFILE = re.compile(r"(?:^|[ .-])([1-9])g\.")

# Compute slices of a whole GPU: 7 on A100, H100, H200, B200 and their kin; 4 where the largest profile is 4g.
SLICES = 7
FOUR_SLICES = ("A30", "RTX PRO 6000")

# Codes to which NVIDIA's Xid catalog (docs.nvidia.com/deploy/xid-errors, "Analyzing Xid Errors") answers with a reset
# of the GPU or a restart of the machine, without links (74, 136, 144 to 150, 155: a neighbour's failure shows there
# too) and without errors that are contained or only reported (63, 92, 94, 156).
FATAL = {
    48: "double-bit ECC error",
    62: "internal micro-controller halted",
    64: "memory remapping failed",
    79: "fallen off the bus",
    95: "uncontained memory error",
    109: "context switch timed out",
    110: "security fault",
    119: "GSP did not answer",
    120: "GSP error",
    140: "unrecovered ECC error",
    143: "initialisation failed",
    154: "recovery action changed",  # follows the code that it sums up, and overwrites it
    158: "fatal timeout",
}

# DCGM's fields are up to one collect interval old (30 s by default), each at its own moment, and a driver may answer a
# while longer: a GPU that still has its activity so long after the code has survived it.
SUSPECTED_S = 120.0

_WATCHED = frozenset({Quantity.GPU_XID, Quantity.GPU_ENGINE_ACTIVE, Quantity.GPU_UTILIZATION})
_Identity: TypeAlias = tuple[str, str | None]


@lru_cache(maxsize=256)
def slices(profile: str | None) -> int | None:
    """Compute slices of a MIG profile; None if it has no such number."""
    found = _PROFILE.search(profile or "")
    return int(found[1]) if found else None


def ceiling(gpu: Gpu) -> float | None:
    """The engine activity, 0..1, of a MIG instance with a single busy compute instance of one slice; else None."""
    count = slices(gpu.profile) if gpu.instance is not None else None
    return None if count is None else 1.0 / count


def share(gpu: Gpu) -> float:
    """The fraction of a whole GPU, 0..1: the weight of its activity in a mean over unequal parts.

    An instance without a profile counts as one slice: the smallest there is.
    """
    if gpu.instance is None:
        return 1.0
    whole = 4 if any(name in (gpu.model or "") for name in FOUR_SLICES) else SLICES
    return min(1.0, (slices(gpu.profile) or 1) / whole)


class Faults:
    """Follows the Xid errors of one target. Time is that of the samples."""

    def __init__(self) -> None:
        self._subjects: tuple[Subject, ...] = ()
        self._rows: list[_Identity] = []
        self._xid: Floats = np.empty(0)
        self._had_activity: Mask = np.empty(0, dtype=np.bool_)
        self._suspected: dict[str, float] = {}  # uuid -> POSIX seconds of the response that changed the code
        self._lost: frozenset[str] = frozenset()

    def judge(self, samples: Samples) -> Samples:
        """The samples, with a column GPU_LOST if any GPU is lost: 1 on the rows of lost GPUs, else NaN."""
        if not samples.subjects or _WATCHED.isdisjoint(samples.quantities):
            return samples
        had_row = self._align(samples.subjects)
        xid = samples.column(Quantity.GPU_XID)
        has_activity = ~np.isnan(samples.column(Quantity.GPU_ENGINE_ACTIVE))
        has_activity |= ~np.isnan(samples.column(Quantity.GPU_UTILIZATION))
        at = float(samples.at.max())
        changed = had_row & ~np.isnan(xid) & (xid != self._xid)
        for row in np.flatnonzero(changed):
            if int(xid[row]) in FATAL:
                self._suspected[self._rows[row][0]] = at
        self._xid, self._had_activity = np.where(np.isnan(xid), self._xid, xid), self._had_activity | has_activity
        return self._mark(samples, ~has_activity & self._had_activity, at) if self._suspected else samples

    def _align(self, subjects: Sequence[Subject]) -> Mask:
        """Aligns the state with these rows. Returns which of them were there before."""
        if subjects is self._subjects:
            return np.ones(len(subjects), dtype=np.bool_)
        rows = [(subject.uuid, subject.instance) if isinstance(subject, Gpu) else ("", None) for subject in subjects]
        position = {identity: row for row, identity in enumerate(self._rows)}
        old = np.array([position.get(identity, -1) for identity in rows], dtype=np.int64)
        had_row: Mask = old >= 0
        xid, had_activity = np.full(len(rows), np.nan), np.zeros(len(rows), dtype=np.bool_)
        xid[had_row], had_activity[had_row] = self._xid[old[had_row]], self._had_activity[old[had_row]]
        self._subjects, self._rows, self._xid, self._had_activity = tuple(subjects), rows, xid, had_activity
        return had_row

    def _mark(self, samples: Samples, silent: Mask, at: float) -> Samples:
        suspected = np.array([uuid in self._suspected for uuid, _ in self._rows], dtype=np.bool_)
        lost = suspected & silent
        lost_uuids = frozenset(self._rows[row][0] for row in np.flatnonzero(lost))
        for uuid, since in list(self._suspected.items()):
            if uuid not in lost_uuids and (uuid in self._lost or at - since > SUSPECTED_S):
                del self._suspected[uuid]
        self._lost = lost_uuids
        if not lost_uuids:
            return samples
        return replace(
            samples,
            quantities=(*samples.quantities, Quantity.GPU_LOST),
            values=np.column_stack([samples.values, np.where(lost, 1.0, np.nan)]),
        )

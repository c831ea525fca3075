"""GPUs that are lost: a fatal Xid that was seen to come, and then silence.

DCGM prints the last Xid code of a GPU and never takes it back (NVIDIA/DCGM#277, dcgm-exporter#500): after a repair it
still says 79. So a code means nothing by being there. What counts is a *change* to a fatal code, seen on two pages of
one GPU, and a second sign: it no longer says its activity, which it did before. A GPU that goes on saying it has
survived; one whose activity comes back is well again. Silence alone is no sign either: profiling may be paused, and
an Xid 31 of an application can blank the profiling fields (NVIDIA/DCGM#202).

What it cannot see: an error before the first page, two errors between two pages of which the last is harmless (Xid 45
follows many), and a GPU that is taken off the page.

Worked example: pages say `engine 0.9, no Xid`, then `engine 0.9, Xid 79`, then `Xid 79` and no activity: from the
third page on `GPU_LOST` is 1 on the GPU's row. A GPU that said 79 from the first page on is not lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from exporter.model import Floats, Gpu, Quantity, Samples, Subject

# Codes to which NVIDIA's Xid catalog (docs.nvidia.com/deploy/xid-errors, "Analyzing Xid Errors") answers with a reset
# of the GPU or a restart of the machine, without links (74, 136, 144 to 150, 155: a neighbour's failure shows there
# too) and without what is contained or only reported (63, 92, 94, 156).
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

# DCGM's fields are up to one collect interval old (30 s by default), each at its own moment, and a driver may answer
# a while longer: a GPU that still says its activity so long after the code has survived it.
SUSPECTED_S = 120.0

_SPOKEN = frozenset({Quantity.GPU_XID, Quantity.GPU_ENGINE_ACTIVE, Quantity.GPU_UTILIZATION})
_Mask: TypeAlias = NDArray[np.bool_]
_Identity: TypeAlias = tuple[str, str | None]


class Faults:
    """What the pages of one target have said of Xid errors. Time is that of the pages."""

    def __init__(self) -> None:
        self._subjects: tuple[Subject, ...] = ()
        self._rows: list[_Identity] = []
        self._xid: Floats = np.empty(0)
        self._spoke: _Mask = np.empty(0, dtype=np.bool_)  # has ever said its activity
        self._suspected: dict[str, float] = {}  # uuid -> POSIX seconds of the page that brought the code
        self._lost: frozenset[str] = frozenset()

    def judge(self, samples: Samples) -> Samples:
        """The samples, with a column GPU_LOST if any GPU is: 1 on the rows of those that are, else NaN."""
        if not samples.subjects or _SPOKEN.isdisjoint(samples.quantities):
            return samples
        known = self._align(samples.subjects)
        xid = samples.column(Quantity.GPU_XID)
        speaks = ~np.isnan(samples.column(Quantity.GPU_ENGINE_ACTIVE))
        speaks |= ~np.isnan(samples.column(Quantity.GPU_UTILIZATION))
        at = float(samples.at.max())
        came = known & ~np.isnan(xid) & (xid != self._xid)
        for row in np.flatnonzero(came):
            if int(xid[row]) in FATAL:
                self._suspected[self._rows[row][0]] = at
        self._xid, self._spoke = np.where(np.isnan(xid), self._xid, xid), self._spoke | speaks
        return self._mark(samples, ~speaks & self._spoke, at) if self._suspected else samples

    def _align(self, subjects: Sequence[Subject]) -> _Mask:
        """Put what is remembered beside these rows; returns which of them were there before."""
        if subjects is self._subjects:
            return np.ones(len(subjects), dtype=np.bool_)
        rows = [(subject.uuid, subject.instance) if isinstance(subject, Gpu) else ("", None) for subject in subjects]
        place = {identity: row for row, identity in enumerate(self._rows)}
        old = np.array([place.get(identity, -1) for identity in rows], dtype=np.int64)
        known: _Mask = old >= 0
        xid, spoke = np.full(len(rows), np.nan), np.zeros(len(rows), dtype=np.bool_)
        xid[known], spoke[known] = self._xid[old[known]], self._spoke[old[known]]
        self._subjects, self._rows, self._xid, self._spoke = tuple(subjects), rows, xid, spoke
        return known

    def _mark(self, samples: Samples, silent: _Mask, at: float) -> Samples:
        suspected = np.array([uuid in self._suspected for uuid, _ in self._rows], dtype=np.bool_)
        lost = suspected & silent
        gone = frozenset(self._rows[row][0] for row in np.flatnonzero(lost))
        for uuid, since in list(self._suspected.items()):
            if uuid not in gone and (uuid in self._lost or at - since > SUSPECTED_S):
                del self._suspected[uuid]
        self._lost = gone
        if not gone:
            return samples
        return replace(
            samples,
            quantities=(*samples.quantities, Quantity.GPU_LOST),
            values=np.column_stack([samples.values, np.where(lost, 1.0, np.nan)]),
        )

"""What a workload's replicas do at one moment, and the GPUs that they do it with. Pure, on columns.

    serving    ready, and the workload has something to do: requests in hand, a counter that has just risen, busy GPUs
    idle_warm  ready, and known to have nothing to do; and engines in sleep mode, which serve nobody
    loading    on a node and not ready yet
    pending    wanted, and no node has begun to run them
    asleep     not there: what would be held if it were awake
    unknown    ready, and it is not known whether they have anything to do; or nobody knows how many there are

Replicas are counted by the cluster, work by pages, so a workload may be in several states at once. It refuses to divide
work among ready replicas: eight of them with one request between them all serve, and that they are too many is the
policy's to say. A replica on its way out counts with the ready ones, as long as it holds its GPUs.

Worked example: 4 replicas are wanted, 3 run, 2 are ready, 24 GPUs are held and 5 requests wait: 16 GPUs serve, 8 load,
and 8 more are pending.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from exporter.model import Floats

from ..slots import Mask
from ..totals import Totals

Codes: TypeAlias = NDArray[np.int64]


class State(StrEnum):
    SERVING = "serving"
    IDLE_WARM = "idle_warm"
    LOADING = "loading"
    PENDING = "pending"
    ASLEEP = "asleep"
    UNKNOWN = "unknown"


STATES = tuple(State)
SERVING, IDLE_WARM, LOADING, PENDING, ASLEEP, UNKNOWN = range(len(STATES))
# Of several at once the first that is there is the workload's own: serving before anything, and what is not known
# before what is.
_FIRST = (SERVING, UNKNOWN, IDLE_WARM, LOADING, PENDING, ASLEEP)


class Circumstances(NamedTuple):
    """What is known of each workload beside its pages; every column has shape (rows,).

    whole:   all of its demand is known.
    zero:    Tidegate answers zero, and whoever asks is told.
    minimum: replicas while awake.
    gpu_quiet: engine activity (ratio) at or below which a GPU counts as quiet.
    rise_s:  seconds for which a counter that has risen shows work: a page is read so often.
    """

    whole: Mask
    zero: Mask
    minimum: Floats
    gpu_quiet: Floats
    rise_s: float


def doing(totals: Totals, known: Circumstances, now: float) -> Codes:
    """What the ready replicas do: SERVING, IDLE_WARM or UNKNOWN. now: POSIX seconds."""
    seen = totals.seen
    busy = np.nan_to_num(seen.waiting) + np.nan_to_num(seen.running) + np.nan_to_num(seen.held) > 0.0
    # What rose between two pages was done in the time between them, which is as long as the one that follows.
    busy |= now - seen.active_at < known.rise_s
    # A model that is being loaded works on its GPUs: that says nothing of the replicas beside it.
    busy |= (seen.busiest_gpu > known.gpu_quiet) & ~(seen.ready < seen.wanted)
    idle = known.whole & ~seen.gpus_stale & ~seen.gpus_blind & ~seen.unproven
    return np.where(busy, SERVING, np.where(idle, IDLE_WARM, UNKNOWN))


def replicas(totals: Totals, known: Circumstances, does: Codes) -> Floats:
    """Replicas in each state, shape (rows, len(STATES)); NaN where nobody counts them. does: see `doing`."""
    seen, count = totals.seen, len(does)
    # Who says what is wanted and ready, and not what is there, means that the rest of it is on its way.
    existing = np.where(np.isnan(seen.existing), np.fmax(seen.wanted, seen.ready), seen.existing)
    pending = np.nan_to_num(seen.pending)
    running = np.maximum(existing - pending, 0.0)
    ready = np.minimum(np.nan_to_num(seen.ready), running)
    leaving = np.nan_to_num(totals.leaving)
    # Where there is work, engines in sleep mode are taken out of the ready ones before: see `totals.sleepers_aside`.
    sleeping = np.where(does == SERVING, np.minimum(np.nan_to_num(totals.sleeping), running - ready), 0.0)
    out = np.zeros((count, len(STATES)))
    out[np.arange(count), does] = ready + leaving
    out[:, IDLE_WARM] += sleeping
    out[:, LOADING] = running - ready - sleeping
    out[:, PENDING] = pending + np.maximum(seen.wanted - existing, 0.0)
    nothing = ~(out.sum(axis=1) > 0.0)
    out[nothing, ASLEEP] = np.maximum(known.minimum[nothing], 1.0)
    out[np.isnan(seen.wanted)] = np.nan
    return out


def states(there: Floats, totals: Totals, known: Circumstances, does: Codes) -> Codes:
    """The state of each workload. there: see `replicas`."""
    order = np.array(_FIRST)
    counted: Codes = order[np.argmax(there[:, order] > 0.0, axis=1)]
    # Nobody counts. What a page or a listing shows is there; what is told to be at zero, and shows nothing, is there.
    seen = totals.seen
    shown = (seen.ready > 0.0) | (seen.pods_fresh > 0.0) | (seen.pods_listed > 0.0)
    gone = known.zero & ~shown
    loads = known.whole & (seen.pods_listed == 0.0)
    told = np.where(gone, ASLEEP, np.where(loads, LOADING, UNKNOWN))
    uncounted = np.where((does == SERVING) | (shown & (does == IDLE_WARM)), does, told)
    return np.where(np.isnan(seen.wanted), uncounted, counted)


def gpus(there: Floats, state: Codes, totals: Totals, each: Floats, last: Floats) -> Floats:
    """GPUs in each state, shape (rows, len(STATES)); NaN where it was never known how many there are.

    there, state: see `replicas` and `states`. each: of a replica. last: held in whatever state when it was last known.
    """
    out: Floats = there * each[:, None]
    # With no count, what a page shows as its own does what the workload does; what is not seen any more is unknown.
    uncounted = np.isnan(there).any(axis=1)
    shown = np.where(totals.gpus.shown > 0.0, totals.gpus.shown, np.nan)
    held = np.where(np.isnan(totals.gpus_held), shown, totals.gpus_held)
    rows = np.flatnonzero(uncounted & ~np.isnan(np.where(np.isnan(held), last, held)))
    out[rows] = 0.0
    blind = np.isnan(held[rows])
    out[rows, np.where(blind, UNKNOWN, state[rows])] = np.where(blind, last[rows], held[rows])
    return out

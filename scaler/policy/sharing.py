"""Divides the free GPUs of a cluster among workloads: by priority, then by weight, in whole replicas. Pure.

A replica of a workload needs a number of GPUs of one kind. Each workload has the kinds that it can run on, the one it
prefers first: the cheapest. A replica is placed on the first kind that has room, so that a workload spills over to a
dearer kind only when the cheaper one is full.

All wished replicas form one list. Replicas that stay in any case come first: to count their GPUs as free would promise
them to a pod that gets none. Then workloads that are awake come before idle ones, so that those sleep first; then the
higher priority comes first; then replicas that are there come before new ones, so that no equal takes one away; then
the replica after which its workload has the least GPUs per weight (max-min fair). The list is served from its head. A
replica that is there stays on its kind, because nothing moves it. Where the replica at the head needs more GPUs of a
kind than are left, that kind is closed: the rest stays free for that workload, and no later replica overtakes it. Less
than one replica's GPUs are left over in a kind. That is the price of the following guarantees, which hold for any mix
of sizes and kinds:

- no kind hands out more than is free, no quota is exceeded, and no workload gets more than it asks for;
- a workload gets the same whatever those below it in the list ask for;
- without one of the workloads, no other gets less, if no quota binds: its part of a quota may go to one that needs
  another's kind;
- the order of the rows has no influence; equal shares are decided by `rank`.

A kind is never closed for a replica that could not be placed in an empty cluster either: a workload tries a kind only
up to the replicas that fit there when it is alone.

**Quotas.** A quota limits the GPUs of several workloads on whatever kinds: those of one namespace, or of one queue. A
replica that does not fit into a quota of its workload closes that quota, as a kind is closed.

**Growth.** Where a node autoscaler can add GPUs, it adds them only for pods that are pending. `growth` is the number of
GPUs of each kind for which pods may be pending: after its kinds, a replica tries the growth of its kinds in the same
order. Such replicas are `pending`. The result for a workload is `placed + pending`; it is capacity-limited if `placed`
is below its demand.

Worked example: 10 A100 are free, two workloads of weights 3 and 1 want 8 replicas of 1 GPU each. GPUs per weight after
each replica are 1/3, 2/3, 1 ... and 1, 2 ...: the first gets 8, the second 2 (at 2.33 and 2 per weight). With one more
GPU of growth the second has 1 replica pending, and is still limited.

What the caller gives, by row: see `Wishes`. `free` is what is allocatable, within quotas, and not used by pods of
anything else; GPUs that these workloads hold are free, because all are divided again. A workload without a known demand
takes no part: the caller counts its GPUs as used.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from exporter.model import Floats
from scaler.jit import INDICES, kernel, part

from .columns import Bools, Ints

NONE = -1  # no further kind

_ROWS = types.Array(types.int64, 2, "C", readonly=True)
_COUNTS = types.Array(types.int64, 1, "C")
_RESULT = types.Tuple((types.Array(types.int64, 2, "C"), _COUNTS, _COUNTS))


class Wishes(NamedTuple):
    """What workloads ask for, by column; shape (rows,), but for kinds.

    demand:   replicas; NaN if it is not known.
    gpus:     that one replica needs, at least 1.
    kinds:    shape (rows, most kinds): numbers of the kinds it can run on, the preferred one first, then NONE.
    priority: a higher one is served first.
    weight:   its part among those of its priority, above 0.
    idle:     whether it has nothing to do: it is kept warm only by what all others leave.
    rank:     decides between equal shares, different in each row: the order of names, for example.
    held:     replicas that are there, by kind, shape (rows, kinds). kept: so many of them stay in any case.
    quota:    numbers of the quotas that its GPUs count to, then NONE; shape (rows, most quotas).
    """

    demand: Floats
    gpus: Ints
    kinds: NDArray[np.int64]
    priority: Floats
    weight: Floats
    idle: Bools
    rank: Ints
    held: NDArray[np.int64]
    kept: Ints
    quota: NDArray[np.int64]


class CapacityShares(NamedTuple):
    """What workloads get, by row.

    placed:  replicas by kind, shape (rows, kinds); `pending` those that wait for the cluster to grow.
    limited: whether it has fewer placed replicas than it asks for. False where the demand is not known.
    left:    GPUs by kind, then of growth by kind, that nobody asks for; 0 in a closed kind. quota_left: of each quota.
    """

    placed: NDArray[np.int64]
    pending: NDArray[np.int64]
    limited: Bools
    left: Ints
    quota_left: Ints


def divide(free: Ints, growth: Ints, quotas: Ints, wishes: Wishes) -> CapacityShares:
    """The shares of these workloads.

    free, growth: GPUs by kind, shape (kinds,). quotas: GPUs by quota. All at least 0.
    """
    kinds = len(free)
    demand = np.floor(np.nan_to_num(wishes.demand, nan=0.0)).astype(np.int64)
    row = np.repeat(np.arange(len(demand)), demand)
    number = np.arange(len(row)) - np.repeat(np.cumsum(demand) - demand, demand) + 1
    level = number * wishes.gpus[row] / wishes.weight[row]
    new, lost = number > wishes.held.sum(axis=1)[row], number > wishes.kept[row]
    order = np.lexsort((wishes.rank[row], level, new, -wishes.priority[row], wishes.idle[row], lost))
    grown = np.where(wishes.kinds == NONE, NONE, wishes.kinds + kinds)
    tries = np.ascontiguousarray(np.concatenate([wishes.kinds, grown], axis=1))
    room = np.concatenate([free, growth]).astype(np.int64)
    columns = (wishes.gpus.astype(np.int64), np.ascontiguousarray(wishes.quota.astype(np.int64)))
    held = np.ascontiguousarray(np.concatenate([wishes.held, np.zeros_like(wishes.held)], axis=1))
    granted, left, quota_left = _serve(row[order], *columns, tries, held, room, quotas.astype(np.int64))
    placed, pending = granted[:, :kinds], granted[:, kinds:]
    return CapacityShares(placed, pending, placed.sum(axis=1) < demand, left, quota_left)


@part
def _within(mine: Ints, wanted: int, gpus: int, quotas: Ints, quota_left: Ints, spent: Bools) -> bool:
    """Whether all quotas of a workload have room for one more replica; closes those that have not.

    mine: their numbers, or NONE. wanted: the workload's GPUs with it, gpus: its own.
    """
    for quota in mine:
        # Alone it would have no further replica by that quota: nothing is kept for it in another.
        if quota >= 0 and (spent[quota] or wanted > quotas[quota]):
            return False
    within = True
    for quota in mine:
        if quota >= 0 and quota_left[quota] < gpus:
            spent[quota] = True
            within = False
    return within


@kernel(_RESULT(INDICES, INDICES, _ROWS, _ROWS, _ROWS, INDICES, INDICES))
def _serve(
    queue: Ints,
    gpus: Ints,
    quota: NDArray[np.int64],
    tries: NDArray[np.int64],
    held: NDArray[np.int64],
    room: Ints,
    quotas: Ints,
) -> tuple[NDArray[np.int64], Ints, Ints]:
    """Replicas by row and kind, and what is left of kinds and quotas; 0 of closed ones.

    queue: the row of each wished replica, in order. tries: kinds of a row, then NONE. held: by row and kind.
    """
    granted = np.zeros((gpus.shape[0], room.shape[0]), dtype=np.int64)
    left, quota_left = room.copy(), quotas.copy()
    closed = np.zeros(room.shape[0], dtype=np.bool_)
    spent = np.zeros(quotas.shape[0], dtype=np.bool_)
    for row in queue:
        if not _within(quota[row], (granted[row].sum() + 1) * gpus[row], gpus[row], quotas, quota_left, spent):
            continue
        for position in range(-room.shape[0], tries.shape[1]):
            if position < 0:  # a replica that is there tries its kind first
                kind = position + room.shape[0]
                if granted[row, kind] >= held[row, kind]:
                    continue
            else:
                kind = tries[row, position]
            # Alone it would have no further replica there: nothing is kept for it.
            if kind < 0 or closed[kind] or (granted[row, kind] + 1) * gpus[row] > room[kind]:
                continue
            if left[kind] >= gpus[row]:
                left[kind] -= gpus[row]
                granted[row, kind] += 1
                for mine in quota[row]:
                    if mine >= 0:
                        quota_left[mine] -= gpus[row]
                break
            closed[kind] = True
    left[closed] = 0
    quota_left[spent] = 0
    return granted, left, quota_left

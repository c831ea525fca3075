"""Of a gateway's page that several workloads read, each one's own portion: what `policy.shares` says, applied to slots.

Worked example: two members of weights 9 and 1 each have the page of one gateway, with 40 requests held. In the values
that are about to be added up, HELD becomes 36 in the one's slot and 4 in the other's.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from exporter.model import Floats

from .policy import Sharing
from .slots import Column, Mask, Rows

IN_HAND = np.array([Column.WAITING, Column.RUNNING, Column.HELD, Column.IN_FLIGHT])


class Hands(NamedTuple):
    """Of all workloads: requests in their pods, and replicas wanted and pending. NaN is unknown."""

    in_pods: Floats
    wanted: Floats
    pending: Floats


def keep_portions(sharing: Sharing, has: Hands, rows: Rows, owner: Rows, values: Floats, gateway: Mask) -> None:
    """Leave each member of a group its own part, in `values`.

    rows:   the workloads that are added up. owner: of each slot, its workload's place in them.
    values: shape (slots, len(Column)), written to. gateway: which slots are a gateway's page that is fresh.
    """
    shared = np.flatnonzero(sharing.shares(rows)[owner] & gateway)
    if not len(shared):
        return
    hands = values[shared[:, None], IN_HAND]
    # Held requests are in flight too, where a page says both.
    shown: Floats = np.where(np.isnan(hands[:, 2]), np.nansum(hands, axis=1), np.nansum(hands[:, :3], axis=1))
    waits = np.bincount(owner[shared], weights=shown, minlength=len(rows)).astype(np.float64)
    part = sharing.parts(rows, waits, sharing.room(has.in_pods, has.wanted, has.pending))
    values[shared[:, None], IN_HAND] = hands * part[owner[shared], None]
    values[shared, Column.READY] = np.nan  # the backends of all of them

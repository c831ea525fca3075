"""The pages of a simulated Deployment pod by pod, for planes that look at each replica by itself.

Worked example: two ready replicas, the older with one request waiting and four in its batch:
`look_each(world, server)[:, [POD_WAITING, POD_RUNNING]]` is `[[1, 4], [0, 0]]`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import types

from exporter.model import Floats
from scaler.jit import fingerprint, kernel, part

from . import columns, steps
from .columns import (
    ADMITTED,
    ALIVE,
    BEGAN,
    CONTEXT,
    CREATED,
    DECODE,
    DECODING,
    DOING,
    IDLE,
    KV,
    NOW,
    PHASE,
    QUEUED,
    RUN,
    ReplayWorld,
    ServerColumns,
)
from .engine import SERVER, WORLD
from .steps import steps_within

# POD_PHASE: of `columns`. POD_BUSY: 1 while it has work, else 0, which is what GPU_UTIL shows as 100 and 0. Slots are
# used again: POD_SLOT and POD_CREATED (seconds) together say which pod it is. POD_KV: a ratio.
POD_PHASE, POD_KV, POD_WAITING, POD_RUNNING, POD_BUSY, POD_SLOT, POD_CREATED = range(7)


@part
def _look_each(world: ReplayWorld, server: ServerColumns) -> Floats:
    """See `look_each`."""
    now = world.numbers[NOW]
    pods = np.zeros((world.counts[ALIVE], 7))
    for place in range(world.counts[ALIVE]):
        slot = world.order[place]
        mine, numbers, pod = world.replica_counts[slot], world.replicas[slot], pods[place]
        made = 0
        if mine[DOING] == DECODE:
            passed = now - numbers[BEGAN]
            made = steps_within(server, mine[DECODING], numbers[CONTEXT], mine[RUN], passed) * mine[DECODING]
        pod[POD_PHASE] = mine[PHASE]
        pod[POD_KV] = min(1.0, (numbers[KV] + made) / server.kv_tokens)
        pod[POD_WAITING] = mine[QUEUED] - mine[ADMITTED]
        pod[POD_RUNNING] = mine[DECODING] + mine[ADMITTED]
        pod[POD_BUSY] = 1.0 if mine[DOING] != IDLE else 0.0
        pod[POD_SLOT] = slot
        pod[POD_CREATED] = numbers[CREATED]
    return pods


def _compiled(parts: str) -> Callable[[ReplayWorld, ServerColumns], Floats]:
    """`parts`: a fingerprint of the other files compiled in, so that numba takes nothing old from its cache."""

    @kernel(types.float64[:, ::1](WORLD, SERVER))
    def look_each(world: ReplayWorld, server: ServerColumns) -> Floats:
        """A row per living pod, oldest first: shape (pods, 7), the columns above."""
        parts  # noqa: B018
        return _look_each(world, server)

    return look_each


look_each = _compiled(fingerprint(columns, steps))

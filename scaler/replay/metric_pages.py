"""What the pages of a simulated Deployment would say at this moment: one row of numbers.

Worked example: two ready replicas that decode three sequences each, and nothing else: `look(world, server)[RUNNING]`
is 6.0 and `[WAITING]` 0.0.
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
    BUSY,
    CONTEXT,
    CREATED,
    DECODE,
    DECODING,
    DOING,
    DRAINING,
    HELD,
    IDLE,
    KV,
    NOW,
    PHASE,
    QUEUED,
    READY,
    RUN,
    TOKENS,
    ReplayWorld,
    ServerColumns,
)
from .engine import SERVER, WORLD
from .steps import steps_within

WAITING, RUNNING, AT_GATE, KV_USED, READY_NOW, EXISTING, WANTED, BUSY_S, TOKENS_MADE, LIVE_POD_S = range(10)


@part
def _look(world: ReplayWorld, server: ServerColumns) -> Floats:
    """See `look`."""
    seen = np.zeros(10)
    now = world.numbers[NOW]
    kv = 0.0
    for place in range(world.counts[ALIVE]):
        slot = world.order[place]
        mine, numbers = world.replica_counts[slot], world.replicas[slot]
        seen[LIVE_POD_S] += now - numbers[CREATED]
        seen[EXISTING] += 1
        seen[WANTED] += mine[PHASE] != DRAINING
        seen[WAITING] += mine[QUEUED] - mine[ADMITTED]
        seen[RUNNING] += mine[DECODING] + mine[ADMITTED]
        seen[BUSY_S] += numbers[BUSY]
        if mine[DOING] != IDLE:
            seen[BUSY_S] += now - numbers[BEGAN]
        made = 0
        if mine[DOING] == DECODE:
            passed = now - numbers[BEGAN]
            made = steps_within(server, mine[DECODING], numbers[CONTEXT], mine[RUN], passed) * mine[DECODING]
            seen[TOKENS_MADE] += made
        if mine[PHASE] == READY:
            seen[READY_NOW] += 1
            kv += min(1.0, (numbers[KV] + made) / server.kv_tokens)
    seen[TOKENS_MADE] += world.counts[TOKENS]
    seen[AT_GATE] = world.counts[HELD]
    seen[KV_USED] = kv / seen[READY_NOW] if seen[READY_NOW] > 0 else np.nan
    return seen


def _compiled(parts: str) -> Callable[[ReplayWorld, ServerColumns], Floats]:
    """`parts`: a fingerprint of the other files compiled in, so that numba takes nothing old from its cache."""

    @kernel(types.float64[::1](WORLD, SERVER))
    def look(world: ReplayWorld, server: ServerColumns) -> Floats:
        """What the pages would say now, by the names above: requests, a ratio (mean over the ready), pods, seconds,
        tokens.

        BUSY_S and LIVE_POD_S are sums over living pods; TOKENS_MADE is a counter.
        """
        parts  # noqa: B018
        return _look(world, server)

    return look


look = _compiled(fingerprint(columns, steps))

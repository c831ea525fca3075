"""Computes what the metrics of a simulated Deployment show now: in total (`look`), or pod by pod (`look_each`).

Worked example: two ready replicas, the older with one request waiting and four in its batch: `look(world, server)` has
4.0 at RUNNING and 1.0 at WAITING, and `look_each(world, server)[:, [POD_WAITING, POD_RUNNING]]` is `[[1, 4], [0, 0]]`.
"""

from __future__ import annotations

import numpy as np
from numba import types

from exporter.model import Floats
from scaler.jit import NUMBER, in_place_kernel, kernel

from .columns import (
    ADMITTED,
    ALIVE,
    ASLEEP,
    ASLEEP_S,
    BEGAN,
    BUSY,
    CONTEXT,
    COUNTED,
    CREATED,
    DECODE,
    DECODE_S,
    DECODING,
    DOING,
    DRAINING,
    HELD,
    HELD_COUNTED,
    IDLE,
    KV,
    NOW,
    PHASE,
    QUEUED,
    READY,
    READY_AT,
    REQUEST_S,
    RUN,
    TOKENS,
    WAKING,
    ReplayWorld,
    ServerColumns,
    run_s,
    steps_within,
)
from .engine import SERVER, WORLD

WAITING, RUNNING, AT_GATE, KV_USED, READY_NOW, EXISTING, WANTED, BUSY_S, TOKENS_GENERATED, LIVE_POD_S = range(10)
DECODED_S, SLEEPING, ASLEEP_POD_S = 10, 11, 12
# POD_PHASE: of `columns`. POD_BUSY: 1 while it has work, else 0, which is what GPU_UTIL shows as 100 and 0. Slots are
# used again: POD_SLOT and POD_CREATED (seconds) together say which pod it is. POD_KV: a ratio.
POD_PHASE, POD_KV, POD_WAITING, POD_RUNNING, POD_BUSY, POD_SLOT, POD_CREATED = range(7)


@kernel(types.float64[::1](WORLD, SERVER))
def look(world: ReplayWorld, server: ServerColumns) -> Floats:
    """Sums over the pods, shape (13,): requests; AT_GATE requests; KV_USED a ratio, the mean over ready pods; pods;
    seconds; tokens. BUSY_S and LIVE_POD_S are sums over living pods; TOKENS_GENERATED and
    DECODED_S, the seconds between tokens, are counters, and so is ASLEEP_POD_S. SLEEPING: pods asleep, or waking.
    """
    totals = np.zeros(13)
    now = world.numbers[NOW]
    kv = 0.0
    for position in range(world.counts[ALIVE]):
        slot = world.order[position]
        mine, numbers = world.replica_counts[slot], world.replicas[slot]
        totals[LIVE_POD_S] += now - numbers[CREATED]
        totals[EXISTING] += 1
        totals[WANTED] += mine[PHASE] != DRAINING
        totals[SLEEPING] += mine[PHASE] == ASLEEP or mine[PHASE] == WAKING
        if mine[PHASE] == ASLEEP:
            totals[ASLEEP_POD_S] += now - numbers[BEGAN]
        totals[WAITING] += mine[QUEUED] - mine[ADMITTED]
        totals[RUNNING] += mine[DECODING] + mine[ADMITTED]
        totals[BUSY_S] += numbers[BUSY]
        if mine[DOING] != IDLE:
            totals[BUSY_S] += now - numbers[BEGAN]
        generated = 0
        if mine[DOING] == DECODE:
            passed = now - numbers[BEGAN]
            generated = steps_within(server, mine[DECODING], numbers[CONTEXT], mine[RUN], passed) * mine[DECODING]
            totals[TOKENS_GENERATED] += generated
            decoded = generated // mine[DECODING] if mine[DECODING] > 0 else 0
            totals[DECODED_S] += run_s(server, mine[DECODING], numbers[CONTEXT], decoded) * mine[DECODING]
        if mine[PHASE] == READY:
            totals[READY_NOW] += 1
            kv += min(1.0, (numbers[KV] + generated) / server.kv_tokens)
    totals[TOKENS_GENERATED] += world.counts[TOKENS]
    totals[DECODED_S] += world.numbers[DECODE_S]
    totals[ASLEEP_POD_S] += world.numbers[ASLEEP_S]
    totals[AT_GATE] = world.counts[HELD]
    totals[KV_USED] = kv / totals[READY_NOW] if totals[READY_NOW] > 0 else np.nan
    return totals


@in_place_kernel(types.float64(WORLD))
def request_seconds(world: ReplayWorld) -> float:
    """A counter: the integral of the requests at the gateway and in pods that are not draining, over time."""
    now = world.numbers[NOW]
    total = world.numbers[REQUEST_S] + (now - world.numbers[HELD_COUNTED]) * world.counts[HELD]
    for position in range(world.counts[ALIVE]):
        slot = world.order[position]
        mine = world.replica_counts[slot]
        if mine[PHASE] != DRAINING:
            total += (now - world.replicas[slot, COUNTED]) * (mine[DECODING] + mine[QUEUED])
    return total


@in_place_kernel(types.bool_(WORLD, NUMBER, NUMBER))
def became_ready(world: ReplayWorld, after: float, until: float) -> bool:
    """Whether a living pod became ready later than `after`, and not later than `until`."""
    for position in range(world.counts[ALIVE]):
        if after < world.replicas[world.order[position], READY_AT] <= until:
            return True
    return False


@kernel(types.float64[:, ::1](WORLD, SERVER))
def look_each(world: ReplayWorld, server: ServerColumns) -> Floats:
    """A row per living pod, oldest first: shape (pods, 7), the columns POD_PHASE to POD_CREATED."""
    now = world.numbers[NOW]
    pods = np.zeros((world.counts[ALIVE], 7))
    for position in range(world.counts[ALIVE]):
        slot = world.order[position]
        mine, numbers, pod = world.replica_counts[slot], world.replicas[slot], pods[position]
        generated = 0
        if mine[DOING] == DECODE:
            passed = now - numbers[BEGAN]
            generated = steps_within(server, mine[DECODING], numbers[CONTEXT], mine[RUN], passed) * mine[DECODING]
        pod[POD_PHASE] = mine[PHASE]
        pod[POD_KV] = min(1.0, (numbers[KV] + generated) / server.kv_tokens)
        pod[POD_WAITING] = mine[QUEUED] - mine[ADMITTED]
        pod[POD_RUNNING] = mine[DECODING] + mine[ADMITTED]
        pod[POD_BUSY] = 1.0 if mine[DOING] != IDLE else 0.0
        pod[POD_SLOT] = slot
        pod[POD_CREATED] = numbers[CREATED]
    return pods

"""Computes a lower bound for policies that start on a request: the cost with all gaps between requests known.

The clairvoyant plan may let a request wait for hours within its share of SLO misses, and starts pods in advance. A
policy that starts a pod when a request arrives at zero replicas does neither. At its best it knows the length of each
gap, and either sleeps through the whole gap or stays warm. While awake it has one replica, and each request takes as
long as alone on a replica. Only requests that a start delays too much miss the SLO.

Misses get a price. For each price, the cheapest choice is computed from the last gap to the first; its cost less the
price of the allowed misses is a lower bound (Lagrange). The result is the highest of them.

Worked example: starts of 60 s, a request every 1,000 s that takes 0.13 s, and a first token due within 1 s. Warm, each
cycle costs 1,000 s; asleep 60.13 s, and the request misses the SLO. If one of ten may miss it, a cycle costs 906.013 s.
"""

from __future__ import annotations

import numpy as np
from numba import types

from exporter.model import Floats
from scaler.jit import FLOATS, INDICES, NUMBER, kernel

from .columns import Ints, Trace
from .run import WARM_UP_S
from .servers import ServerProfile

ROUNDS = 60  # halvings of the price's logarithm: to 1 in 10**15
CHEAPEST = 1e-6  # price of a miss, as a share of the highest that can matter: the whole span


def alone_s(load: Trace, profile: ServerProfile) -> Floats:
    """Seconds of each request on a replica of its own, shape (requests,)."""
    server, steps = profile.server, np.maximum(load.output, 1) - 1
    context = server.per_token * (steps * (load.prompt + 1) + steps * (steps - 1) / 2)
    prefill = server.step + load.prompt / server.prompt_rate
    return np.asarray(prefill + steps * (server.step + server.per_sequence) + context, dtype=np.float64)


@kernel(types.UniTuple(NUMBER, 2)(FLOATS, FLOATS, FLOATS, INDICES, INDICES, NUMBER, NUMBER))
def _cheapest(
    begins: Floats, ends: Floats, resumes: Floats, late: Ints, last: Ints, price: float, span_s: float
) -> tuple[float, float]:
    """The least of pod-seconds + price * misses, and its misses. Times are seconds of the load, shape (periods,).

    begins, ends: of the periods with requests in hand. resumes: when the first request of a period is finished if a pod
    starts for it; late: misses of that start; last: the last period that begins before then.
    """
    periods = begins.shape[0]
    awake, asleep = np.zeros((2, periods + 1))  # cost from the end of a period on, and from the beginning of one on
    awake_late, asleep_late = np.zeros((2, periods + 1))
    for period in range(periods - 1, -1, -1):
        # Awake at the end of it.
        if period + 1 < periods:
            warm = min(ends[period + 1], span_s) - min(ends[period], span_s) + awake[period + 1]
            sleeps = asleep[period + 1] < warm
            awake[period] = asleep[period + 1] if sleeps else warm
            awake_late[period] = asleep_late[period + 1] if sleeps else awake_late[period + 1]
        # Asleep at the beginning of it: requests that arrive during the start wait, and there is no gap.
        until = last[period]
        busy = min(max(resumes[period], ends[until]), span_s) - begins[period]
        cost, misses = busy, 0.0
        if until + 1 < periods:
            warm = min(ends[until + 1], span_s) - begins[period] + awake[until + 1]
            sleeps = busy + asleep[until + 1] < warm
            cost = busy + asleep[until + 1] if sleeps else warm
            misses = asleep_late[until + 1] if sleeps else awake_late[until + 1]
        asleep[period], asleep_late[period] = cost + price * late[period], misses + late[period]
    warm = min(ends[0], span_s) + awake[0]  # the first replica is there when the load begins
    return (asleep[0], asleep_late[0]) if asleep[0] < warm else (warm, awake_late[0])


def gap_clairvoyant_gpu_hours(load: Trace, profile: ServerProfile) -> float:
    """GPU-hours that no policy undercuts that starts on a request and meets the SLO, at the median start-up time."""
    service, start_s, span_s = alone_s(load, profile), profile.start_s, load.span_s
    in_hand_until = np.maximum.accumulate(load.at + service)
    first = np.flatnonzero(np.concatenate([[True], load.at[1:] > in_hand_until[:-1]]))
    begins, ends = load.at[first], np.append(in_hand_until[first[1:] - 1], in_hand_until[-1])
    resumes = begins + start_s + service[first]
    last = np.searchsorted(begins, resumes, side="right") - 1

    # A request misses the SLO if the pod is ready later than this.
    latest = load.at + profile.slo.within_s(load.prompt) - load.prompt / profile.server.prompt_rate
    judged = load.at >= min(WARM_UP_S, span_s / 2)
    late = _late(first, begins + start_s, load.at, np.where(judged, latest, np.inf))
    allowed = (1.0 - profile.slo.share) * float(judged.sum())

    low, high, best = CHEAPEST * span_s, span_s, 0.0
    for price in (0.0, high):
        cost, misses = _cheapest(begins, ends, resumes, late, last, price, span_s)
        best = max(best, cost - price * allowed)
    for _ in range(ROUNDS):
        price = float(np.sqrt(low * high))
        cost, misses = _cheapest(begins, ends, resumes, late, last, price, span_s)
        best = max(best, cost - price * allowed)
        if misses > allowed:
            low = price
        else:
            high = price
    return best * profile.gpus / 3600


@kernel(types.int64[::1](INDICES, FLOATS, FLOATS, FLOATS))
def _late(first: Ints, ready_at: Floats, at: Floats, latest: Floats) -> Ints:
    """Requests that miss the SLO if the pod for each period is ready at `ready_at`, shape (periods,)."""
    late = np.zeros(first.shape[0], dtype=np.int64)
    for period in range(first.shape[0]):
        request = first[period]
        while request < at.shape[0] and at[request] < ready_at[period]:
            late[period] += latest[request] < ready_at[period]
            request += 1
    return late

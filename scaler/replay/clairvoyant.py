"""Searches the cheapest plan for a load that is known in advance, and computes the lower bound of any plan.

A plan says how many replicas are ready in each quarter of a minute; a pod for it is ordered one start-up time earlier,
and one that will be needed again within that time is kept. It begins as what the work itself asks for, and is improved
by descent on

    GPU-seconds + price * SLO misses

in the same simulator: a block of time gets a replica less, or one more, blocks of an hour first and of a quarter of a
minute last. Each is tried by itself, from the world as it is at that moment (`walk`). A high price comes first; then it
falls as long as enough requests meet the SLO, each time from the plan before. What a block would have saved and
broken is remembered, so at the next price only those with a near choice or with changed neighbours are tried
again. So the plan is one that works: an upper bound of the optimum.

`fluid_gpu_hours` is a lower bound, and a loose one: as if work could wait for a full batch and starting were free.

Worked example: a load that is twice as heavy in its second hour makes a plan of about n replicas, then 2n.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf, nan, sqrt

import numpy as np

from exporter.model import Floats

from .columns import AT, DONE, FIRST, POD_S, Ints, Mask, ReplayWorld, Trace
from .engine import advance, scale
from .metric_pages import LIVE_POD_S, look
from .run import AFTERWARDS_S, WARM_UP_S
from .servers import DUST_S, ServerProfile
from .walk import BIN_S, Blocks, PodTimeline, SloLimits, walk

BLOCKS_S = (3600.0, 1200.0, 420.0, 150.0, 60.0, 15.0)
LATER_S = BLOCKS_S[2:]  # what is long was decided at the first price
LESS, MORE = -1, 1  # replicas in a block
STEPS = (LESS, MORE, LESS)
AGAIN = 3  # walks with the same step, as long as any block is changed
FIRST_PRICE_GPU_S = 120.0  # of one SLO miss, for a replica of one GPU
LAST_PRICE_GPU_S = 0.01
PRICE_FALL = 3.0  # to a third each time; once that is too low, between that and the last that was not
NEAR = 1.1
FELT_S = 120.0  # for so long after a block its effects are put down to it
ROUNDS = 2
ENOUGH = 0.998  # of what it was worth before: a round that does not get there is the last
TOO_BAD = 1.02
LOST = 2.0  # times as many SLO misses as are forgiven
UNSURE = 1.5  # a choice that was not within so many times of the present price is taken to stand
SLOTS = 1024  # pods alive at one moment, at the most


@dataclass(frozen=True, slots=True, eq=False)
class ClairvoyantPlan:
    """ready: shape (bins,), replicas that are ready in each BIN_S. gpu_hours, slo_met_ratio: what it comes to in a run,
    from each pod's creation to the end of its drain.
    """

    ready: Ints
    gpu_hours: float
    slo_met_ratio: float


def work_s(load: Trace, profile: ServerProfile) -> Floats:
    """Seconds of one replica's time that each request takes in a full batch, shape (requests,)."""
    server = profile.server
    together = server.slots or server.batch
    per_token = server.step / together + server.per_sequence
    context = load.prompt + load.output / 2
    decoding: Floats = load.output * (per_token + server.per_token * context)
    return load.prompt / server.prompt_rate + decoding


def fluid_gpu_hours(load: Trace, profile: ServerProfile) -> float:
    return float(work_s(load, profile).sum()) * profile.gpus / 3600


def wanted(ready: Ints, start_s: float) -> Ints:
    """Pods in each bin: those that are ready, and those that must be starting to be ready in time."""
    ahead = int(np.ceil(start_s / BIN_S))
    padded = np.concatenate([ready, np.zeros(ahead, dtype=np.int64)])
    return np.lib.stride_tricks.sliding_window_view(padded, ahead + 1).max(axis=1)


def follow(load: Trace, profile: ServerProfile, ready: Ints, slots: int = 1024) -> tuple[Floats, float]:
    """The requests' times (see `columns`) under a plan, and the seconds of pods until the last arrival: as `run` counts
    them, so what a pod takes to finish its work costs. The first pods are ready when the load begins.
    """
    server = profile.server
    world = ReplayWorld.of(load.at, load.prompt, load.output, slots, server.batch)
    pods = wanted(ready, profile.start_s)
    scale(world, int(pods[0]), np.zeros(1))
    starts = np.array([profile.start_s])
    for index in np.flatnonzero(np.diff(pods)) + 1:
        if index * BIN_S >= load.span_s:
            break
        advance(world, server, index * BIN_S)
        scale(world, int(pods[index]), starts)
    advance(world, server, load.span_s)
    pod_s = float(world.numbers[POD_S] + look(world, server)[LIVE_POD_S])
    advance(world, server, load.span_s + AFTERWARDS_S)
    return world.request_times, pod_s


def find(
    load: Trace, profile: ServerProfile, progress: Callable[[float], None] = lambda _done: None
) -> ClairvoyantPlan:
    """The cheapest plan found that meets enough of the SLO; if none does, the one at the highest price.

    progress: gets the share done, 0..1, as far as it is known.
    """
    descent = _Descent(load, profile)
    price, steps = FIRST_PRICE_GPU_S * profile.gpus, 0
    dearest = descent.descend(descent.begin(), price, BLOCKS_S)
    kept, broken = price, 0.0  # the least price at which enough are kept, and the highest at which they are not
    while kept > LAST_PRICE_GPU_S * profile.gpus and kept > broken * NEAR:
        price = sqrt(kept * broken) if broken else kept / PRICE_FALL
        plan = descent.descend(descent.cheapest or dearest, price, LATER_S)
        steps += 1
        progress(steps / (steps + 2.0))  # how many more prices there are, only they can tell
        if plan.share >= profile.slo.share:
            kept = price
        else:
            broken = price
    best = descent.cheapest or dearest
    return ClairvoyantPlan(best.ready, best.gpu_s / 3600, best.share)


def _widths(blocks_s: Sequence[float]) -> Iterator[int]:
    return (int(block_s / BIN_S) for block_s in blocks_s)


@dataclass(frozen=True, slots=True, eq=False)
class _Walked:
    """A plan that was played from beginning to end. broken: SLO misses; share: of requests that met the SLO."""

    ready: Ints
    gpu_s: float
    broken: int
    share: float

    def worth(self, price: float) -> float:
        return self.gpu_s + price * self.broken


class _Descent:
    """Walks after walks, from long blocks to short ones, and what is known of blocks that need not be tried again."""

    def __init__(self, load: Trace, profile: ServerProfile) -> None:
        self._load, self._profile = load, profile
        self._bins = int(load.span_s // BIN_S) + 1
        self._ahead = int(np.ceil(profile.start_s / BIN_S))
        self._felt = int(FELT_S / BIN_S)
        self._orders = max(1, int(np.ceil(load.span_s / BIN_S)))
        self._counted = load.at >= min(WARM_UP_S, load.span_s / 2)
        self._limits = slo_limits(load, profile, int(len(load.at) - self._counted.sum()))
        self._spares = self._world(), self._world()
        self._flips = {
            (width, step): np.full(-(-self._bins // width), nan) for width in _widths(BLOCKS_S) for step in (LESS, MORE)
        }

        self._at = self.first()  # the plan that what is known of blocks was learnt around
        self.cheapest: _Walked | None = None  # of all that were met and kept enough

    def _world(self) -> ReplayWorld:
        load = self._load
        return ReplayWorld.of(load.at, load.prompt, load.output, SLOTS, self._profile.server.batch)

    def first(self) -> Ints:
        """Replicas that the work needs, averaged over a minute, with room for its variance."""
        bin_of = np.minimum((self._load.at / BIN_S).astype(np.int64), self._bins - 1)
        work = np.bincount(bin_of, weights=work_s(self._load, self._profile), minlength=self._bins) / BIN_S
        smooth = np.convolve(work, np.ones(5) / 5, mode="same")
        return np.ceil(1.5 * np.maximum(work, smooth) + 1.5 * np.sqrt(smooth)).astype(np.int64)

    def begin(self) -> _Walked:
        ready = self._at
        times, pod_s = follow(self._load, self._profile, ready)
        return self._met(ready, pod_s, times)

    def _met(self, ready: Ints, pod_s: float, times: Floats) -> _Walked:
        load, first, rest = self._load, times[:, FIRST] - times[:, AT], times[:, DONE] - times[:, FIRST]
        kept = self._profile.slo.kept(first, rest, load.prompt, load.output)[self._counted]
        met = _Walked(ready, pod_s * self._profile.gpus, int((~kept).sum()), float(kept.mean()))
        if met.share >= self._profile.slo.share and (self.cheapest is None or met.gpu_s < self.cheapest.gpu_s):
            self.cheapest = met
        return met

    def descend(self, plan: _Walked, price: float, blocks_s: Sequence[float]) -> _Walked:
        """From a plan to the one where walking on gains little. A walk may end at a worse one: what follows a change
        comes by other chances than before it, and blocks had been fitted to those.
        """
        self._forget(plan.ready != self._at)
        best = plan
        for _ in range(ROUNDS):
            before = best.worth(price)
            for width in _widths(blocks_s):
                for step in STEPS:
                    for _walk in range(AGAIN):
                        further = self._walked(plan, width, step, price)
                        if further is None:
                            break
                        plan = further
                        if self._is_lost(plan):
                            return plan
                        best = min(best, plan, key=lambda one: one.worth(price))
            if best.worth(price) > before * ENOUGH:
                break
        return best

    def _is_lost(self, plan: _Walked) -> bool:
        """Has it broken so many that a price like this brings them back no more?"""
        if self.cheapest is None:
            return False
        return plan.broken > LOST * (1.0 - self._profile.slo.share) * int(self._counted.sum())

    def _walked(self, plan: _Walked, width: int, step: int, price: float) -> _Walked | None:
        """None if there was nothing to try, or nothing that pays."""
        flip = self._flips[width, step]
        # What is known of a block was learnt in a world that others have changed since, if only a little.
        stands = flip * UNSURE < price if step == LESS else flip > price * UNSURE
        ready, pods = plan.ready.copy(), wanted(plan.ready, self._profile.start_s)
        course = PodTimeline(pods, np.array([self._profile.start_s]), self._orders)
        blocks = Blocks(np.flatnonzero(~stands), width, step, price, self._profile.gpus, self._felt, flip)
        world, (base, tried) = self._world(), self._spares
        changed, pod_s = walk(
            world, base, tried, self._profile.server, self._limits, ready, course, self._ahead, blocks,
            self._load.span_s,
        )  # fmt: skip
        if not changed:
            return None
        advance(world, self._profile.server, self._load.span_s + AFTERWARDS_S)
        further = self._met(ready, pod_s, world.request_times)
        if further.worth(price) > plan.worth(price) * TOO_BAD:  # more was felt, and later, than the walk has seen
            places = np.unique(np.flatnonzero(ready != plan.ready) // width)
            flip[places] = 0.0 if step == LESS else inf
            return None
        self._at = ready
        self._forget(ready != plan.ready)
        return further

    def _forget(self, changed: Mask) -> None:
        """Discards results of blocks that a change of the plan affects."""
        before = np.concatenate([[0], np.cumsum(changed)])
        for (width, _), flip in self._flips.items():
            starts = np.arange(len(flip)) * width
            since = np.maximum(starts - self._ahead - self._felt, 0)
            until = np.minimum(starts + width + self._felt + self._ahead, self._bins)
            flip[before[until] > before[since]] = nan


def slo_limits(load: Trace, profile: ServerProfile, begins: int) -> SloLimits:
    slo = profile.slo
    rest = slo.rest_s + slo.rest_per_token_s * load.output + DUST_S
    return SloLimits(slo.within_s(load.prompt), np.where(load.output <= 1, inf, rest), slo.rest_per_token_s, begins)

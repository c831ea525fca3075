"""The cheapest plan somebody could have made who knew the load, as far as it was found; and what nobody can be under.

A plan says how many replicas are ready in each quarter of a minute; a pod for it is ordered one start-up time earlier,
and one that will be needed again within that time is kept. It begins as what the work itself asks for, and is improved
by descent on

    GPU-seconds + price * broken promises

in the same simulator: a block of time gets a replica less, or one more, blocks of an hour first and of a quarter of a
minute last. Blocks far enough apart are tried in one run, because what a block does is felt within it and shortly
after. A high price comes first; then it falls as long as enough promises are kept, each time from the plan before. So
the plan is one that works: an upper bound of the optimum.

`fluid_gpu_hours` is a lower bound, and a loose one: as if work could wait for a full batch and starting were free.

Worked example: a load that is twice as heavy in its second hour makes a plan of about n replicas, then 2n.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from exporter.model import Floats

from .columns import AT, DONE, FIRST, POD_S, Ints, World
from .engine import advance, scale
from .load import Load
from .pages import LIVE_POD_S, look
from .profiles import Profile
from .run import AFTERWARDS_S
from .score import WARM_UP_S

BIN_S = 15.0
BLOCKS_S = (3600.0, 1200.0, 420.0, 150.0, 60.0, 15.0)
FIRST_PRICE_GPU_S = 240.0  # of one broken promise, for a replica of one GPU
LAST_PRICE_GPU_S = 1.0
PRICE_FALLS = 3.0, 1.4  # to a third each time, and once that is too low, by less from the last that was not
FELT_S = 120.0  # for so long after a block its effects are put down to it
ROUNDS = 3


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """ready: shape (bins,), replicas that are ready in each BIN_S. gpu_hours, slo_met_ratio: what it comes to in a run,
    from each pod's creation to the end of its drain.
    """

    ready: Ints
    gpu_hours: float
    slo_met_ratio: float
    price: float


def work_s(load: Load, profile: Profile) -> Floats:
    """Seconds of one replica's time that each request takes in a full batch, shape (requests,)."""
    server = profile.server
    together = server.slots or server.batch
    per_token = server.step / together + server.per_sequence
    context = load.prompt + load.output / 2
    decoding: Floats = load.output * (per_token + server.per_token * context)
    return load.prompt / server.prompt_rate + decoding


def fluid_gpu_hours(load: Load, profile: Profile) -> float:
    return float(work_s(load, profile).sum()) * profile.gpus / 3600


def wanted(ready: Ints, start_s: float) -> Ints:
    """Pods in each bin: those that are ready, and those that must be starting to be ready in time."""
    ahead = int(np.ceil(start_s / BIN_S))
    padded = np.concatenate([ready, np.zeros(ahead, dtype=np.int64)])
    return np.lib.stride_tricks.sliding_window_view(padded, ahead + 1).max(axis=1)


def follow(load: Load, profile: Profile, ready: Ints, slots: int = 1024) -> tuple[Floats, float]:
    """The requests' times (see `columns`) under a plan, and the seconds of pods until the last arrival: as `run` counts
    them, so what a pod takes to finish its work costs. The first pods are ready when the load begins.
    """
    server = profile.server
    world = World.of(load.at, load.prompt, load.output, slots, server.batch)
    pods = wanted(ready, profile.start_s)
    scale(world, int(pods[0]), np.zeros(1))
    starts = np.array([profile.start_s])
    for place in np.flatnonzero(np.diff(pods)) + 1:
        if place * BIN_S >= load.span_s:
            break
        advance(world, server, place * BIN_S)
        scale(world, int(pods[place]), starts)
    advance(world, server, load.span_s)
    pod_s = float(world.numbers[POD_S] + look(world, server)[LIVE_POD_S])
    advance(world, server, load.span_s + AFTERWARDS_S)
    return world.request_times, pod_s


def find(load: Load, profile: Profile, told: Callable[[float], None] = lambda _done: None) -> Plan:
    """The cheapest plan found that keeps enough promises; if none does, the one at the highest price.

    told: how far it is, 0..1, as far as that can be said.
    """
    descent = _Descent(load, profile)
    steps = 0
    price = FIRST_PRICE_GPU_S * profile.gpus
    best = descent.descend(descent.first(), price)
    for fall in PRICE_FALLS:
        while price > LAST_PRICE_GPU_S * profile.gpus:
            plan = descent.descend(best.ready, price / fall)
            steps += 1
            told(steps / (steps + 2.0))  # how many more prices there are, only they can tell
            if plan.slo_met_ratio < profile.promise.share:
                break
            price /= fall
            best = min(best, plan, key=lambda one: one.gpu_hours)
    return best


class _Descent:
    def __init__(self, load: Load, profile: Profile) -> None:
        self._load, self._profile = load, profile
        self._bins = int(load.span_s // BIN_S) + 1
        self._bin_of = np.minimum((load.at / BIN_S).astype(np.int64), self._bins - 1)
        self._counted = load.at >= min(WARM_UP_S, load.span_s / 2)

    def first(self) -> Ints:
        """What the work asks for, averaged over a minute, with room for its chance."""
        work = np.bincount(self._bin_of, weights=work_s(self._load, self._profile), minlength=self._bins) / BIN_S
        smooth = np.convolve(work, np.ones(5) / 5, mode="same")
        return np.ceil(1.5 * np.maximum(work, smooth) + 1.5 * np.sqrt(smooth)).astype(np.int64)

    def _broken(self, ready: Ints) -> Floats:
        return self._outcome(ready)[0]

    def _outcome(self, ready: Ints) -> tuple[Floats, float]:
        """Broken promises by the bin of arrival, shape (bins,), and GPU-seconds as they are measured."""
        load, (times, pod_s) = self._load, follow(self._load, self._profile, ready)
        first, rest = times[:, FIRST] - times[:, AT], times[:, DONE] - times[:, FIRST]
        bad = ~self._profile.promise.kept(first, rest, load.prompt, load.output) & self._counted
        broken = np.bincount(self._bin_of, weights=bad, minlength=self._bins).astype(np.float64)
        return broken, pod_s * self._profile.gpus

    def _gpu_s(self, ready: Ints) -> float:
        """What the descent reckons with: whole bins, and no drain."""
        return float(wanted(ready, self._profile.start_s).sum()) * BIN_S * self._profile.gpus

    def descend(self, ready: Ints, price: float) -> Plan:
        broken = self._broken(ready)
        for _ in range(ROUNDS):
            before = self._gpu_s(ready) + price * broken.sum()
            for block_s in BLOCKS_S:
                for step in (-1, -1, 1, -1):
                    ready, broken = self._try(ready, broken, int(block_s / BIN_S), step, price)
            after = self._gpu_s(ready) + price * broken.sum()
            if after > before * 0.999:
                break
        broken, gpu_s = self._outcome(ready)
        kept = 1.0 - broken.sum() / max(1, int(self._counted.sum()))
        return Plan(ready, gpu_s / 3600, float(kept), price)

    def _try(self, ready: Ints, broken: Floats, width: int, step: int, price: float) -> tuple[Ints, Floats]:
        """Change every other block by a replica, keep the changes that pay, then the blocks between."""
        starts = np.arange(0, self._bins, width)
        felt = int(FELT_S / BIN_S)
        apart = 2 + felt // width
        for phase in range(apart):
            mine = starts[phase::apart]
            tried = ready.copy()
            for start in mine:
                tried[start : start + width] = np.maximum(tried[start : start + width] + step, 0)
            if np.array_equal(tried, ready):
                continue
            worse = self._broken(tried) - broken
            more_s = self._spent(tried, ready, mine)
            kept = ready.copy()
            for start, cost in zip(mine, more_s, strict=True):
                span = slice(start, start + width + felt)
                if cost + price * worse[span].sum() < 0.0:
                    kept[start : start + width] = tried[start : start + width]
            if np.array_equal(kept, ready):
                continue
            now_broken = self._broken(kept)
            change = self._gpu_s(kept) - self._gpu_s(ready) + price * (now_broken.sum() - broken.sum())
            if change < 0.0:
                ready, broken = kept, now_broken
        return ready, broken

    def _spent(self, tried: Ints, ready: Ints, blocks: NDArray[np.int64]) -> Floats:
        """GPU-seconds that each block's change costs; what is ordered ahead of it is its own."""
        start_s = self._profile.start_s
        more = (wanted(tried, start_s) - wanted(ready, start_s)) * BIN_S * self._profile.gpus
        ahead = int(np.ceil(start_s / BIN_S))
        edges = np.maximum(blocks - ahead, 0)
        edges[0] = 0
        return np.add.reduceat(more.astype(float), edges)

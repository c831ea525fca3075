"""Tuning in hindsight: the cheapest setting of the grid that keeps the promise, on one load or on several at once.

It knows settings, and what a run of each comes to. A run is given up as soon as it can no longer win: when its pods
have cost more than the best that kept the promise, or when more first tokens were late than the promise forgives. So
the winner's score is whole, and those of most losers are never known.

Worked example: of static 3, 4 and 5 on a load that needs 4: 3 is given up over its late tokens, 4 wins, and 5 is given
up when its pods have cost what 4 cost in all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from math import inf
from typing import NamedTuple

import numpy as np

from scaler.replay.baseline import Baseline, Observation
from scaler.replay.columns import FIRST, POD_S, Trace
from scaler.replay.metric_pages import LIVE_POD_S
from scaler.replay.policies import BASELINES, Setting, grid
from scaler.replay.run import WARM_UP_S, Score, run, score
from scaler.replay.servers import ServerProfile

CHECK_S = 300.0  # of the load, between two looks at whether it can still win


class Trial(NamedTuple):
    """scores: one per load, in order; fewer if it was given up."""

    setting: Setting
    scores: tuple[Score, ...]

    @property
    def gpu_hours(self) -> float:
        return sum(one.gpu_hours for one in self.scores)


class HopelessError(Exception):
    """The run can no longer win."""


class WatchedBaseline:
    """A plane that gives up. gpu_hours: more than this cannot win; late first tokens: more than `forgiven` cannot."""

    def __init__(self, plane: Baseline, load: Trace, profile: ServerProfile, gpu_hours: float) -> None:
        self.name, self.first, self._plane = plane.name, plane.first, plane
        self._load, self._profile, self._pod_s = load, profile, gpu_hours * 3600 / profile.gpus
        promise = profile.slo
        self._allowed_s = promise.within_s(load.prompt)
        self._begins = int(np.searchsorted(load.at, min(WARM_UP_S, load.span_s / 2)))
        self._forgiven = (1.0 - promise.share) * (len(load.at) - self._begins)
        self._checked, self._late, self._check_at = self._begins, 0, CHECK_S

    @property
    def every_s(self) -> float:
        return self._plane.every_s

    def step(self, seen: Observation) -> int | None:
        if seen.now >= self._check_at:
            self._check_at += CHECK_S
            self._check(seen)
        return self._plane.step(seen)

    def _check(self, seen: Observation) -> None:
        if seen.now < self._load.span_s and seen.world.numbers[POD_S] + seen.pages[LIVE_POD_S] > self._pod_s:
            raise HopelessError
        # Whoever arrived this long ago has had its first token in time, or has been broken.
        until = max(self._checked, int(np.searchsorted(self._load.at, seen.now - float(self._allowed_s.max()))))
        span = slice(self._checked, until)
        took = seen.world.request_times[span, FIRST] - self._load.at[span]
        self._late += int((~(took <= self._allowed_s[span])).sum())
        self._checked = until
        if self._late > self._forgiven:
            raise HopelessError


def attempt(setting: Setting, cases: Sequence[tuple[Trace, ServerProfile]], gpu_hours: float, seed: int) -> Trial:
    """One setting on these loads in turn, until it breaks the promise on one or costs more than `gpu_hours` in all."""
    scores: list[Score] = []
    left = gpu_hours
    for load, profile in cases:
        try:
            course = run(load, profile, WatchedBaseline(setting.baseline(), load, profile, left), seed=seed)
        except HopelessError:
            break
        one = score(course)
        if not one.slo_met_ratio >= profile.slo.share or one.gpu_hours > left:
            break
        left -= one.gpu_hours
        scores.append(one)
    return Trial(setting, tuple(scores))


def tune(
    load: Trace,
    profile: ServerProfile,
    settings: Iterable[Setting] | None = None,
    *,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> Trial | None:
    """The cheapest setting that keeps the promise; None if none does.

    settings: those to try; if not given, everybody's published grid but ours.
    progress: called with how many settings are done, and of how many.
    """
    return one_setting([(load, profile)], settings, seed=seed, progress=progress)


def one_setting(
    cases: Sequence[tuple[Trace, ServerProfile]],
    settings: Iterable[Setting] | None = None,
    *,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> Trial | None:
    """The setting that keeps the promise on all these loads and is the cheapest in sum; None if none does."""
    todo = list(grid(BASELINES) if settings is None else settings)
    count = len(todo)
    # Shortest first: what fails, fails there for less.
    order = sorted(range(len(cases)), key=lambda place: len(cases[place][0].at))
    shortest_first = [cases[place] for place in order]
    best: Trial | None = None
    cores = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(cores) as pool:
        running: set[Future[Trial]] = set()
        todo.reverse()
        while todo or running:
            while todo and len(running) < cores:
                most = inf if best is None else best.gpu_hours
                running.add(pool.submit(attempt, todo.pop(), shortest_first, most, seed))
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                trial = future.result()
                if len(trial.scores) == len(cases) and (best is None or _before(trial, best)):
                    best = trial
            progress(count - len(todo) - len(running), count)
    if best is None:
        return None
    scores = dict(zip(order, best.scores, strict=True))
    return best._replace(scores=tuple(scores[place] for place in range(len(cases))))


def _before(one: Trial, other: Trial) -> bool:
    """Cheaper; by name where they cost the same, so that the answer does not depend on who was ready first."""
    return (one.gpu_hours, one.setting.name) < (other.gpu_hours, other.setting.name)

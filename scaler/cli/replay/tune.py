"""Finds the cheapest setting of the grid that meets the SLO, in hindsight, on one trace or on several together.

A simulation is aborted as soon as it cannot win: if its pods have cost more than the best setting so far, or if more
first tokens were late than the SLO allows. So the score of the winner is complete, and most others have none.

Worked example: of static 3, 4 and 5 on a load that needs 4: 3 is aborted for late tokens, 4 wins, and 5 is aborted when
its pods have cost as much as 4 in total.
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

CHECK_S = 300.0  # simulated time between two checks whether it can still win


class Trial(NamedTuple):
    """scores: one for each trace, in order; fewer if it was aborted."""

    setting: Setting
    scores: tuple[Score, ...]

    @property
    def gpu_hours(self) -> float:
        return sum(one.gpu_hours for one in self.scores)


class HopelessError(Exception):
    """The simulation cannot win."""


class WatchedBaseline:
    """Wraps a baseline; raises HopelessError if it costs more than `gpu_hours` or too many first tokens are late."""

    def __init__(self, plane: Baseline, load: Trace, profile: ServerProfile, gpu_hours: float) -> None:
        self.name, self.first, self._plane = plane.name, plane.first, plane
        self._load, self._profile, self._pod_s = load, profile, gpu_hours * 3600 / profile.gpus
        slo = profile.slo
        self._allowed_s = slo.within_s(load.prompt)
        self._begins = int(np.searchsorted(load.at, min(WARM_UP_S, load.span_s / 2)))
        self._forgiven = (1.0 - slo.share) * (len(load.at) - self._begins)
        self._checked, self._late, self._check_at = self._begins, 0, CHECK_S

    @property
    def every_s(self) -> float:
        return self._plane.every_s

    def step(self, observation: Observation) -> int | None:
        if observation.now >= self._check_at:
            self._check_at += CHECK_S
            self._check(observation)
        return self._plane.step(observation)

    def _check(self, observation: Observation) -> None:
        pod_s = observation.world.numbers[POD_S] + observation.pages[LIVE_POD_S]
        if observation.now < self._load.span_s and pod_s > self._pod_s:
            raise HopelessError
        # For requests that arrived so long ago it is decided whether the first token is in time.
        decided_until = observation.now - float(self._allowed_s.max())
        until = max(self._checked, int(np.searchsorted(self._load.at, decided_until)))
        span = slice(self._checked, until)
        took = observation.world.request_times[span, FIRST] - self._load.at[span]
        self._late += int((~(took <= self._allowed_s[span])).sum())
        self._checked = until
        if self._late > self._forgiven:
            raise HopelessError


def attempt(setting: Setting, cases: Sequence[tuple[Trace, ServerProfile]], gpu_hours: float, seed: int) -> Trial:
    """Simulates a setting on these traces in turn, until it misses the SLO on one or costs more than `gpu_hours` in
    total.
    """
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
    """The cheapest setting that meets the SLO. Returns None if none does.

    settings: to try; by default the published grid of all baselines. progress: called with (finished, total).
    """
    return one_setting([(load, profile)], settings, seed=seed, progress=progress)


def one_setting(
    cases: Sequence[tuple[Trace, ServerProfile]],
    settings: Iterable[Setting] | None = None,
    *,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> Trial | None:
    """The setting that meets the SLO on all these traces and is the cheapest in total. Returns None if none does."""
    todo = list(grid(BASELINES) if settings is None else settings)
    count = len(todo)
    # Shortest first: a failure costs least there.
    order = sorted(range(len(cases)), key=lambda index: len(cases[index][0].at))
    shortest_first = [cases[index] for index in order]
    best: Trial | None = None
    cores = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(cores) as pool:
        running: set[Future[Trial]] = set()
        todo.reverse()
        while todo or running:
            while todo and len(running) < cores:
                limit = inf if best is None else best.gpu_hours
                running.add(pool.submit(attempt, todo.pop(), shortest_first, limit, seed))
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                trial = future.result()
                if len(trial.scores) == len(cases) and (best is None or _is_better(trial, best)):
                    best = trial
            progress(count - len(todo) - len(running), count)
    if best is None:
        return None
    scores = dict(zip(order, best.scores, strict=True))
    return best._replace(scores=tuple(scores[index] for index in range(len(cases))))


def _is_better(one: Trial, other: Trial) -> bool:
    """Cheaper; by name at the same cost, so that the result does not depend on which finished first."""
    return (one.gpu_hours, one.setting.name) < (other.gpu_hours, other.setting.name)

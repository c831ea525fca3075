"""Simulates MISO's cluster: jobs arrive, GPUs are partitioned, and jobs move when a partition changes.

The rules are those of MISO's scripts (`exp_full.py`, `exp_static.py`, `exp_miso.py`), which run on real GPUs: 8 GPUs,
100 jobs in random order, every 60 s on average and every 30 s for the first third. A moved job stops for PAUSE_S
(`run.py --overhead`).

- **whole**: one job per GPU, first come, first served.
- **static**: one partition for all GPUs. A job takes the largest idle instance that it fits; jobs move to larger
  instances that become idle.
- **dynamic**: a job goes to the GPU whose total speed grows most with it, and that GPU gets the partition that `choose`
  returns (MISO takes the GPU with the fewest jobs). When a job ends and none waits, its GPU is partitioned again if
  that gains more work than the pause loses (MISO does so always).

Worked example: with one GPU and jobs of 100 s at 0 s and 0 s, `whole` completes at 100 s and 200 s: 150 s on average.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from miso import TraceJob

PAUSE_S = 30.0
# Names of the jobs on a GPU -> the profile of each, None if they do not fit together.
Choose: TypeAlias = Callable[[tuple[str, ...]], tuple[str, ...] | None]
Speeds: TypeAlias = Mapping[str, Mapping[str, float]]


@dataclass
class Running:
    """left: seconds of work on a whole GPU. paused_until: seconds. profile: of its instance."""

    job: TraceJob
    left: float
    profile: str
    paused_until: float = 0.0


@dataclass
class GpuState:
    jobs: list[Running] = field(default_factory=list)


def arrivals(jobs: Sequence[tuple[str, float]], seed: int, period_s: float = 60.0) -> list[TraceJob]:
    """Jobs in the order and at the times of MISO's `Experiment` with this seed; the paper's runs have seed 1."""
    random.seed(seed)
    poisson = np.random.RandomState(seed + 1).poisson
    order = random.sample(range(len(jobs)), len(jobs))
    at, result = 0.0, []
    for number, job in enumerate(order):
        at += poisson(period_s / 2 if number <= len(jobs) // 3 else period_s)
        result.append(TraceJob(jobs[job][0], at, jobs[job][1]))
    return result


def simulate(jobs: Sequence[TraceJob], gpus: int, speeds: Speeds, schedule: Schedule) -> float:
    """The mean completion time, seconds from arrival to end; inf if a job fits nowhere."""
    states, waiting, coming = [GpuState() for _ in range(gpus)], list[TraceJob](), list(jobs)
    now, total = 0.0, 0.0
    while coming or waiting or any(state.jobs for state in states):
        arrived = [job for job in coming if job.arrival <= now]
        coming, waiting = coming[len(arrived) :], waiting + arrived
        ended = []
        for state in states:
            for run in list(state.jobs):
                if run.left <= 0.0:
                    state.jobs.remove(run)
                    total += now - run.job.arrival
                    ended.append(state)
        if arrived or ended:
            waiting = schedule(now, states, waiting, ended)
        if waiting and not coming and not any(state.jobs for state in states):
            return float("inf")  # a job that fits no instance
        step = next_event(now, states, coming, speeds)
        for state in states:
            for run in state.jobs:
                run.left -= speeds[run.job.name][run.profile] * max(0.0, now + step - max(now, run.paused_until))
        now += step
    return total / len(jobs)


def next_event(now: float, states: Sequence[GpuState], coming: Sequence[TraceJob], speeds: Speeds) -> float:
    """Seconds to the next arrival or end of a job."""
    ends = [
        max(0.0, run.paused_until - now) + run.left / speeds[run.job.name][run.profile]
        for state in states
        for run in state.jobs
    ]
    return max(min([*ends, *([coming[0].arrival - now] if coming else [])], default=0.0), 1e-6)


Schedule: TypeAlias = Callable[[float, list[GpuState], list[TraceJob], list[GpuState]], list[TraceJob]]


def whole(_now: float, states: list[GpuState], waiting: list[TraceJob], _ended: list[GpuState]) -> list[TraceJob]:
    for state in states:
        if waiting and not state.jobs:
            job = waiting.pop(0)
            state.jobs.append(Running(job, job.work, "7g.40gb"))
    return waiting


def static(partition: Sequence[str], speeds: Speeds, order: Sequence[str]) -> Schedule:
    """order: profiles, the largest first."""

    def idle(state: GpuState) -> list[str]:
        left = list(partition)
        for run in state.jobs:
            left.remove(run.profile)
        return sorted(left, key=order.index)

    def schedule(now: float, states: list[GpuState], waiting: list[TraceJob], _ended: list[GpuState]) -> list[TraceJob]:
        rest = []
        for job in waiting:
            state = min(states, key=lambda each: order.index(idle(each)[0]) if idle(each) else len(order))
            free = idle(state)
            if free and free[0] in speeds[job.name]:
                state.jobs.append(Running(job, job.work, free[0]))
            else:
                rest.append(job)
        for state in states:
            for run in sorted(state.jobs, key=lambda each: -order.index(each.profile)):
                free = idle(state)
                if free and order.index(free[0]) < order.index(run.profile):
                    run.profile, run.paused_until = free[0], now + PAUSE_S
        return rest

    return schedule


def most_gain(gain: float, _jobs: int) -> float:
    return gain


def fewest_jobs(_gain: float, jobs: int) -> float:
    return float(-jobs)


def dynamic(
    choose: Choose, speeds: Speeds, prefer: Callable[[float, int], float] = most_gain, probe_s: float = 0.0
) -> Schedule:
    """speeds: measured or predicted; the same that `choose` has.

    prefer: scores a GPU for a new job by the total speed that it gains and by its jobs.
    probe_s: seconds for which the jobs of a GPU stand still when another one joins them.
    """

    def chosen_gain(state: GpuState, new: TraceJob | None = None) -> tuple[float, list[str]] | None:
        """The total speed that the best partition with the new job gains, and the profile of each job, the new last."""
        names = [run.job.name for run in state.jobs] + ([new.name] if new else [])
        order = sorted(range(len(names)), key=names.__getitem__)
        chosen = choose(tuple(names[index] for index in order))
        if chosen is None:
            return None
        profiles = [chosen[order.index(index)] for index in range(len(names))]
        after = sum(speeds[job][profile] for job, profile in zip(names, profiles, strict=True))
        return after - sum(speeds[run.job.name][run.profile] for run in state.jobs), profiles

    def schedule(now: float, states: list[GpuState], waiting: list[TraceJob], ended: list[GpuState]) -> list[TraceJob]:
        while waiting:
            options = [(found, state) for state in states if (found := chosen_gain(state, waiting[0]))]
            if not options:
                return waiting
            (_, profiles), state = max(options, key=lambda option: prefer(option[0][0], len(option[1].jobs)))
            repartition(now, state, profiles, waiting[0], probe_s if state.jobs else 0.0)
            waiting = waiting[1:]
        for state in ended:
            found = chosen_gain(state)
            longest = max((run.left for run in state.jobs), default=0.0)
            if found and found[0] * longest > PAUSE_S * len(state.jobs):
                repartition(now, state, found[1], None)
        return waiting

    return schedule


def repartition(
    now: float, state: GpuState, profiles: Sequence[str], new: TraceJob | None, probe_s: float = 0.0
) -> None:
    """Partitions a GPU. MISO stops all jobs of a GPU that is partitioned anew."""
    changes = any(profile != run.profile for profile, run in zip(profiles, state.jobs, strict=False))
    ready = now + probe_s + (PAUSE_S if changes else 0.0)
    for profile, run in zip(profiles, state.jobs, strict=False):
        run.profile, run.paused_until = profile, max(run.paused_until, ready)
    if new:
        state.jobs.append(Running(new, new.work, profiles[-1], ready))

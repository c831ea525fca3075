"""A whole replay: loads, a server, policies, and the bounds; one verdict per load.

It tells how far it is and refuses to print. Policies are played one after the other in this process; tuning, which
plays hundreds, uses all cores (`tune`).

Worked example: `play(Wishes([recorded], PROFILES["A"], [parse("tidegate")]), progress)` is one `Verdict` with one
policy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scaler.replay import clairvoyant
from scaler.replay.policies import BASELINES, FAMILIES, Setting, grid
from scaler.replay.report import Played, TraceResult
from scaler.replay.run import run
from scaler.replay.servers import ServerProfile
from scaler.replay.traces import Recorded

from .tune import tune

# What is being done, and how much of that is done, 0..1.
Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True, eq=False)
class ReplayPlan:
    """policies: to be played. tuned: also the cheapest setting, in hindsight, of the published grid.

    plan: also look for the plan of somebody who knew the load.
    """

    loads: Sequence[Recorded]
    profile: ServerProfile
    policies: Sequence[Setting]
    tuned: bool = False
    plan: bool = False
    seed: int = 0


def play(wishes: ReplayPlan, progress: Progress) -> list[TraceResult]:
    return [_load(recorded, wishes, progress) for recorded in wishes.loads]


def _load(recorded: Recorded, wishes: ReplayPlan, progress: Progress) -> TraceResult:
    load, profile = recorded.load, wishes.profile

    def at(what: str) -> Callable[[float], None]:
        return lambda done: progress(f"{load.name}: {what}", done)

    played = [_played(one, one.family, recorded, wishes, at(one.name)) for one in wishes.policies]
    if wishes.tuned:
        told = at("tuning")
        best = tune(load, profile, grid(BASELINES), seed=wishes.seed, progress=lambda done, of: told(done / of))
        if best is not None:
            name = f"hindsight: {best.setting.family}"
            played.append(_played(best.setting, name, recorded, wishes, at("the best in hindsight")))
    plan = None
    if wishes.plan:
        plan = clairvoyant.find(load, profile, at("the plan"))
    return TraceResult(load, profile, played, plan, clairvoyant.fluid_gpu_hours(load, profile), recorded.notes)


def _played(
    setting: Setting, name: str, recorded: Recorded, wishes: ReplayPlan, told: Callable[[float], None]
) -> Played:
    course = run(recorded.load, wishes.profile, setting.baseline(), seed=wishes.seed, progress=told)
    defaults = FAMILIES[setting.family].parameters
    other = {key: value for key, value in setting.values if value != defaults[key].default}
    return Played(name, other, course)

"""What a configuration orders now and next, in words for a person. Pure; `now` is an argument.

Worked example: at seven in the morning in Berlin a workload with `{start: 0 8 * * 1-5, duration: 10h, zone:
Europe/Berlin, floor: 2}` has one line: "next: floor 2 from 2026-11-23T08:00+01:00 until 2026-11-23T18:00+01:00 (0 8 * *
1-5 in Europe/Berlin)".
"""

from __future__ import annotations

from collections.abc import Iterator

from scaler.policy.overrides import Brake

from .model import Config

EVERYBODY = "all workloads"


def orders_shown(config: Config, now: float) -> dict[str, list[str]]:
    """By workload, those without orders left out; what is ordered of all of them first. now: POSIX seconds."""
    lines = {EVERYBODY: list(_of_brake(config.brake, now))}
    for workload in config.workloads:
        lines[str(workload.key)] = [
            *_of_brake(workload.brake, now),
            *(schedule.order.said_at(now) for schedule in workload.schedules),
        ]
    return {name: said for name, said in lines.items() if said}


def _of_brake(brake: Brake | None, now: float) -> Iterator[str]:
    if brake is not None:
        yield f"{'now' if brake.holds(now) else 'over'}: {brake.typed()}"

"""What a course of events is worth: the promise kept, GPU-hours, and how restless it was. Pure.

The first five minutes cost, and are not held against anybody: no control plane can know a load before it begins.

Worked example: orders 1 -> 3 at 1000 s, 3 -> 2 at 1100 s, 2 -> 3 at 2000 s are three changes and one flap: the second
takes back within 300 s what the first did.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import isnan
from typing import NamedTuple

import numpy as np

from .columns import AT, DONE, FIRST, Mask
from .run import Order, Replayed

WARM_UP_S = 300.0
FLAP_S = 300.0


class Score(NamedTuple):
    """slo_met_ratio: of the requests after the first five minutes, 0..1; NaN if there are none. Times in seconds, of
    those who had a first token. cold_starts: times a request found no ready replica.
    """

    slo_met_ratio: float
    gpu_hours: float
    ttft_mean_s: float
    ttft_p99_s: float
    changes: int
    flaps_per_day: float
    cold_starts: int


def promise_kept(course: Replayed) -> Mask:
    """Which requests had what was promised, those of the first minutes too; shape (requests,)."""
    load, times = course.load, course.times
    first, rest = times[:, FIRST] - times[:, AT], times[:, DONE] - times[:, FIRST]
    return course.profile.promise.kept(first, rest, load.prompt, load.output)


def score(course: Replayed) -> Score:
    load = course.load
    counted = load.at >= min(WARM_UP_S, load.span_s / 2)
    first = (course.times[:, FIRST] - course.times[:, AT])[counted]
    kept = promise_kept(course)[counted]
    answered = first[~np.isnan(first)]
    days = max(load.span_s, 1.0) / 86_400
    return Score(
        slo_met_ratio=float(kept.mean()) if len(kept) else float("nan"),
        gpu_hours=course.pod_s * course.profile.gpus / 3600,
        ttft_mean_s=float(answered.mean()) if len(answered) else float("nan"),
        ttft_p99_s=float(np.quantile(answered, 0.99)) if len(answered) else float("nan"),
        changes=len(course.orders),
        flaps_per_day=flaps(course.orders) / days,
        cold_starts=course.cold,
    )


def flaps(orders: Sequence[Order]) -> int:
    """Changes that go back on the one before within FLAP_S."""
    return sum(
        (one.after > one.before) != (two.after > two.before) and two.at - one.at <= FLAP_S
        for one, two in pairwise(orders)
    )


def shown(value: float, digits: int, unit: str = "") -> str:
    """For a person; what is not known is a dash."""
    return "\N{EN DASH}" if isnan(value) else f"{value:,.{digits}f}{unit}"

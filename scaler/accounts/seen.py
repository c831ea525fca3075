"""From what is read and decided at a sweep to a `Moment` of the books. Pure.

Worked example: an observed workload has 4 replicas, Tidegate would have 1, and nothing waits: it is `apart` by -3.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from exporter.model import Floats

from ..slots import Mask
from ..totals import Totals
from .books import Moment
from .states import Circumstances, doing, gpus, replicas, states


class Answers(NamedTuple):
    """replicas: what is answered, NaN unknown. observed: who is not told."""

    replicas: Floats
    observed: Mask


def look(totals: Totals, known: Circumstances, answers: Answers, before: Moment, now: float) -> Moment:
    """What is seen now. before: the last that was. now: POSIX seconds."""
    seen = totals.seen
    does = doing(totals, known, now)
    there = replicas(totals, known, does)
    state = states(there, totals, known, does)
    each = np.where(np.isnan(totals.gpus_each), before.each, totals.gpus_each)
    queued = np.where(
        np.isnan(seen.waiting) & np.isnan(seen.held), np.nan, np.nan_to_num(seen.waiting) + np.nan_to_num(seen.held)
    )
    return Moment(
        state=state,
        gpus=gpus(there, state, totals, each, before.gpus.sum(axis=1)),
        each=each,
        queued=queued,
        would=answers.replicas.copy(),
        apart=np.where(answers.observed, answers.replicas - seen.wanted, np.nan),
        up=_up(seen.wanted, answers, before),
        counts=before.counts | ~np.isnan(seen.wanted),
    )


def _up(wanted: Floats, answers: Answers, before: Moment) -> Floats:
    """1 where some replica is to run. The cluster knows; where it never says, what is answered is done."""
    mute = before.counts | answers.observed | np.isnan(answers.replicas)
    answered = np.where(mute, np.nan, answers.replicas > 0.0)
    told = np.where(np.isnan(wanted), answered, wanted > 0.0)
    return np.where(np.isnan(told), before.up, told)

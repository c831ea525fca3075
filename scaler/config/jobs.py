"""What a workload of a ScaledJob is unless somebody writes otherwise: the work in hand, and nothing kept up.

KEDA starts Jobs up to the number it is told, less those that run, and ends none: zero is harmless, and each Job that
ends under a number that is too high is replaced by one with nothing to do (pkg/scaling/executor/scale_jobs.go). So
nothing is kept warm, smoothed, leased or added by a guard.

Worked example: `smoothing.down: 30s` alone is written: half-lives of 0 s up and 30 s down, keep_warm 0, no KV guard.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from .access import Section
from .bad_words import BadWord
from .rules import IDLE_JOBS, NO_WAKER, RISES_SLOWLY
from .scalars import write_duration
from .workload import Workload

SCALED_JOB = "ScaledJob"
AnySection = TypeVar("AnySection", bound=Section)

_STARTS_IDLE = "KEDA would start Jobs with nothing to do"


def for_jobs(workload: Workload) -> Workload:
    """The same, and what is not written as Jobs need it."""
    return _unless_written(
        workload,
        keep_warm=0.0,
        lease_max=0.0,
        scale_down_band=0.0,
        smoothing=_unless_written(workload.smoothing, up=0.0, down=0.0),
        objectives=_unless_written(workload.objectives, kv_cache=None),
    )


def said_of_jobs(said: Iterable[BadWord], workload: Workload, prefix: str) -> Iterator[BadWord]:
    """What is to be said of a workload, as it is true of Jobs. prefix: of the place of its words, as "metadata."."""
    for word in said:
        if word.rule is NO_WAKER:
            unseen = "nothing shows work while no Job runs, so none is started (reason no_waker)"
            yield word._replace(key=f"{prefix}gateway", bound=unseen)
        elif word.rule is not RISES_SLOWLY:  # no Job goes before another comes
            yield word
    yield from _idle_jobs(workload, prefix)


def _idle_jobs(workload: Workload, prefix: str) -> Iterator[BadWord]:
    """Words that keep the number above the work in hand."""
    of_jobs = for_jobs(workload)
    smoothing, objectives = of_jobs.smoothing, of_jobs.objectives
    keep_warm = of_jobs.keep_warm
    kept = (
        ("keep_warm", keep_warm, keep_warm if isinstance(keep_warm, str) else write_duration(keep_warm)),
        ("lease_max", of_jobs.lease_max, write_duration(of_jobs.lease_max)),
        ("smoothing.down", smoothing.down, write_duration(smoothing.down)),
        ("scale_down_band", of_jobs.scale_down_band, f"{of_jobs.scale_down_band:g}"),
        ("objectives.kv_cache", objectives.kv_cache, f"{objectives.kv_cache}"),
        ("objectives.gpu_engine", objectives.gpu_engine, f"{objectives.gpu_engine}"),
        ("on_blind", of_jobs.on_blind == "wake", of_jobs.on_blind),
    )
    for key, value, shown in kept:
        if value:
            bound = f"keeps the number above the work in hand: {_STARTS_IDLE}; leave it out"
            yield BadWord(prefix + key, bound, shown, "warning", IDLE_JOBS)
    if any(schedule.floor for schedule in of_jobs.schedules):
        bound = f"a floor is kept whether there is work or not: {_STARTS_IDLE}"
        yield BadWord(f"{prefix}schedules", bound, None, "warning", IDLE_JOBS)


def _unless_written(section: AnySection, **defaults: object) -> AnySection:
    """Nested sections are given whole: they know themselves what was written of them."""
    nested = {key for key, value in defaults.items() if isinstance(value, Section)}
    update = {key: value for key, value in defaults.items() if key in nested or key not in section.model_fields_set}
    return section.model_copy(update=update)

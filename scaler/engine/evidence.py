"""From what was decided to Decisions: the answer, and the evidence that it rests on.

It knows columns and words, and decides nothing. Objects are made here for those workloads of which something is to be
shown, and numbers are taken out of lists: out of arrays one by one they take much longer.

Worked example: of a workload that is `warm`, with a brake that holds, the Decision has the reason, the replicas, and in
its evidence the sums of its pages, what each objective asks for, and "freeze until 2026-11-23T08:00Z".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from math import isnan
from typing import Any, NamedTuple

import numpy as np

from exporter.model import Floats, without_user
from scaler.columns import Mask, Rows
from scaler.model import Decision, Evidence, Objective, Reason
from scaler.policy.columns import REASONS, Memory, Signal, Spec, Verdicts
from scaler.policy.constraints import ConstraintSource
from scaler.policy.kernel import choose
from scaler.signals.aggregate import Aggregate
from scaler.signals.gpus import gpu_activity, gpu_notes
from scaler.signals.latest import LatestSamples
from scaler.signals.queues import Waker
from scaler.signals.slots import known, whole
from scaler.signals.smoothing import Signals
from scaler.workloads.spec import WorkloadSpec

OBJECTIVE_NAMES = {Signal.WORK: "work", Signal.KV_CACHE: "kv_cache", Signal.GPU_ENGINE: "gpu_engine"}


class Witnesses(NamedTuple):
    """Who is asked what more is known."""

    intake: LatestSamples
    signals: Signals
    stands: ConstraintSource


@dataclass(frozen=True, slots=True)
class SweepColumns:
    """What the Decisions of some workloads are made of; every part has a slot for each of `rows`."""

    rows: Rows
    totals: Aggregate
    imputed: Mask
    undecidable: Mask  # no state, and its replicas are not counted yet
    asked: Floats  # replicas that its group asks for
    together: Mask  # it sleeps and wakes with its group
    smoothed: Floats
    verdicts: Verdicts
    number: Floats  # replicas, as controllers are told
    tolerance: Floats  # of its HPA, a ratio
    memory: Memory
    keep_warm: Floats
    decided_at: Floats

    def choose(self, places: Rows) -> SweepColumns:
        """The same for some of the workloads only."""
        return SweepColumns(*(_chosen(getattr(self, field.name), places) for field in fields(self)))


def _chosen(part: Any, places: Rows) -> Any:
    if isinstance(part, Aggregate):
        return part.choose(places)
    return choose(places, part) if isinstance(part, tuple) else part[places]


def decisions(plans: Sequence[WorkloadSpec], seen: SweepColumns, witnesses: Witnesses, now: float) -> list[Decision]:
    """One for each of `seen.rows`, which are rows of `plans`. `now`: POSIX seconds."""
    replicas, active, told = whole(seen.verdicts.replicas), seen.verdicts.active.tolist(), whole(seen.number)
    decided_at, measured_at = seen.decided_at.tolist(), known(seen.totals.seen.measured_at)
    held_since, idle_since = known(seen.memory.held_since), known(seen.memory.idle_since)
    return [
        Decision(
            workload=plans[seen.rows[place]].workload,
            replicas=replicas[place],
            active=active[place],
            reason=REASONS[seen.verdicts.reason[place]],
            decided_at=decided_at[place],
            measured_at=measured_at[place],
            held_since=held_since[place],
            idle_since=idle_since[place],
            evidence=evidence,
            observed=plans[seen.rows[place]].observed,
            told=told[place],
        )
        for place, evidence in enumerate(_evidence(plans, seen, witnesses, now))
    ]


def _evidence(
    plans: Sequence[WorkloadSpec], seen: SweepColumns, witnesses: Witnesses, now: float
) -> Iterator[Evidence]:
    """What each decision rests on."""
    intake, signals, stands = witnesses
    keep_warm, again = seen.keep_warm.tolist(), known(stands.returns_at(seen.rows))
    usual, slow = (known(column[seen.rows]) for column in stands.starts.times)
    saving = [known(column) for column in stands.saving(seen.rows)]
    totals, readings = seen.totals, seen.totals.seen
    waiting, running, held = known(readings.waiting), known(readings.running), known(readings.held)
    kv_cache, gpu_engine = known(totals.kv_cache), known(totals.gpu_engine)
    rates = known(signals.rates(seen.rows, now))
    wanted, ready, pending = whole(readings.wanted), whole(readings.ready), whole(readings.pending)
    sleeping = whole(totals.sleeping)
    gpus, any_gpus = totals.gpus, totals.gpus.shown > 0
    held_gpus, seen_gpus = whole(totals.gpus_held), whole(np.where(any_gpus, gpus.shown, np.nan))
    lost_gpus = whole(np.where(any_gpus, gpus.lost, np.nan))
    ceiling, memory = known(gpus.ceiling), known(gpus.memory)
    values, demands = [known(row) for row in seen.smoothed.T], [known(row) for row in seen.verdicts.demand.T]
    probe_periods, count_until = (known(column) for column in intake.activity.probes.verdicts(seen.rows, now))
    for place, row in enumerate(seen.rows):
        plan = plans[row]
        yield Evidence(
            waiting=waiting[place],
            running=running[place],
            held_by_gateway=held[place],
            kv_cache_used=kv_cache[place],
            gpu_engine_active=gpu_engine[place],
            requests_per_second=rates[place],
            replicas_wanted=wanted[place],
            replicas_ready=ready[place],
            replicas_pending=pending[place],
            gpus_held=held_gpus[place],
            gpus_seen=seen_gpus[place],
            gpus_lost=lost_gpus[place],
            gpu_activity=gpu_activity(totals, place),
            gpu_engine_ceiling=ceiling[place],
            gpu_memory_held_bytes=memory[place],
            waker=_waker(*intake.waker(plan.workload, now)),
            objectives=tuple(
                Objective(OBJECTIVE_NAMES[signal], values[signal][place], target, demands[signal][place])
                for signal, target in plan.spec.targets
            ),
            stale=intake.stale(plan.workload, now),
            incomplete=intake.incomplete(plan.workload, now),
            notes=(
                *_notes(plan.spec, seen, place, has_gateway=intake.has_gateway(plan.workload)),
                *intake.activity.probes.notes(int(row), now),
            ),
            **stands.said(int(row), now)._asdict(),
            keep_warm_s=keep_warm[place],
            starts_again_at=again[place],
            cold_start_p50_s=usual[place],
            cold_start_p90_s=slow[place],
            keep_warm_saves_gpu_seconds=saving[0][place],
            keep_warm_saves_money=saving[1][place],
            probe_period_s=probe_periods[place],
            regular_requests_count_until=count_until[place],
            replicas_sleeping=sleeping[place],
        )


def _told_past(about: SweepColumns, place: int) -> str:
    """Why more is told than is wanted."""
    number, replicas, current = about.number[place], about.verdicts.replicas[place], about.totals.seen.wanted[place]
    if isnan(current):
        return f"told as {number:.0f}, as before: how many replicas there are is not known now"
    if current >= replicas:
        return f"told as {number:.0f} until the next tick: the step past {replicas:.0f} has just been taken"
    return (
        f"told as {number:.0f}: its HPA takes {replicas:.0f} for the {current:.0f} there are, within its tolerance of "
        f'{about.tolerance[place]:.3g}; behavior.scaleUp.tolerance: "0" (Kubernetes 1.35 and later) takes steps exactly'
    )


def _notes(spec: Spec, about: SweepColumns, place: int, *, has_gateway: bool) -> tuple[str, ...]:
    """What a person would ask next."""
    notes = []
    seen, reason = about.totals.seen, REASONS[about.verdicts.reason[place]]
    if about.imputed[place]:
        notes.append(
            f"{seen.pods_fresh[place]:.0f} of {seen.pods_listed[place]:.0f} ready pods answer; the others are taken to "
            "be like them, which sizes the workload and proves no idleness"
        )
    if about.totals.sleeping[place] > 0.0:
        notes.append(
            f"{about.totals.sleeping[place]:.0f} of its engines sleep (vLLM's sleep mode): they hold GPU memory and "
            "serve nobody until somebody wakes them"
        )
    if reason is Reason.NO_WAKER:
        silent = bool(seen.gateway_fresh[place])
        notes.append(
            "the gateway's page shows no queue of its own, so nothing would see a request at zero replicas"
            if silent
            else "no gateway of its group shows a queue now, so nothing would see a request at zero replicas"
            if about.together[place] and not spec.gateway
            else "no gateway is configured, so nothing would see a request at zero replicas"
            if not spec.gateway
            else "the gateway does not answer, so nothing would see a request at zero replicas"
        )
    if spec.gateway and not has_gateway:
        notes.append("its gateway has no ready address to ask")
    notes += gpu_notes(about.totals, place, dict(spec.targets).get(Signal.GPU_ENGINE))
    if about.number[place] > about.verdicts.replicas[place]:
        notes.append(_told_past(about, place))
    if about.asked[place] > 0.0:
        notes.append(f"its group is awake and asks for {about.asked[place]:.0f} replicas of it at least")
    if about.memory.floor[place] > 0.0:
        notes.append(
            f"begun without a memory: not below the {about.memory.floor[place]:.0f} that the cluster has, until enough "
            "was seen"
        )
    if reason in (Reason.HELD, Reason.UNKNOWN) and np.isnan(seen.pods_listed[place]) and spec.pods:
        notes.append("the list of its pods is not known")
    if about.undecidable[place]:
        notes.append("how many replicas it has is not known yet; without a memory nothing is decided before")
    return tuple(notes)


def _waker(waker: Waker, url: str) -> str | None:
    match waker:
        case Waker.QUEUE:
            return f"the queue on {without_user(url)}"
        case Waker.REFUSALS:
            return f"refused requests on {without_user(url)}"
        case Waker.NOTHING:
            return None

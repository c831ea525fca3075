"""Builds Decisions with their evidence from the columns of a sweep.

It decides nothing. It builds objects only for the workloads with a published Decision. Numbers are read from lists:
reading single numbers from arrays takes much longer.

Worked example: a workload is `warm` and has an active brake. Its Decision has the reason and the replicas; its evidence
has the sums over its targets, the replicas of each objective, and "freeze until 2026-11-23T08:00Z".
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
from scaler.policy.columns import REASONS, Memory, Signal, Spec, Verdicts, unused_objectives
from scaler.policy.constraints import ConstraintSource
from scaler.policy.kernel import choose
from scaler.signals.aggregate import Aggregate
from scaler.signals.gpus import gpu_activity, gpu_notes
from scaler.signals.latest import LatestSamples
from scaler.signals.queues import WakeSource
from scaler.signals.slots import optional_floats, optional_ints
from scaler.signals.smoothing import Smoother
from scaler.workloads.spec import WorkloadSpec

OBJECTIVE_NAMES = {Signal.WORK: "work", Signal.KV_CACHE: "kv_cache", Signal.GPU_ENGINE: "gpu_engine", Signal.SLO: "slo"}


class EvidenceSources(NamedTuple):
    """Where the evidence comes from that is not in the columns."""

    intake: LatestSamples
    signals: Smoother
    stands: ConstraintSource


@dataclass(frozen=True, slots=True)
class SweepColumns:
    """The columns from which the Decisions of `rows` are built; each has a slot for each row."""

    rows: Rows
    totals: Aggregate
    imputed: Mask
    undecidable: Mask  # no state, and its replicas are not counted yet
    group_floor: Floats  # replicas that its group asks for
    together: Mask  # it sleeps and wakes with its group
    smoothed: Floats
    verdicts: Verdicts
    number: Floats  # replicas, as published
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


def decisions(
    plans: Sequence[WorkloadSpec], columns: SweepColumns, sources: EvidenceSources, now: float
) -> list[Decision]:
    """One for each of `seen.rows`, which are rows of `plans`. `now`: POSIX seconds."""
    replicas, active, published = (
        optional_ints(columns.verdicts.replicas),
        columns.verdicts.active.tolist(),
        optional_ints(columns.number),
    )
    decided_at, measured_at = columns.decided_at.tolist(), optional_floats(columns.totals.readings.measured_at)
    held_since, idle_since = optional_floats(columns.memory.held_since), optional_floats(columns.memory.idle_since)
    return [
        Decision(
            workload=plans[columns.rows[index]].workload,
            replicas=replicas[index],
            active=active[index],
            reason=REASONS[columns.verdicts.reason[index]],
            decided_at=decided_at[index],
            measured_at=measured_at[index],
            held_since=held_since[index],
            idle_since=idle_since[index],
            evidence=evidence,
            observed=plans[columns.rows[index]].observed,
            published=published[index],
        )
        for index, evidence in enumerate(_evidence(plans, columns, sources, now))
    ]


def _evidence(
    plans: Sequence[WorkloadSpec], columns: SweepColumns, sources: EvidenceSources, now: float
) -> Iterator[Evidence]:
    intake, signals, stands = sources
    keep_warm, again = columns.keep_warm.tolist(), optional_floats(stands.returns_at(columns.rows))
    usual, slow = (optional_floats(column[columns.rows]) for column in stands.starts.times)
    saving = [optional_floats(column) for column in stands.saving(columns.rows)]
    totals, readings = columns.totals, columns.totals.readings
    waiting, running, held = (
        optional_floats(readings.waiting),
        optional_floats(readings.running),
        optional_floats(readings.held),
    )
    kv_cache, gpu_engine = optional_floats(totals.kv_cache), optional_floats(totals.gpu_engine)
    rates = optional_floats(signals.rates(columns.rows, now))
    wanted, ready, pending = (
        optional_ints(readings.wanted),
        optional_ints(readings.ready),
        optional_ints(readings.pending),
    )
    sleeping = optional_ints(totals.sleeping)
    gpus, any_gpus = totals.gpus, totals.gpus.shown > 0
    held_gpus, seen_gpus = optional_ints(totals.gpus_held), optional_ints(np.where(any_gpus, gpus.shown, np.nan))
    lost_gpus = optional_ints(np.where(any_gpus, gpus.lost, np.nan))
    ceiling, memory = optional_floats(gpus.ceiling), optional_floats(gpus.memory)
    values, demands = (
        [optional_floats(row) for row in columns.smoothed.T],
        [optional_floats(row) for row in columns.verdicts.demand.T],
    )
    values[Signal.SLO] = optional_floats(totals.latest[:, Signal.SLO])  # the arriving work, of which the size is made
    probe_periods, count_until = (
        optional_floats(column) for column in intake.activity.probes.verdicts(columns.rows, now)
    )
    for index, row in enumerate(columns.rows):
        plan = plans[row]
        yield Evidence(
            waiting=waiting[index],
            running=running[index],
            held_by_gateway=held[index],
            kv_cache_used=kv_cache[index],
            gpu_engine_active=gpu_engine[index],
            requests_per_second=rates[index],
            replicas_wanted=wanted[index],
            replicas_ready=ready[index],
            replicas_pending=pending[index],
            gpus_held=held_gpus[index],
            gpus_attributed=seen_gpus[index],
            gpus_lost=lost_gpus[index],
            gpu_activity=gpu_activity(totals, index),
            gpu_engine_ceiling=ceiling[index],
            gpu_memory_held_bytes=memory[index],
            wake_source=_describe_wake_source(*intake.wake_source(plan.workload, now)),
            objectives=tuple(
                Objective(OBJECTIVE_NAMES[signal], values[signal][index], target, demands[signal][index])
                for signal, target in plan.spec.targets
                if signal not in unused_objectives(plan.spec, sized=demands[Signal.SLO][index] is not None)
            ),
            stale=intake.stale(plan.workload, now),
            incomplete=intake.incomplete(plan.workload, now),
            notes=(
                *_notes(plan.spec, columns, index, has_gateway=intake.has_gateway(plan.workload)),
                *intake.activity.probes.notes(int(row), now),
            ),
            **stands.active_override(int(row), now)._asdict(),
            keep_warm_s=keep_warm[index],
            starts_again_at=again[index],
            cold_start_p50_s=usual[index],
            cold_start_p90_s=slow[index],
            keep_warm_saves_gpu_seconds=saving[0][index],
            keep_warm_saves_money=saving[1][index],
            probe_period_s=probe_periods[index],
            regular_requests_count_until=count_until[index],
            replicas_sleeping=sleeping[index],
        )


def _explain_published(columns: SweepColumns, index: int) -> str:
    """Why the published number is above the wanted replicas."""
    number, replicas, current = (
        columns.number[index],
        columns.verdicts.replicas[index],
        columns.totals.readings.wanted[index],
    )
    if isnan(current):
        return f"published as {number:.0f}, as before: how many replicas there are is not known now"
    if current >= replicas:
        return f"published as {number:.0f} until the next tick: the step past {replicas:.0f} has just been taken"
    return (
        f"published as {number:.0f}: its HPA takes {replicas:.0f} for the {current:.0f} there are, within its "
        f"tolerance of {columns.tolerance[index]:.3g}; "
        'behavior.scaleUp.tolerance: "0" (Kubernetes 1.35 and later) takes steps exactly'
    )


def _notes(spec: Spec, columns: SweepColumns, index: int, *, has_gateway: bool) -> tuple[str, ...]:
    """Sentences for a person that explain the decision."""
    notes = []
    readings, reason = columns.totals.readings, REASONS[columns.verdicts.reason[index]]
    if columns.imputed[index]:
        notes.append(
            f"{readings.pods_fresh[index]:.0f} of {readings.pods_listed[index]:.0f} ready pods respond; the "
            "others are assumed to be like them, which sizes the workload and proves no idleness"
        )
    if columns.totals.sleeping[index] > 0.0:
        notes.append(
            f"{columns.totals.sleeping[index]:.0f} of its engines sleep (vLLM's sleep mode): they hold GPU memory and "
            "serve no request until they are woken"
        )
    if reason is Reason.NO_WAKE_SOURCE:
        silent = bool(readings.gateway_fresh[index])
        notes.append(
            "the gateway's page shows no queue of its own, so nothing would see a request at zero replicas"
            if silent
            else "no gateway of its group shows a queue now, so nothing would see a request at zero replicas"
            if columns.together[index] and not spec.gateway
            else "no gateway is configured, so nothing would see a request at zero replicas"
            if not spec.gateway
            else "the gateway does not answer, so nothing would see a request at zero replicas"
        )
    if spec.gateway and not has_gateway:
        notes.append("its gateway has no ready address to ask")
    notes += gpu_notes(columns.totals, index, dict(spec.targets).get(Signal.GPU_ENGINE))
    if columns.number[index] > columns.verdicts.replicas[index]:
        notes.append(_explain_published(columns, index))
    if columns.group_floor[index] > 0.0:
        notes.append(f"its group is awake and asks for {columns.group_floor[index]:.0f} replicas of it at least")
    if columns.memory.floor[index] > 0.0:
        notes.append(
            f"no earlier decisions: at least the {columns.memory.floor[index]:.0f} replicas of the cluster, until the "
            "windows are filled"
        )
    if reason in (Reason.HELD, Reason.UNKNOWN) and np.isnan(readings.pods_listed[index]) and spec.pods:
        notes.append("the list of its pods is not known")
    if columns.undecidable[index]:
        notes.append("how many replicas it has is not known yet, and there is no earlier decision to hold")
    return tuple(notes)


def _describe_wake_source(wake_source: WakeSource, url: str) -> str | None:
    match wake_source:
        case WakeSource.QUEUE:
            return f"the queue on {without_user(url)}"
        case WakeSource.REFUSALS:
            return f"refused requests on {without_user(url)}"
        case WakeSource.NOTHING:
            return None

"""Builds Decisions with their evidence from the columns of a sweep.

It decides nothing. It builds objects only for the workloads with a published Decision. Numbers are read from lists:
reading single numbers from arrays takes much longer.

Worked example: a workload is `warm` and has an active brake. Its Decision has the reason and the replicas; its evidence
has the sums over its targets, the replicas of each objective, and "freeze until 2026-11-23T08:00Z".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from math import floor, isnan
from typing import Any, NamedTuple

import numpy as np

from exporter.model import Floats, without_user
from scaler.columns import Mask, Rows
from scaler.config.scalars import write_duration
from scaler.model import Decision, Evidence, Objective, Reason
from scaler.policy import batch
from scaler.policy.attainment import DAYS, HOUR
from scaler.policy.columns import OBJECTIVES, REASONS, Memory, Signal, Verdicts, unused_objectives
from scaler.policy.constraints import ConstraintSource
from scaler.policy.kernel import choose
from scaler.signals.aggregate import Aggregate
from scaler.signals.gpus import gpu_activity, gpu_notes
from scaler.signals.latest import LatestSamples
from scaler.signals.queues import WakeSource
from scaler.signals.slots import optional_floats, optional_ints
from scaler.signals.smoothing import Smoother
from scaler.workloads.spec import WorkloadSpec

from .sizes import Sizes
from .sleep_tiers import SleepTiers


class EvidenceSources(NamedTuple):
    """Where the evidence comes from that is not in the columns."""

    latest: LatestSamples
    signals: Smoother
    constraints: ConstraintSource
    sizes: Sizes
    sleep: SleepTiers


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
    room: Floats  # replicas for which its share of the GPUs has room; inf: no limit
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
    """One for each of `columns.rows`, which are rows of `plans`. now: POSIX seconds."""
    of_decision = _by_row(
        {
            "replicas": optional_ints(columns.verdicts.replicas),
            "active": columns.verdicts.active.tolist(),
            "decided_at": columns.decided_at.tolist(),
            "measured_at": optional_floats(columns.totals.readings.measured_at),
            "held_since": optional_floats(columns.memory.held_since),
            "idle_since": optional_floats(columns.memory.idle_since),
            "published": optional_ints(columns.number),
        }
    )
    return [
        Decision(
            workload=plans[row].workload,
            reason=REASONS[columns.verdicts.reason[index]],
            evidence=evidence,
            observed=plans[row].observed,
            **values,
        )
        for index, (row, values, evidence) in enumerate(
            zip(columns.rows.tolist(), of_decision, _evidence(plans, columns, sources, now), strict=True)
        )
    ]


def _by_row(columns: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """The values of each row by the names of the columns."""
    return (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))


def _numbers(columns: SweepColumns, sources: EvidenceSources, now: float) -> dict[str, Sequence[Any]]:
    """The fields of `Evidence` that are numbers, each with a value for each row."""
    rows, totals, readings, gpus = columns.rows, columns.totals, columns.totals.readings, columns.totals.gpus
    latest, signals, constraints, *_ = sources
    has_gpus = gpus.shown > 0
    further, zero = constraints.starts.times, constraints.starts.zero_times
    delayed, covered = constraints.error_budget
    saved_gpu_seconds, saved_money = constraints.saving(rows)
    probe_period, regular_until = latest.activity.probes.verdicts(rows, now)
    return {
        "waiting": optional_floats(readings.waiting),
        "running": optional_floats(readings.running),
        "held_by_gateway": optional_floats(readings.held),
        "kv_cache_used": optional_floats(totals.kv_cache),
        "gpu_engine_active": optional_floats(totals.gpu_engine),
        "requests_per_second": optional_floats(signals.rates(rows, now)),
        "replicas_wanted": optional_ints(readings.wanted),
        "replicas_ready": optional_ints(readings.ready),
        "replicas_pending": optional_ints(readings.pending),
        "replicas_sleeping": optional_ints(totals.sleeping),
        "gpus_held": optional_ints(totals.gpus_held),
        "gpus_attributed": optional_ints(np.where(has_gpus, gpus.shown, np.nan)),
        "gpus_lost": optional_ints(np.where(has_gpus, gpus.lost, np.nan)),
        "gpu_engine_ceiling": optional_floats(gpus.ceiling),
        "gpu_memory_held_bytes": optional_floats(gpus.memory),
        "gpu_share_replicas": optional_ints(np.where(np.isinf(columns.room), np.nan, columns.room)),
        "keep_warm_s": columns.keep_warm.tolist(),
        "starts_again_at": optional_floats(constraints.returns_at(rows)),
        "cold_start_p50_s": optional_floats(further.p50[rows]),
        "cold_start_p90_s": optional_floats(further.p90[rows]),
        "zero_start_mean_s": optional_floats(zero.mean[rows]),
        "zero_start_p90_s": optional_floats(zero.p90[rows]),
        "cold_start_requests": optional_floats(delayed[rows]),
        "cold_starts_covered": optional_floats(covered[rows]),
        "keep_warm_saves_gpu_seconds": optional_floats(saved_gpu_seconds),
        "keep_warm_saves_money": optional_floats(saved_money),
        "probe_period_s": optional_floats(probe_period),
        "regular_requests_count_until": optional_floats(regular_until),
    }


def _objectives(plans: Sequence[WorkloadSpec], columns: SweepColumns) -> Iterator[tuple[Objective, ...]]:
    """The objectives of each row that its size may be made of."""
    values, demands = (
        [optional_floats(signal) for signal in columns.smoothed.T],
        [optional_floats(signal) for signal in columns.verdicts.demand.T],
    )
    # The arriving work, of which the size is made.
    values[Signal.SLO] = optional_floats(columns.totals.latest[:, Signal.SLO])
    for index, row in enumerate(columns.rows.tolist()):
        spec = plans[row].spec
        unused = unused_objectives(spec, sized=demands[Signal.SLO][index] is not None)
        yield tuple(
            Objective(OBJECTIVES[signal], values[signal][index], target, demands[signal][index])
            for signal, target in spec.targets
            if signal not in unused
        )


def _evidence(
    plans: Sequence[WorkloadSpec], columns: SweepColumns, sources: EvidenceSources, now: float
) -> Iterator[Evidence]:
    latest, _, constraints, sizes, sleep = sources
    slow_starts = optional_floats(constraints.starts.times.p90[columns.rows])
    numbers, objectives = _by_row(_numbers(columns, sources, now)), _objectives(plans, columns)
    slo = SloEvidence.of(sizes, columns.rows, now)
    asleep = sleep.evidence(columns.rows, [plans[row].workload for row in columns.rows.tolist()])
    ordered = sizes.variants.evidence(columns.rows)
    service, arrivals = (optional_floats(column) for column in sizes.queue_rates(columns.rows))
    shown = sizes.request_times(columns.rows, columns.totals, now)
    times = {name: optional_floats(column) for name, column in shown._asdict().items()}
    for index, row in enumerate(columns.rows.tolist()):
        plan = plans[row]
        sizing_fields = queue_fields(plan.spec.start_within, service[index], arrivals[index], slow_starts[index])
        if plan.spec.slo is not None:
            untimed, unsized = latest.untimed(plan.workload, now), _unsized(plan, columns.totals, index)
            sizing_fields |= slo.fields(index, plan.spec.slo, untimed, unsized)
        sizing_fields |= _present(times, index)  # these size it now
        yield Evidence(
            **next(numbers),
            **constraints.active_override(row, now)._asdict(),
            objectives=next(objectives),
            gpu_activity=gpu_activity(columns.totals, index),
            wake_source=_describe_wake_source(*latest.wake_source(plan.workload, now)),
            stale=latest.stale(plan.workload, now),
            incomplete=latest.incomplete(plan.workload, now),
            notes=(
                *_notes(plan, columns, index, has_gateway=latest.has_gateway(plan.workload)),
                *latest.activity.probes.notes(row, now),
            ),
            **asleep[index],
            **ordered[index],
            **sizing_fields,
        )


def _present(columns: Mapping[str, Sequence[float | None]], index: int) -> dict[str, float]:
    """The fields of a row that are known, by name."""
    row = ((name, column[index]) for name, column in columns.items())
    return {name: value for name, value in row if value is not None}


class SloEvidence(NamedTuple):
    """The columns of the SLO as lists, None if unknown. days: by the fields of `attainment.Attained`.
    capacity: by those of `sizing.Capacity`.
    """

    days: Mapping[str, Sequence[float | None]]
    hour: Sequence[float | None]
    requests: Sequence[float]
    misses: Sequence[float]
    capacity: Mapping[str, Sequence[float | None]]

    @classmethod
    def of(cls, sizes: Sizes, rows: Rows, now: float) -> SloEvidence:
        days = sizes.attained(rows, DAYS)._asdict()
        totals = sizes.attainment.totals[rows]
        return cls(
            {name: optional_floats(column) for name, column in days.items()},
            optional_floats(sizes.attained(rows, HOUR).ratio),
            totals[:, 0].tolist(),
            np.minimum(totals[:, 0], totals[:, 1]).tolist(),
            {name: optional_floats(column) for name, column in sizes.capacity(rows, now)._asdict().items()},
        )

    def fields(self, index: int, slo: tuple[float, float], untimed: Collection[str], unsized: str) -> dict[str, Any]:
        """The fields of the evidence.

        slo: seconds. untimed: the latencies of it that an engine does not show. unsized: why it does not size the
        workload; "" if it does.
        """
        measured = self.requests[index] > 0.0
        ratio, budget = self.days["ratio"][index], self.days["budget"][index]
        return {
            "slo": slo_sentence(slo, ratio, budget, untimed)
            + (f". It is not used for sizing: {unsized}" if unsized else ""),
            "slo_attainment": ratio,
            "slo_attainment_least": self.days["least"][index],
            "slo_attainment_most": self.days["most"][index],
            "slo_attainment_hour": self.hour[index],
            "slo_error_budget": budget,
            "slo_requests_total": self.requests[index] if measured else None,
            "slo_misses_total": self.misses[index] if measured else None,
            **{name: column[index] for name, column in self.capacity.items()},
        }


def _unsized(plan: WorkloadSpec, totals: Aggregate, index: int) -> str:
    """Why the SLO does not size the workload now; "" if it does."""
    if plan.slo_unsized or not plan.spec.sized_by_slo:
        return plan.slo_unsized
    return "an engine exposes no counters of requests and tokens" if totals.uncounted[index] > 0.0 else ""


def queue_fields(
    within_s: float | None, service: float | None, arrivals: float | None, start_s: float | None
) -> dict[str, Any]:
    """The fields of the evidence of a queue. within_s: its SLO; None without one. service, arrivals: jobs per second.

    start_s: that one start of ten exceeds; None: not measured.
    """
    if within_s is None:
        return {}
    limit = f"each job must start within {write_duration(within_s)}"
    if service is None or arrivals is None:
        text = f"{limit}: how fast a replica works is not known yet, so two jobs and later one job count as a replica"
    else:
        text = f"{limit}: a busy replica finishes {60.0 * service:.3g} jobs a minute, and {60.0 * arrivals:.3g} arrive"
    if start_s is not None and start_s >= batch.DEFAULTS.target * within_s:
        text += f"; a start takes {write_duration(round(start_s))}, so a job that finds no free replica starts late"
    return {"slo": text, "request_replica_s": None if service is None else 1.0 / service}


def slo_sentence(slo: tuple[float, float], ratio: float | None, budget: float | None, untimed: Collection[str]) -> str:
    """How many requests met the SLO, or why that is not measured.

    ratio, budget: of the last 3 days, 0..1; None: no request is measured. untimed: as in `SloEvidence.fields`.
    """
    limits = _limits(slo)
    if untimed:
        missing = " and ".join(f"near its {name} of {limits[name]}" for name in limits if name in untimed)
        return f"the SLO is not measured: an engine exposes no histogram with a bucket {missing}"
    text = ", ".join(f"{name} {limit}" for name, limit in limits.items())
    if ratio is None or budget is None:
        return f"no request of the last 3 days is measured against the SLO: {text}"
    left = f"{_percent(budget)} of the error budget is left"
    if budget < 0.0:
        left = f"{1.0 - budget:.1f} times the error budget is used"
    return f"{_percent(ratio)} of the requests of the last 3 days met the SLO: {text}; {left}"


@lru_cache(maxsize=256)  # writing them takes as long as all the rest of an evidence
def _limits(slo: tuple[float, float]) -> Mapping[str, str]:
    return dict(zip(("ttft", "itl"), map(write_duration, slo), strict=True))


def _percent(value: float) -> str:
    """Rounded down to a tenth: 99.96 % is not all."""
    return f"{floor(value * 1000.0 + 1e-6) / 10.0:g} %"


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


def _notes(plan: WorkloadSpec, columns: SweepColumns, index: int, *, has_gateway: bool) -> tuple[str, ...]:
    """Sentences for a person that explain the decision."""
    notes, spec = [], plan.spec
    readings, reason = columns.totals.readings, REASONS[columns.verdicts.reason[index]]
    if columns.imputed[index]:
        notes.append(
            f"{readings.pods_fresh[index]:.0f} of {readings.pods_listed[index]:.0f} ready pods respond; the "
            "others are assumed to be like them, which sizes the workload and proves no idleness"
        )
    if columns.totals.sleeping[index] > 0.0:
        notes.append(
            f"{columns.totals.sleeping[index]:.0f} of its engines in vLLM's sleep mode: until woken, a pod keeps its "
            "GPU and serves no request"
            + ("; without sleep_mode Tidegate wakes only those that it put to sleep" if plan.sleep is None else "")
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

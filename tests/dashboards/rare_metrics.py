"""A target with metrics that the demo lacks, written by Tidegate's own collectors: MIG, shared and lost GPUs, Xids, a
leader, checkpoints, an HPA, brakes, and workloads that are held, observed or cannot be woken.
"""

from __future__ import annotations

import time
from types import SimpleNamespace

import numpy as np
from prometheus_client import CollectorRegistry, generate_latest

from exporter.catalog import Reader
from exporter.kubernetes.cache import Cluster
from exporter.kubernetes.objects import Ref
from exporter.kubernetes.resources import NODES, PODS
from exporter.model import Failure, FailureKind, Role, ScrapeResult, Target, WorkloadKey
from exporter.scrape.loop import Counters, Delays
from exporter.scrape.metrics import ScrapeCollector
from exporter.textformat import parse
from scaler.api.http.accounting import AccountsCollector
from scaler.api.http.collectors import (
    BoardCollector,
    CheckpointCollector,
    ClusterCollector,
    OutcomeCollector,
    ReplicaCollector,
)
from scaler.engine.accounting import AccountedSweep, FleetGpus, GpuUse, Ledger
from scaler.explain.outcome_inputs import OutcomeCode
from scaler.metrics import SelfMetrics
from scaler.model import Board, Decision, Evidence, Objective, Reason
from scaler.workloads import ObjectError
from tests.fakes import objects as api

NODE = 'modelName="NVIDIA H100",Hostname="gpu-1"'
EXPORTER = Target("http://10.0.0.1:9400/metrics", "dcgm", Role.GPUS)
ENGINE = Target("http://10.0.0.7:8000/metrics", "vllm", Role.PODS, WorkloadKey("ai", "chat"))
QUIET, FATAL = 0.01, 79
UNPRICED_TURNS = 3


def gpu(uuid, labels="", *, engine=None, util=None, used=40_000, free=40_000, xid=0):
    values = {
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE": engine, "DCGM_FI_DEV_GPU_UTIL": util, "DCGM_FI_DEV_FB_USED": used,
        "DCGM_FI_DEV_FB_FREE": free, "DCGM_FI_DEV_FB_RESERVED": 0, "DCGM_FI_DEV_XID_ERRORS": xid,
        "DCGM_FI_DEV_POWER_USAGE": 300, "DCGM_FI_DEV_GPU_TEMP": 60,
    }  # fmt: skip
    return "".join(f'{name}{{UUID="{uuid}",{NODE}{labels}}} {n}\n' for name, n in values.items() if n is not None)


def dcgm(xid):
    """A node's metrics: a GPU with MIG instances, an idle one with full memory, one shared and measured by process, and
    one that falls silent with a fatal Xid.
    """
    mig = "".join(
        gpu("GPU-mig", f',GPU_I_ID="{i}",GPU_I_PROFILE="2g.20gb",namespace="ai",pod="embed-{i}"', engine=0.3)
        for i in (1, 2)
    )
    idle = gpu("GPU-idle", ',namespace="ai",pod="idle-0"', engine=QUIET, util=0, used=70_000, free=10_000)
    shared = gpu("GPU-shared", engine=0.6, util=60) + "".join(
        f'{field}{{UUID="GPU-shared",{NODE},namespace="ai",pod="share-{pod}"}} {value}\n'
        for pod in ("a", "b")
        for field, value in (("DCGM_FI_DEV_GPU_UTIL", 30), ("DCGM_FI_DEV_FB_USED", 20_000))
    )
    lost = gpu("GPU-lost", ',namespace="ai",pod="chat-0"', engine=None if xid else 0.5, xid=xid)
    return parse((mig + idle + shared + lost).encode())


def counters(reader, at, turn):
    """Counters up to now: the fatal Xid comes with the second scrape, because only a change counts."""
    result = reader.read(dcgm(FATAL if turn > 2 else 0), at)
    failed = Failure(FailureKind.TIMEOUT, "no answer")
    return {
        EXPORTER: Counters(scrapes=turn, last=ScrapeResult(EXPORTER, at, 0.2, result)),
        ENGINE: Counters(
            scrapes=turn, failures={FailureKind.TIMEOUT: turn}, last=ScrapeResult(ENGINE, at, 3.0, failed)
        ),
    }  # fmt: skip


def decision(name, replicas, reason, now, **more):
    """One Decision; keyword arguments of Decision and of Evidence."""
    of_decision = {key: more.pop(key) for key in ("held_since", "idle_since", "observed", "measured_at") if key in more}
    evidence = Evidence(**more)
    return Decision(WorkloadKey("ai", name), replicas, replicas != 0, reason, now, evidence=evidence, **of_decision)


def decisions(now):
    work = (Objective("work", 80.0, 16.0, 5.0), Objective("gpu_engine", 2.4, 0.8, 3.0))
    return [
        decision(
            "chat", 3, Reason.CAPPED, now, objectives=work, waiting=40.0, running=48.0, held_by_gateway=0.0,
            replicas_wanted=3, replicas_ready=2, replicas_pending=1, gpus_held=3, gpus_attributed=2, gpus_lost=1,
            gpu_activity="mixed", gpu_engine_active=0.7, gpu_engine_ceiling=0.5, gpu_memory_held_bytes=2.0**37,
            brake="freeze until 2100-01-01T00:00Z (configuration)", brake_until=4_102_444_800.0, schedule="floor 2",
            schedule_floor=2, schedule_ceiling=3, keep_warm_s=300.0, starts_again_at=now + 600.0, measured_at=now - 1.0,
            cold_start_p50_s=40.0, cold_start_p90_s=70.0, zero_start_mean_s=4.0, zero_start_p90_s=5.0,
            keep_warm_saves_gpu_seconds=4000.0, keep_warm_saves_money=3.5, kv_cache_used=0.6, requests_per_second=4.0,
            gpu_share_replicas=3,
        ),
        decision("held", 2, Reason.HELD, now, held_since=now - 150, stale=("http://10.0.0.9/",), measured_at=now - 200),
        decision("part", 2, Reason.INCOMPLETE, now, incomplete=("vllm:num_requests_waiting is missing",)),
        decision("dark", None, Reason.UNKNOWN, now, stale=("http://10.0.0.8/",)),
        decision("lone", 1, Reason.NO_WAKE_SOURCE, now, idle_since=now - 900.0, gpus_held=4, replicas_wanted=1),
        decision("seen", 4, Reason.SERVING, now, observed=True, replicas_wanted=6, objectives=work[:1]),
        decision("jobs", 0, Reason.ASLEEP, now, idle_since=now - 900.0),
    ]  # fmt: skip


def outcomes(now, turn):
    """`chat` has an HPA with each kind of outcome in turn, `lone` has no controller."""
    turns = (OutcomeCode.AT_MAX, OutcomeCode.SETTLED, OutcomeCode.UP, OutcomeCode.STABILISED, OutcomeCode.NO_HPA)
    condition = SimpleNamespace(type="ScalingLimited", status="True", reason="TooManyReplicas")
    hpa = SimpleNamespace(status=SimpleNamespace(desired=3, conditions=(condition,)))
    for each in decisions(now):
        name = each.workload.name
        code = {"chat": turns[turn % len(turns)], "jobs": OutcomeCode.ASLEEP, "lone": OutcomeCode.NO_SCALER}.get(
            name, OutcomeCode.SETTLED
        )
        facts = SimpleNamespace(hpa=hpa if name == "chat" else None)
        yield SimpleNamespace(decision=each, facts=facts, outcome=SimpleNamespace(code=code))


def entered(books, names, now, turn):
    """One accounted sweep: `chat` serves, `jobs` sleeps and wakes in turn, `seen` is observed, and Tidegate's number
    for it alternates between fewer and more. After some turns their GPUs have a price.
    """
    blank, rows = AccountedSweep.blank(len(names)), {name: row for row, name in enumerate(names)}
    states = {"chat": GpuUse.SERVING, "jobs": GpuUse.ASLEEP if turn % 2 else GpuUse.LOADING, "seen": GpuUse.IDLE_WARM}
    for name, state in states.items():
        row, code = rows[name], list(GpuUse).index(state)
        blank.state[row], blank.gpus[row], blank.gpus[row, code] = code, 0.0, 4.0
        blank.each[row], blank.queued[row], blank.counts[row] = 1.0, 5.0, True
        blank.wanted[row] = float(state is not GpuUse.ASLEEP)
        blank.rising[row] = float(turn % 2) if name == "jobs" else np.nan
    has_price, held = turn > UNPRICED_TURNS, [rows[name] for name in states]
    blank.most[held], blank.watts[held], blank.hour[held] = 8.0, 1200.0, 3.0 if has_price else np.nan
    blank.would[rows["seen"]], blank.apart[rows["seen"]] = 4.0, -2.0 if turn % 2 else 1.0
    books.enter_fleet(FleetGpus(16.0, 48.0 if has_price else np.nan), now, leads=True)
    books.enter(blank, np.full((len(names), 3), 10.0), now, leads=True)


def engine_latencies(turn):
    """Histograms of an engine that the same Prometheus scrapes: every request waits 0.1 to 0.5 s, then 20 to 50 ms."""
    return "".join(
        f'vllm:{name}_seconds_bucket{{namespace="ai",pod="chat-7c9f-x2",le="{le}"}} {count * turn}\n'
        for name, bounds in (
            ("time_to_first_token", {"0.1": 0, "0.5": 10, "+Inf": 10}),
            ("inter_token_latency", {"0.02": 0, "0.05": 500, "+Inf": 500}),
            ("time_per_output_token", {"0.02": 0, "0.05": 500, "+Inf": 500}),
        )
        for le, count in bounds.items()
    ).encode()


def page():
    """A function that writes the metrics; its counters rise with each call."""
    registry, self_metrics = CollectorRegistry(), None
    self_metrics = SelfMetrics(registry)
    self_metrics.reload_ok.set(1)
    self_metrics.reloaded_at.set(time.time())
    self_metrics.observe_registration("external.metrics.k8s.io", "v1beta1", ours=True)
    reader, turn, began = Reader("dcgm"), 0, time.time()
    cluster = Cluster(blind_s=60.0)
    cluster.replace(PODS, None, [], time.time())
    cluster.replace(NODES, None, [api.node("gpu-1", gpus=8)], time.time())
    object_errors = [
        ObjectError(Ref("ai", "ScaledObject", "odd"), "a", "b"),
        ObjectError(Ref("ai", "ScaledObject", "odd"), "c", "d"),
    ]
    standing = SimpleNamespace(failures={}, role=lambda now: "leader", board_age_s=lambda now: 0.5)
    checkpoints = SimpleNamespace(on=True, written_at=began, failures=0, size=2.0**20, owned=True)

    names = [each.workload.name for each in decisions(began)]
    books = Ledger(len(names), gap_s=60.0)
    kept = SimpleNamespace(
        workloads=[WorkloadKey("ai", name) for name in names],
        observed=np.array([name == "seen" for name in names]),
        books=books,
    )

    def teams(workload):
        return "search" if workload.name == "chat" else None

    def board():
        now = time.time()
        return Board(turn, now, {each.workload: each for each in decisions(now)})

    registry.register(BoardCollector(board, time.time))
    registry.register(ScrapeCollector(lambda: counters(reader, time.time(), turn), Delays(late=turn)))
    registry.register(ClusterCollector(cluster, lambda: object_errors, time.time))
    registry.register(ReplicaCollector(lambda: standing, time.time))
    registry.register(CheckpointCollector(checkpoints, time.time))
    registry.register(OutcomeCollector(lambda: lambda: tuple(outcomes(time.time(), turn))))
    registry.register(AccountsCollector(lambda: kept, lambda now: True, time.time, teams))

    def read():
        nonlocal turn
        turn += 1
        entered(books, names, time.time(), turn)
        standing.failures, checkpoints.failures = {"timeout": turn}, turn
        cluster.malformed["pods"] = turn
        self_metrics.ticks_failed.inc()
        self_metrics.events_dropped.labels("budget").inc()
        self_metrics.observe_call("GetMetrics", "OK", 0.001)
        self_metrics.observe_call("StreamIsActive", "OK", 1.0)
        self_metrics.tick_seconds.observe(0.01)
        return generate_latest(registry) + engine_latencies(turn)

    return read

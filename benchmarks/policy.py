"""Measures deciding: the policy's kernel alone, a whole sweep of the decider, one landing response, and /metrics.

`python benchmarks/policy.py [--quick]`
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import cycle
from random import Random
from time import perf_counter
from typing import Any

import numpy as np
from prometheus_client.openmetrics.exposition import generate_latest
from report import show
from timing import Spread, objects_set_aside, seconds

from exporter.catalog import Reader
from exporter.model import Role, Samples, Target, WorkloadKey
from exporter.textformat import parse
from scaler.api.http.collectors import BoardCollector
from scaler.api.http.server import CollectedMetrics
from scaler.engine.decider import Decider
from scaler.engine.publisher import Publisher
from scaler.policy.columns import Constraints, Memory, Readings, Signal, Spec, Specs
from scaler.policy.kernel import step
from scaler.policy.sharing import NONE
from scaler.workloads.gpu_supply import GpuSupply
from scaler.workloads.spec import WorkloadSpec

TITLE = "Deciding, and showing it"
ABOUT = """
One process, one thread, no network. `policy.step` is the compiled kernel over all workloads, a third of them busy, a
third idle and a third stale. `sweep` is what the daemon does once per second: readings added up, rings smoothed,
everything decided; every workload has 4 engine targets and full rings (128 values). "No new sample" is the passage of
time alone; "a second's pages" follows responses of one fifth of all targets, which land in a second at the default
interval of 5 s, all with new values, so that most evidence is written again. "GPUs shared" divides half as many GPUs as
are wanted, and decides again what is limited. `land` is one engine's response (one
model), from its parsed samples to the decision. `/metrics` is the Board in OpenMetrics: collected in the event loop,
written in a thread. Repeat with `python benchmarks/policy.py`.
"""

PODS = 4
INTERVAL_S = 5.0
RING = 128
START = 1.7e9
TOGETHER = 10  # of a hundred targets scraped at 1 s, the daemon decides ten together
LOG = 64 * 2**20  # the daemon's default
SIZES = (100, 1_000, 10_000)
SPEC = Spec(0, 8, ((Signal.WORK, 16.0), (Signal.KV_CACHE, 0.9)), gateway=False)

ENGINE_PAGE = b"""\
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{model_name="m",engine="0"} 3
vllm:num_requests_running{model_name="m",engine="0"} 12
vllm:kv_cache_usage_perc{model_name="m",engine="0"} 0.4
vllm:prompt_tokens_total{model_name="m",engine="0"} 123456
vllm:generation_tokens_total{model_name="m",engine="0"} 654321
vllm:request_success_total{model_name="m",engine="0",finished_reason="stop"} 789
"""


def engine_pages(count: int = 64) -> list[Samples]:
    """Responses of one engine, each with other numbers."""
    chance = np.random.default_rng(7)
    page = Reader("vllm").read(parse(ENGINE_PAGE), START)
    return [replace(page, values=page.values * chance.uniform(0.0, 2.0, page.values.shape)) for _ in range(count)]


def columns(rows: int) -> tuple[Specs, Readings, Constraints, Memory]:
    """Workloads of which a third are busy, a third idle and a third stale."""
    chance = np.random.default_rng(7)
    busy, stale = np.arange(rows) % 3 == 0, np.arange(rows) % 3 == 2
    work = np.where(busy, chance.uniform(1.0, 100.0, rows), 0.0)
    readings = Readings.unknown(rows)
    values = {
        "waiting": work / 4, "running": work * 3 / 4, "pods_listed": np.full(rows, 4.0),
        "pods_fresh": np.where(stale, 3.0, 4.0), "measured_at": np.full(rows, START),
        "wanted": np.full(rows, 4.0), "ready": np.full(rows, 4.0),
    }  # fmt: skip
    readings = readings._replace(**values)
    readings.signals[:, Signal.WORK] = work
    readings.signals[:, Signal.KV_CACHE] = chance.uniform(0.0, 1.0, rows)
    specs = Specs.stack([SPEC] * rows)
    return specs, readings, Constraints.plain(specs), Memory.blank(rows)


def fleet(workloads: int, pages: Iterator[Samples]) -> tuple[Decider, list[Target]]:
    """A decider with a response of every target and full rings."""
    keys = [WorkloadKey("bench", f"chat-{number}") for number in range(workloads)]
    # Readings never become stale here: a stale one is less work than a fresh one.
    decider = Decider(
        [WorkloadSpec(key, SPEC) for key in keys], interval_s=INTERVAL_S, fresh_intervals=1e6, log_bytes=LOG
    )
    targets = [
        Target(f"http://10.0.{pod}.{number}:8000/metrics", "vllm", Role.PODS, key)
        for pod in range(PODS)
        for number, key in enumerate(keys)
    ]
    Random(7).shuffle(targets)  # each pod has its own phase
    for key in keys:
        decider.listed(key, PODS)
    for target in targets:
        decider.expect(target)
        decider.land(target, next(pages), START, START)
    for turn in range(RING):
        decider.sweep(START + (turn + 1) * INTERVAL_S)
    return decider, targets


def sweeps(decider: Decider, targets: list[Target], pages: Iterator[Samples], rounds: int) -> tuple[Spread, ...]:
    """Milliseconds per sweep: without new samples since the last one, and with a second's responses; then those of
    building the evidence of these responses for a reader.
    """
    now = START + RING * INTERVAL_S
    quiet, loud, read = [], [], []
    turn = cycle(range(int(INTERVAL_S)))
    for _ in range(rounds):
        now += 1.0
        quiet.append(timed_sweep(decider, now))
        for target in targets[next(turn) :: int(INTERVAL_S)]:
            decider.land(target, next(pages), now, now)
        loud.append(timed_sweep(decider, now))
        begun = perf_counter()
        decider.renew(len(decider.plans))
        read.append(perf_counter() - begun)
    return tuple(Spread.of(each).times(1e3) for each in (quiet, loud, read))


def sharing(decider: Decider, workloads: int, rounds: int) -> Spread:
    """Milliseconds per sweep that divides half of the GPUs that are wanted, of one kind, among all workloads."""
    now, one = START + 2 * RING * INTERVAL_S, np.ones(workloads, dtype=np.int64)
    decider.forget_answers()
    wanted = sum(decision.replicas or 0 for decision in decider.sweep(now))
    decider.set_gpu_supply(
        GpuSupply(
            room=np.array([0, max(wanted // 2 - workloads, 0)]),
            growth=np.array([0, 0]),
            resource=np.array([0, 0]),
            open=np.array([True, False]),
            quotas=np.zeros(0, dtype=np.int64),
            gpus=one,
            kinds=np.column_stack([one, np.zeros_like(one)]),
            held=np.column_stack([np.zeros_like(one), one]),
            staying=np.column_stack([np.zeros_like(one), one]),
            quota=np.full((workloads, 1), NONE),
            requested=np.zeros((workloads, 1), dtype=np.int64),
        )
    )
    times = [timed_sweep(decider, now + 1.0 + turn) for turn in range(rounds + 1)][1:]
    decider.set_gpu_supply(None)
    return Spread.of(times).times(1e3)


def timed_sweep(decider: Decider, now: float) -> float:
    begun = perf_counter()
    decider.sweep(now)
    return perf_counter() - begun


def landing(decider: Decider, targets: list[Target], pages: Iterator[Samples], together: int, quick: bool) -> Spread:
    """Milliseconds per decision of so many responses that landed together."""
    now, turn = START + 2 * RING * INTERVAL_S, cycle(targets)

    def land() -> None:
        decider.land_together([(next(turn), next(pages), now) for _ in range(together)], now)

    return seconds(land, round_s=0.05 if quick else 0.2).times(1e3)


def showing(decider: Decider, workloads: int) -> list[dict[str, Any]]:
    """Milliseconds per GET of /metrics, without HTTP."""
    decider.forget_answers()
    publisher = Publisher(plan.workload for plan in decider.plans)
    publisher.publish(decider.sweep(START), START)
    collector = BoardCollector(lambda: publisher.board, lambda: START)
    collected = CollectedMetrics(tuple(collector.collect()))
    collect = seconds(lambda: list(collector.collect()), rounds=5).times(1e3)
    write = seconds(lambda: generate_latest(collected), rounds=5).times(1e3)  # type: ignore[no-untyped-call]
    return [row("/metrics, collecting", workloads, collect), row("/metrics, writing", workloads, write)]


def run(quick: bool = False) -> list[dict[str, Any]]:
    pages = cycle(engine_pages())
    steps, whole, lands, shown = [], [], [], []
    for workloads in SIZES[:2] if quick else SIZES:
        given = columns(workloads)
        ms = seconds(partial(step, *given, START), round_s=0.02).times(1e3)
        steps.append(row("policy.step", workloads, ms))
        decider, targets = fleet(workloads, pages)
        with objects_set_aside():
            quiet, loud, read = sweeps(decider, targets, pages, rounds=5)
            divided = sharing(decider, workloads, rounds=5)
            for together, what in ((1, "land, one page"), (TOGETHER, "land, ten pages together")):
                ms = landing(decider, targets, pages, together, quick)
                lands.append(row(what, workloads, ms, per=together))
            if workloads < max(SIZES):  # a response of 10 MiB is unrealistic
                shown += showing(decider, workloads)
        whole += [
            row("sweep, no new sample", workloads, quiet),
            row("sweep, a second's pages", workloads, loud),
            row("their evidence, when read", workloads, read),
            row("sweep, GPUs shared", workloads, divided),
        ]
    return [*steps, *whole, *lands, *shown]


def row(what: str, workloads: int, ms: Spread, per: int | None = None) -> dict[str, Any]:
    return {"what": what, "workloads": workloads, "ms": ms, "µs each": 1e3 * ms.median / (per or workloads)}


if __name__ == "__main__":
    show(run("--quick" in sys.argv))

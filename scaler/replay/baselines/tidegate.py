"""Tidegate itself: the production kernels and the production policy, around the simulated pages.

Not a copy of them: the rings, the kernel that smooths and `policy.step` are what the daemon runs. What stands in for
intake is `_sum_up`: the sums that it would make of these pages. The daemon's own decider, given the same pages as text,
answers the same: tests hold it to that.

Worked example: 40 requests in hand and `work=16`: the scaler's `value()` is 3.0 and its `reason()` SERVING.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, isinf, isnan, nan
from typing import NamedTuple

import numpy as np

from exporter.histogram import Latency, LatencyBuckets, LatencyHistograms
from exporter.kubernetes.objects import Pod
from exporter.model import Floats, PodKey
from scaler.config.validate_workload import FEWEST_READINGS
from scaler.controllers import hpa, keda
from scaler.controllers.hpa import SHIPPED
from scaler.model import Reason
from scaler.policy import attainment, batch, capacity, service_time, sizing
from scaler.policy.capacity import (
    DEFAULTS,
    Estimate,
    SizingConstants,
    WorkRate,
)
from scaler.policy.columns import REASONS, SMOOTHED, Constraints, Memory, Readings, Signal, Spec, Specs
from scaler.policy.constraints import PRICES, ConstraintSource, KeepWarmConfig
from scaler.policy.estimators.idle_time import BLIND_S
from scaler.policy.estimators.sleep_plan import SleepConfig
from scaler.policy.kernel import step
from scaler.policy.overrides import WorkloadOverrides
from scaler.policy.prices import ReplicaCost
from scaler.policy.sizing import UNLEARNED_START_S
from scaler.signals.kernels import ewma_fast_slow
from scaler.signals.smoothing import LENGTH, HalfLives, Windows

from ..ablations import KEEP_WARM, NOTHING, TOKENS, constants_without
from ..baseline import Baseline, EngineSleep, Explanation, Observation
from ..columns import (
    ALIVE,
    AT,
    BUCKETS,
    CREATED,
    FIRSTS,
    OUTPUT,
    PROMPT,
    READ_TOKENS,
    READY_AT,
    TPOT,
    TPOT_BOUNDS,
    TTFT,
    TTFT_BOUNDS,
    ReplayWorld,
)
from ..metric_pages import DECODED_S, EXISTING, KV_USED, SLEEPING, TOKENS_GENERATED, became_ready
from ..servers import ReplaySlo
from .keda_and_hpa import KedaAndHpa, Scaler
from .sleep import EngineTier
from .unreliable import Unreliable

SCRAPE_S = 5.0
WAKE_LOOK_S = 1.0  # scrape.wake_interval
# The engine's histograms, by their place in `ReplayWorld.histograms`, row by row.
_PARTS = {
    latency: {0: ((LatencyBuckets((*bounds, inf), tuple(range(row * BUCKETS, row * BUCKETS + len(bounds) + 1))),),)}
    for latency, row, bounds in ((Latency.TTFT, TTFT, TTFT_BOUNDS), (Latency.TPOT, TPOT, TPOT_BOUNDS))
}
_LEARNED = [*range(Estimate.PROMPT_SUM, Estimate.PREFILL), Estimate.UNREAD, Estimate.CACHED_SUM]
COOLDOWN_S = 30.0  # keep-warm is Tidegate's
# The configuration's defaults of `keep_warm: auto`, keep_warm_min and keep_warm_max.
UNMEASURED_WORK = 16.0  # objectives.work of vLLM
UNMEASURED_JOBS = 1.0  # … and of queues
UNLEARNED_KEEP_WARM_S, LOWEST_S, HIGHEST_S = 300.0, 60.0, 14400.0


class Wish(NamedTuple):
    """Parameters of the policy. Times in seconds; up, down: half-lives. without: of `ablations.CHOICES`.

    foresight_s: arrivals are counted so much earlier, as a perfect forecast would. late_s: age of what is read. lost: a
    share of the readings, 0..1. asleep: part of its price that a replica costs in sleep mode; 1: it has none. wake_s:
    that a wake takes.
    """

    work: float  # 0: the SLO of the server sizes it
    kv_cache: float
    keep_warm_s: float  # 0 is: learned
    up_s: float
    down_s: float
    band: float
    least: int
    most: int
    scrape_s: float = SCRAPE_S
    without: str = NOTHING
    foresight_s: float = 0.0
    late_s: float = 0.0
    lost: float = 0.0
    asleep: float = 1.0
    wake_s: float = 0.0


def baseline(name: str, wish: Wish) -> Baseline:
    """Tidegate as an external-push scaler, between KEDA and the HPA."""
    targets = ((Signal.WORK, wish.work or UNMEASURED_WORK), (Signal.KV_CACHE, wish.kv_cache))
    keep_warm = wish.keep_warm_s or UNLEARNED_KEEP_WARM_S
    spec = Spec(wish.least, wish.most, targets, keep_warm=keep_warm, band=wish.band, settle=wish.scrape_s)
    if not wish.work:
        spec = replace(spec, targets=(*targets, (Signal.SLO, 1.0)), falls_back=True)
    teaching = None if wish.keep_warm_s else KeepWarmConfig(learns=True, lowest=LOWEST_S, highest=HIGHEST_S)
    if teaching is not None and wish.without == KEEP_WARM:  # start-up times are learned nevertheless
        teaching = KeepWarmConfig(learns=False)
    sleep = (
        EngineSleep(asleep=False, price=wish.asleep, wake_s=wish.wake_s, look_s=min(WAKE_LOOK_S, wish.scrape_s))
        if wish.asleep < 1.0
        else None
    )
    if sleep is not None and teaching is None:
        teaching = KeepWarmConfig(learns=False)
    smoothing, constants = HalfLives(wish.up_s, wish.down_s), constants_without(wish.without)
    scaler: Scaler = Tidegate(
        name,
        spec,
        smoothing,
        wish.scrape_s,
        teaching=teaching,
        constants=constants,
        foresight_s=wish.foresight_s,
        sleep=sleep,
        tokens=wish.without != TOKENS,
    )
    if wish.late_s or wish.lost:
        scaler = Unreliable(scaler, wish.late_s, wish.lost)
    object_ = keda.ScaledObjectSpec(min_replicas=wish.least, max_replicas=wish.most, cooldown_s=COOLDOWN_S)
    autoscaler = hpa.HpaSpec(max_replicas=wish.most, min_replicas=max(1, wish.least), behavior=SHIPPED)
    return KedaAndHpa(scaler, object_, autoscaler, first=max(1, wish.least))


class Tidegate:
    """One workload with a gateway, asked every scrape."""

    pushes = True
    target = 1.0

    def __init__(
        self,
        name: str,
        spec: Spec,
        smoothing: HalfLives,
        every_s: float = SCRAPE_S,
        teaching: KeepWarmConfig | None = None,
        constants: SizingConstants = DEFAULTS,
        foresight_s: float = 0.0,
        sleep: EngineSleep | None = None,
        tokens: bool = True,
    ) -> None:
        """teaching: what may be learned of keeping warm; None: nothing, `spec.keep_warm` stands.

        sleep: the sleep mode of its engines, which needs `teaching`; None: it has none. tokens: whether the engines
        expose counters of tokens; without them requests in hand and finished ones size it.
        """
        self.name, self.every_s = name, every_s
        self._specs = Specs.stack([replace(spec, gateway=True, pods=True)])
        self._rings = _Rings(smoothing)
        self._memory = Memory.blank(1)
        self._standing = Constraints.plain(self._specs)
        self._past = None if teaching is None else _Past(self._specs, teaching, sleep, every_s)
        self._sleep = sleep
        self._readings = Readings.unknown(1)  # one for good: making its arrays anew took longer than deciding
        self._readings.gateway_fresh[:] = self._readings.waker_fresh[:] = True
        self._heard_at, self._elapsed_s = nan, every_s  # the last look, and how long it was after the one before
        self._before = (0.0, 0.0, 0)  # busy seconds, tokens made, arrivals: at the last look
        self._page = (0.0, nan, nan)  # requests in pods, use of the KV cache, GPU activity: as they were read last
        self._replicas: float = np.nan
        self._active = True
        self._reason: Reason | None = None
        self._sizes, self._constants, self._attainment = capacity.blank(1), constants, attainment.blank(1)
        self._jobs, self._times, self._tokens = batch.blank(1), service_time.blank(1), tokens
        self._foresight_s = foresight_s
        self._foreseen = capacity.blank(1)
        self._prompts: Floats | None = None  # prompt tokens of the first 0, 1, 2 … requests, for foresight
        self._slo: sizing.SloColumns | None = None
        self._counters: Floats | None = None  # by WorkRate, at the last look

    def hear(self, observation: Observation) -> None:
        if not isnan(self._heard_at):
            self._elapsed_s = observation.now - self._heard_at
        self._heard_at = observation.now
        if self._sleeps_on(observation):
            return
        self._readings.signals[0, :SMOOTHED] = self._rings.smooth(self._sum_up(observation), observation.now)
        self._size(observation)
        if self._past is not None:
            self._standing = self._past.constraints(observation, self._readings)
        verdicts, self._memory = step(self._specs, self._readings, self._standing, self._memory, observation.now)
        self._replicas, self._active = float(verdicts.replicas[0]), bool(verdicts.active[0])
        self._reason = REASONS[verdicts.reason[0]]
        if self._past is not None and self._past.tier is not None:
            sleeping = float(observation.pages[SLEEPING])
            self._past.tier.decide(verdicts, self._memory, self._readings, self._standing, sleeping, observation.now)

    def engine_sleep(self) -> EngineSleep | None:
        """None without sleep mode."""
        if self._sleep is None or self._past is None or self._past.tier is None:
            return None
        return self._sleep._replace(asleep=self._past.tier.asleep)

    def _size(self, observation: Observation) -> None:
        """What the SLO needs, from the counters that the engines and the gateway expose."""
        slo, world = observation.slo, observation.world
        if not self._specs.falls_back[0] or slo is None:
            return
        if observation.server.slots > 0:
            self._size_queue(observation, slo.first_s - observation.server.step)
        if not slo.rest_per_token_s > 0.0:
            return
        if not self._tokens:
            self._size_by_time(observation)
            return
        if self._slo is None:
            ttft, itl = _mean_slo(world, slo)
            self._slo = sizing.SloColumns(np.full(1, ttft), np.full(1, itl))
            self._specs.itl[0] = itl  # keep-warm reads it there
            if self._sleep is not None:
                self._specs.ttft[0] = ttft  # … and the plan of sleep this
        slos = self._slo
        counters = np.array(_counters(observation, slos.ttft.item(), slos.itl.item()))
        before = np.full_like(counters, nan) if self._counters is None else self._counters
        rates = ((counters - before) / self._elapsed_s)[None]
        served = attainment.update(self._attainment, rates, slos.itl, observation.now, 3.0 * self.every_s)
        if self._counters is not None:
            readings, ready = self._readings, self._readings.ready
            inputs = sizing.SizingInputs(
                rates=rates,
                waiting=readings.waiting + readings.held,
                running=readings.running,
                kv_used=observation.pages[KV_USED : KV_USED + 1],
                ready=ready,
                start=self._start(),
                misses=served.misses,
            )
            sizing.update(self._sizes, slos, inputs, observation.now, 3.0 * self.every_s, self._constants)
            if self._foresight_s > 0.0:
                self._foresee(inputs, slos, observation)
        self._counters = counters
        size = (self._foreseen if self._foresight_s > 0.0 else self._sizes)[0, Estimate.SIZE]
        self._readings.signals[0, Signal.SLO] = size
        if isnan(size) and observation.ready:  # two responses make the first rate; until then replicas stay
            self._readings.signals[0, Signal.WORK] = nan

    def _size_by_time(self, observation: Observation) -> None:
        """What arrives needs, by requests in hand and finished ones alone."""
        counters = np.array([observation.arrived, observation.finished], dtype=np.float64)
        if self._counters is not None:
            arrived, finished = (counters - self._counters) / self._elapsed_s
            readings = self._readings
            inputs = service_time.TimeInputs(
                arrived=np.full(1, arrived),
                finished=np.full(1, finished),
                in_hand=readings.waiting + readings.held + readings.running,
                waiting=readings.waiting + readings.held,
                ready=readings.ready,
                ttft=np.full(1, nan),
                start=self._start(),
            )
            everything = np.ones(1, dtype=np.bool_)
            now, longest_s = observation.now, 3.0 * self.every_s
            service_time.update(self._times, self._sizes, everything, inputs, now, longest_s, self._constants)
        self._counters = counters
        self._readings.signals[0, Signal.SLO] = self._sizes[0, Estimate.SIZE]

    def _size_queue(self, observation: Observation, within_s: float) -> None:
        """What the jobs that wait need to start within `within_s`. Of a queue its length is known, and nothing else."""
        readings = self._readings
        self._specs.start_within[0], self._specs.targets[0, Signal.WORK] = within_s, UNMEASURED_JOBS
        self._specs.band[0] = 0.0  # its hold is the hysteresis
        inputs = batch.BatchInputs(
            waiting=readings.waiting + readings.held,
            running=np.full(1, nan),
            finished=np.full(1, nan),
            ready=readings.ready,
            wanted=readings.wanted,
            pending=np.zeros(1),
            start=self._start(),
        )
        batch.update(self._jobs, self._specs.start_within, inputs, observation.now, 3.0 * self.every_s)
        readings.signals[0, Signal.SLO] = self._jobs[0, batch.JobEstimate.SIZE]

    def _start(self) -> Floats:
        """Seconds that a start takes, as far as it was measured; shape (1,)."""
        measured = nan if self._past is None else self._past.start_s
        return np.array([UNLEARNED_START_S if isnan(measured) else measured])

    def _foresee(self, inputs: sizing.SizingInputs, slos: sizing.SloColumns, observation: Observation) -> None:
        """Sizes once more with the arrivals of the seconds ahead, and with what is learned from the present ones."""
        world, at = observation.world, observation.now + self._foresight_s
        if self._prompts is None:
            self._prompts = np.concatenate(([0.0], np.cumsum(world.request_counts[:, PROMPT], dtype=np.float64)))
        first, last = np.searchsorted(world.request_times[:, AT], (at - self.every_s, at), side="right")
        rates = inputs.rates.copy()
        rates[0, WorkRate.ARRIVED] = rates[0, WorkRate.FIRST_TOKENS] = (last - first) / self.every_s
        rates[0, WorkRate.PROMPT] = (self._prompts[last] - self._prompts[first]) / self.every_s
        rates[0, WorkRate.COMPUTED] = rates[0, WorkRate.PROMPT]
        self._foreseen[:, _LEARNED] = self._sizes[:, _LEARNED]
        inputs = inputs._replace(rates=rates)
        sizing.update(self._foreseen, slos, inputs, observation.now, 3.0 * self.every_s, self._constants)

    def _sleeps_on(self, observation: Observation) -> bool:
        """Asleep, and nothing is there and nothing came: every further look would answer the same."""
        return (
            not self._active
            and observation.arrived == self._before[2]
            and not observation.pages[EXISTING]
            and not (self._past is not None and observation.now >= self._past.looks_again_at)
        )

    def value(self) -> float | None:
        return None if np.isnan(self._replicas) else self._replicas

    def active(self) -> bool:
        return self._active

    def reason(self) -> Reason | None:
        """None before the first look."""
        return self._reason

    def explain(self) -> Explanation:
        reason = "" if self._reason is None else self._reason.value
        return Explanation(reason, float(self._sizes[0, Estimate.WORK]))

    def _sum_up(self, observation: Observation) -> tuple[float, ...]:
        """Writes the aggregate of these pages into the readings; returns the values that enter the rings."""
        # One list: numbers are taken out of it much faster than out of an array.
        waiting, running, held, kv_used, ready, _, wanted, busy_s, generated, _, _, sleeping, _ = (
            observation.pages.tolist()
        )
        busy_before, generated_before, arrived_before = self._before
        self._before = (busy_s, generated, observation.arrived)
        readings = self._readings
        if generated != generated_before or observation.arrived != arrived_before:
            readings.active_at[0] = observation.now
        if not wanted:  # what pods on their way out still do is no reason for one that is not there
            waiting = running = 0.0
        # Of drained pods the seconds are gone with them: what is left over is no activity.
        share = max(0.0, min(1.0, (busy_s - busy_before) / (self._elapsed_s * ready))) if ready else nan
        in_pods, before = waiting + running, self._page
        self._page = (in_pods, kv_used, share)
        if not in_pods and not ready:  # no page of a pod is left
            before = (0.0, nan, nan)
        readings.waiting[0], readings.running[0], readings.held[0] = waiting, running, held
        readings.busiest_gpu[0], readings.measured_at[0] = share, observation.now
        readings.pods_listed[0] = readings.pods_fresh[0] = ready + sleeping
        # As in `signals.slot_sums`: one that sleeps is not ready for the work that there is.
        readings.ready[0] = ready if in_pods + held else ready + sleeping
        readings.wanted[0] = readings.existing[0] = wanted  # those on their way out are not counted
        # Pages do not come all at once. While the gateway's is new and the pods' are not, the daemon decides by both;
        # and of one interval it keeps the highest (`signals`). So what falls is believed an interval later.
        # Where either is NaN, max is its first.
        return max(in_pods, before[0]) + held, max(kv_used, before[1]), max(share, before[2])


def _mean_slo(world: ReplayWorld, slo: ReplaySlo) -> tuple[float, float]:
    """The SLO `ttft` and `itl` of a configuration, seconds: what the server's SLO allows the load's mean request.

    If the server's SLO has no limit for the rest, the `itl` is the time per output token alone.
    """
    prompt, output = (float(world.request_counts[:, column].mean()) for column in (PROMPT, OUTPUT))
    rest_s = 0.0 if isinf(slo.rest_s) else slo.rest_s
    return slo.first_s + slo.first_per_prompt_s * prompt, slo.rest_per_token_s + rest_s / max(output, 1.0)


def _counters(observation: Observation, ttft: float, itl: float) -> list[float]:
    """The counters that the engines and the gateway expose, by `WorkRate`."""
    counts, pages = observation.world.counts.tolist(), observation.pages.tolist()
    firsts, read, generated = counts[FIRSTS], counts[READ_TOKENS], pages[TOKENS_GENERATED]
    # Tokens computed are those read: the simulated engines have no prefix cache.
    tokens = [observation.arrived, firsts, observation.finished, read, generated, read]
    return [*tokens, generated - firsts, pages[DECODED_S], *_latencies(observation.world, ttft, itl)]


def _latencies(world: ReplayWorld, ttft: float, itl: float) -> list[float]:
    """All observations of both latencies, and the late ones: estimated, at least and at most. NaN: not measured."""
    histograms = LatencyHistograms(world.histograms.cumsum(axis=1, dtype=np.float64).ravel(), _PARTS)
    counters = []
    for latency, limit in ((Latency.TTFT, ttft), (Latency.TPOT, itl)):
        split = histograms.split(latency, (0,), limit)
        if split is None:
            counters += [nan] * 4
        else:
            likely = split.likely_late + split.late
            counters += [sum(split), likely, split.late, split.likely_within + likely]
    return counters


class _Past:
    """Runs the production's `ConstraintSource` on the idle times and starts of one workload.

    start_s: seconds that a start takes, as far as one was measured; NaN before.
    """

    def __init__(self, specs: Specs, teaching: KeepWarmConfig, sleep: EngineSleep | None, every_s: float) -> None:
        config = None if sleep is None else SleepConfig(sleep.price, None, FEWEST_READINGS * every_s, sleep.wake_s)
        self._constraints = ConstraintSource(specs, [WorkloadOverrides()], [teaching], PRICES, sleep=[config])
        self.tier = None if sleep is None else EngineTier(self._constraints.sleep, sleep.wake_s)
        self._row, self._valid = np.arange(1), np.ones(1, dtype=np.bool_)
        self._cost = ReplicaCost(np.full(1, nan), np.full(1, nan))  # a trace has no model of a GPU
        self._looked_at = 0.0  # seconds of the load
        self.start_s = nan
        self._looks_again_at: float | None = None  # as of the last look

    def constraints(self, observation: Observation, readings: Readings) -> Constraints:
        self._time_starts(observation)
        finished = np.full(1, float(observation.finished))
        pages = observation.pages
        asleep = None
        if self.tier is not None:
            asleep = np.full(1, pages[SLEEPING] > 0.0 and pages[SLEEPING] >= readings.pods_fresh[0])
        self._constraints.rest(self._row, readings, self._valid, self._cost, finished, observation.now, asleep)
        standing = self._constraints.at(observation.now)
        self._looks_again_at = None
        return standing

    @property
    def looks_again_at(self) -> float:
        """Seconds of the load until which a sleeping workload needs no look: then a start in advance of the next
        request begins, or the end of the rest would become unknown after so long without a look.
        """
        if self._looks_again_at is None:
            again = float(self._constraints.returns_at(self._row)[0])
            self._looks_again_at = self._looked_at + BLIND_S / 2.0
            if again > self._looked_at:  # not so where it is NaN: nothing is foreseen
                self._looks_again_at = min(self._looks_again_at, again)
        return self._looks_again_at

    def _time_starts(self, observation: Observation) -> None:
        """Reports the pods that became ready since the last look. Those of the beginning took no time to start."""
        world, now, before = observation.world, observation.now, self._looked_at
        self._looked_at = now
        if not became_ready(world, before, now):  # as at most looks
            return
        slots = world.order[: world.counts[ALIVE]]
        ready_at = world.replicas[slots, READY_AT]
        started = (ready_at > before) & (ready_at <= now)
        created = world.replicas[slots, CREATED]
        started &= ready_at > created
        for slot in np.flatnonzero(started).tolist():
            key = PodKey("", f"{slots[slot]}@{ready_at[slot]}")
            begun, ended = float(created[slot]), float(ready_at[slot])
            pod = Pod(key, key.pod, was_ready=True, ready=True, scheduled_at=begun, ready_at=ended)
            self._constraints.starts.observe(0, [pod], waiting=False, now=now)
        if started.any():
            self.start_s = float(self._constraints.starts.times.p50[0])


class _Rings:
    """`signals.Signals` for one workload that is seen once per interval: its rings and its kernel, without the
    look-up of rings, which took half of the time.
    """

    def __init__(self, smoothing: HalfLives) -> None:
        self._windows = Windows(SMOOTHED, LENGTH)
        self._series, self._now = np.arange(SMOOTHED), np.empty(SMOOTHED)
        self._up = np.full(SMOOTHED, smoothing.up_s, dtype=np.float64)
        self._down = np.full(SMOOTHED, smoothing.down_s, dtype=np.float64)

    def smooth(self, latest: tuple[float, ...], now: float) -> Floats:
        """Keep what is read now, and smooth; shape (signals,).

        What is no longer read stands at its last value: that is the KV cache where no replica is ready, and there the
        policy asks only for work.
        """
        rings = self._windows
        self._now.fill(now)
        rings.push(self._series, self._now, np.array(latest))
        return ewma_fast_slow(rings.times, rings.values, rings.head, self._up, self._down, now)

"""Tests that the baseline called Tidegate decides what the daemon's decider decides from the same metrics, as text."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from exporter.catalog import Reader
from exporter.model import ReplicaCount, Role, Target, WorkloadKey
from exporter.scrape.request import read
from exporter.textformat import Scanner
from scaler.engine.decider import Decider
from scaler.policy.capacity import Estimate
from scaler.policy.columns import Signal, Spec
from scaler.replay.ablations import TOKENS
from scaler.replay.baselines import tidegate
from scaler.replay.columns import FIRSTS, READ_TOKENS, TPOT, TPOT_BOUNDS, TTFT, TTFT_BOUNDS
from scaler.replay.metric_pages import (
    AT_GATE,
    BUSY_S,
    DECODED_S,
    EXISTING,
    KV_USED,
    READY_NOW,
    RUNNING,
    TOKENS_GENERATED,
    WAITING,
    WANTED,
)
from scaler.replay.run import run
from scaler.replay.servers import PROFILES
from scaler.replay.traces import load
from scaler.signals.smoothing import HalfLives
from scaler.workloads.spec import WorkloadSpec

CHAT = WorkloadKey("ai", "chat")
GATEWAY = Target("http://gateway:9090/metrics", "epp", Role.GATEWAY, CHAT)
PODS = Target("http://10.0.0.1:8000/metrics", "vllm", Role.PODS, CHAT)
NODE = Target("http://node:9400/metrics", "dcgm", Role.GPUS)
EPOCH_S = 1000.0


def cumulative(observation, which):
    """The engine's histogram as it is exposed: requests by `le`."""
    bounds = ((*TTFT_BOUNDS, "+Inf"), (*TPOT_BOUNDS, "+Inf"))[which]
    counts = observation.world.histograms[which].cumsum()
    return dict(zip(map(str, bounds), counts[: len(bounds)].tolist(), strict=True))


def mean_slo(slo, traffic):
    """The configured `ttft` and `itl`, seconds: those that the server's SLO allows the mean request."""
    prompt, output = np.mean(traffic.prompt), np.mean(traffic.output)
    return (
        float(slo.first_s + slo.first_per_prompt_s * prompt),
        float((slo.rest_s + slo.rest_per_token_s * output) / output),
    )


class Daemon:
    """The decider with the inputs of the simulated Deployment as in the daemon: targets, list of pods, replica counts.

    One target represents all pods, because the baseline reads them all at one moment: with a target per pod, changes
    between two scrapes would be visible in between.
    """

    def __init__(self, wish, slo):
        targets = ((Signal.WORK, wish.work or tidegate.UNMEASURED_WORK), (Signal.KV_CACHE, wish.kv_cache))
        spec = Spec(
            wish.least, wish.most, targets, keep_warm=wish.keep_warm_s, band=wish.band, settle=tidegate.SCRAPE_S,
            pods=True, gateway=True,
        )  # fmt: skip
        self.tokens = wish.without != TOKENS
        if not wish.work:
            ttft, itl = slo
            latency = {"ttft": ttft, "itl": itl, "falls_back": True}
            if not self.tokens:
                latency = {"by_time": True, "falls_back": True}
            spec = replace(spec, targets=(*targets, (Signal.SLO, 1.0)), **latency)
        plan = WorkloadSpec(CHAT, spec, HalfLives(wish.up_s, wish.down_s))
        self.decider = Decider([plan], interval_s=tidegate.SCRAPE_S, fresh_intervals=3.0)
        self.readers = {target: (Reader(target.kind), Scanner()) for target in (GATEWAY, PODS, NODE)}
        self.decider.expect(GATEWAY)
        self.busy_s = 0.0
        self.outcome = None

    def scrape(self, observation, page):
        pages, now = observation.pages, EPOCH_S + observation.now
        ready, wanted = int(pages[READY_NOW]), int(pages[WANTED])
        share = (pages[BUSY_S] - self.busy_s) / (tidegate.SCRAPE_S * ready) if ready else 0.0
        self.busy_s = pages[BUSY_S]
        self.decider.counted(CHAT, ReplicaCount(wanted, ready, now, existing=wanted))
        self.decider.listed(CHAT, min(ready, 1), () if ready else (PODS,))
        responds = pages[EXISTING] and (ready or pages[RUNNING])
        if not responds:
            self.decider.retire(PODS)
        self.land(GATEWAY, page.epp(held=pages[AT_GATE]), now)
        if responds:
            counts, tokens = observation.world.counts, pages[TOKENS_GENERATED]
            firsts = counts[FIRSTS]
            numbers = {"waiting": pages[WAITING], "running": pages[RUNNING], "tokens": tokens}
            numbers |= {"prompt": counts[READ_TOKENS], "first_tokens": firsts}
            numbers |= {"gaps": tokens - firsts, "gap_seconds": pages[DECODED_S]}
            numbers |= {"ttft": cumulative(observation, TTFT), "tpot": cumulative(observation, TPOT)}
            if not self.tokens:
                numbers = {"waiting": pages[WAITING], "running": pages[RUNNING]}
            self.land(PODS, page.vllm(**numbers, kv=pages[KV_USED], finished=observation.finished), now)
        self.land(NODE, page.gpu("GPU-1", ["chat-0"] if ready else [], engine=max(0.0, min(1.0, share))), now)
        self.record(self.decider.sweep(now))
        self.size = float(self.decider.columns()["sizing.estimates"][0, Estimate.SIZE])
        self.totals = self.decider.columns()["attainment.totals"][0].tolist()

    def land(self, target, text, now):
        reader, scanner = self.readers[target]
        self.record(self.decider.land(target, read(text.encode(), reader, scanner, now), now, now))

    def record(self, decisions):
        for decision in decisions:
            self.outcome = decision.replicas, decision.active, decision.reason


class Both:
    """Tidegate's baseline, and the daemon beside it. outcomes: (second, the baseline's, the daemon's).

    script: scales in place of the baseline, and both only observe. sizes: (second, the baseline's, the daemon's), what
    the SLO needs. attained: the same of all requests and misses so far.
    """

    def __init__(self, wish, page, script=None, slo=None):
        self._script = script
        self._baseline, self._daemon, self._page = tidegate.baseline("tidegate", wish), Daemon(wish, slo), page
        self.name, self.every_s, self.first = self._baseline.name, self._baseline.every_s, self._baseline.first
        self.outcomes, self.sizes, self.attained = [], [], []

    def step(self, observation):
        replicas = self._baseline.step(observation)
        self._daemon.scrape(observation, self._page)
        scaler = self._baseline._scaler
        self.outcomes.append(
            (observation.now, (scaler.value(), scaler.active(), scaler.reason()), self._daemon.outcome)
        )
        self.sizes.append((observation.now, float(scaler._sizes[0, Estimate.SIZE]), self._daemon.size))
        self.attained.append((observation.now, scaler._attainment.totals[0].tolist(), self._daemon.totals))
        return self._script.step(observation) if self._script else replicas


def wish(**changes):
    usual = {"work": 16.0, "kv_cache": 0.9, "keep_warm_s": 120.0, "up_s": 5.0, "down_s": 60.0, "band": 0.2}
    return tidegate.Wish(**{**usual, "least": 0, "most": 12, **changes})


@pytest.mark.parametrize(
    ("trace", "profile", "wishes"),
    [
        ("flash:peak=40,at=5m,for=25m", "A", {}),
        ("flash:peak=40,at=5m,for=25m", "A", {"work": 4.0, "up_s": 0.0, "down_s": 300.0, "band": 0.0, "least": 2}),
        ("onoff:rate=6,on=4m,off=8m,for=1h", "A", {"keep_warm_s": 30.0}),
        ("each:4m,for=40m,output=2000", "B", {"kv_cache": 0.001}),
        ("each:92s,for=35m,prompt=10,output=2", "A", {"keep_warm_s": 60.0, "work": 0.1}),
        ("batch:jobs=20,every=15m,output=60,for=40m", "C", {"work": 2.0}),
    ],
)
def test_baseline_decides_what_the_daemon_decides_from_the_same_metrics(page, trace, profile, wishes):
    both = Both(wish(**wishes), page)
    run(load(trace, None, 5).load, PROFILES[profile], both, seed=1)

    differ = [(at, baseline, daemon) for at, baseline, daemon in both.outcomes if baseline != daemon]
    assert differ == []
    assert len(both.outcomes) > 300
    assert len({baseline for _, baseline, _ in both.outcomes}) > 2, "the load requires different decisions"


def test_baseline_observes_other_scale_changes_like_the_daemon(page, load, scripted):
    # To zero under load; from there up before the last pod has drained; and to zero again while one works.
    script = scripted({60.0: 0, 180.0: 3, 400.0: 0, 405.0: 1, 700.0: 0}, first=2)
    steady = load("each:20s,for=20m,prompt=500,output=1500")
    both = Both(wish(work=0.3, keep_warm_s=30.0), page, script)
    run(steady, PROFILES["A"], both)

    assert [(at, baseline, daemon) for at, baseline, daemon in both.outcomes if baseline != daemon] == []
    assert len({baseline for _, baseline, _ in both.outcomes}) > 5


@pytest.mark.parametrize(
    ("trace", "profile", "wishes"),
    [
        ("flash:peak=40,at=5m,for=25m", "A", {"least": 1}),
        ("flash:peak=20,at=5m,for=40m", "B", {"least": 2, "band": 0.0}),
        ("onoff:rate=6,on=4m,off=8m,for=1h", "A", {"least": 1}),
    ],
)
def test_baseline_sized_by_the_slo_decides_what_the_daemon_decides(page, trace, profile, wishes):
    server, traffic = PROFILES[profile], load(trace, None, 5).load
    both = Both(wish(work=0.0, **wishes), page, slo=mean_slo(server.slo, traffic))
    run(traffic, server, both, seed=1)

    differ = [(at, baseline, daemon) for at, baseline, daemon in both.outcomes if baseline != daemon]
    assert differ == []
    assert len({baseline for _, baseline, _ in both.outcomes}) > 2, "the load requires different decisions"
    for at, baseline, daemon in both.sizes:
        assert daemon == pytest.approx(baseline, rel=1e-6, nan_ok=True), at
    for at, baseline, daemon in both.attained:
        assert daemon == pytest.approx(baseline, rel=1e-6, abs=1e-6), at
    requests, misses = both.attained[-1][1]
    assert requests > 100.0
    assert 0.0 < misses < requests


@pytest.mark.parametrize(
    ("trace", "profile", "wishes"),
    [
        ("flash:peak=40,at=5m,for=25m", "A", {"least": 1}),
        ("flash:peak=20,at=5m,for=40m", "B", {"least": 2, "band": 0.0}),
        ("onoff:rate=6,on=4m,off=8m,for=1h", "A", {"least": 1}),
    ],
)
def test_baseline_without_counters_of_tokens_decides_what_the_daemon_decides(page, trace, profile, wishes):
    server, traffic = PROFILES[profile], load(trace, None, 5).load
    both = Both(wish(work=0.0, without=TOKENS, **wishes), page, slo=mean_slo(server.slo, traffic))
    run(traffic, server, both, seed=1)

    # A response that lands decides before the tick: until a first size is known by the requests in hand.
    known_at = next(at for at, size, _ in both.sizes if np.isfinite(size))
    after = [outcome for outcome in both.outcomes if outcome[0] > known_at]
    assert [(at, baseline, daemon) for at, baseline, daemon in after if baseline != daemon] == []
    assert len({baseline for _, baseline, _ in after}) > 2, "the load requires different decisions"
    for at, baseline, daemon in both.sizes:
        assert daemon == pytest.approx(baseline, rel=1e-6, nan_ok=True), at


@pytest.mark.parametrize("least", [0, 1])
def test_start_up_time_is_learned_from_every_pod_that_becomes_ready(page, least):
    # With a replica that is always there no start is one from zero.
    server, traffic = PROFILES["A"], load("flash:peak=40,at=5m,for=25m", None, 5).load
    baseline = tidegate.baseline("tidegate", wish(work=0.0, keep_warm_s=0.0, least=least))
    assert np.isnan(baseline._scaler._past.start_s)
    run(traffic, server, baseline, seed=1)
    assert baseline._scaler._past.start_s == pytest.approx(server.start_s, rel=0.2)


def test_server_without_a_limit_for_the_rest_is_sized_by_its_time_per_output_token():
    server, traffic = PROFILES["A"], load("flash:peak=4,at=5m,for=15m", None, 5).load
    baseline = tidegate.baseline("tidegate", wish(work=0.0))
    run(traffic, replace(server, slo=replace(server.slo, rest_s=inf)), baseline, seed=1)
    scaler = baseline._scaler
    assert scaler._slo == (pytest.approx(mean_slo(server.slo, traffic)[0]), server.slo.rest_per_token_s)
    assert np.isfinite(scaler._sizes[0, [Estimate.DECODE, Estimate.SIZE]]).all()
